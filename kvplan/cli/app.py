"""The table of commands as a typer application: help, completion, and what is not a plain command line."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Optional

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from kvplan.cli.commands import COMMANDS, GROUPS, HIDDEN, MORE, TOP_LEVEL, Argument, Command
from kvplan.cli.completion import completer
from kvplan.cli.engine_words import words_beside
from kvplan.cli.everyday import EVERYDAY, Everyday
from kvplan.cli.options import OUTPUT, TASKS, Option
from kvplan.cli.terminal import Answer
from kvplan.cli.usage import unknown_command
from kvplan.engines.folders import title_of
from kvplan.report.layout import WIDTH, columns

WORDS = "words"
HELP_ALL = "--help-all"
EXAMPLES = """\
\b
Examples:
  kvplan size qwen3-32b --gpu h200 -t 32k              does it fit?
  kvplan plan qwen3-32b -n 32 -t 8k --gpu h100,h200    which GPUs?
  kvplan fits --gpu rtx-4090 -e llamacpp               what fits this card?
  kvplan check plans/                                  do the plans hold?

\b
Exit codes: 0 answered, 1 the answer is no, 2 could not answer,
            3 could not run here, 70 a bug in kvplan.
"""


def _context() -> dict[str, object]:
    """The names of help, and how wide it is."""
    wide = columns()
    return {"help_option_names": ["-h", "--help"], "terminal_width": wide, "max_content_width": wide}


def _in_width(epilog: str) -> str:
    """Prose is broken as it stands, or anew where the terminal is narrower; examples stay as they are."""
    if columns() >= WIDTH:
        return epilog
    parts = epilog.split("\n\n")
    return "\n\n".join(
        part if "\n  kvplan" in part else " ".join(part.replace("\b\n", "").split()) for part in parts
    )


class PanelCommand(TyperCommand):
    """A command whose ``-h`` shows its everyday options, ``--help-all`` those of every engine in groups, and
    ``--help vllm`` those that vLLM alone has."""

    command: Command
    everything = False
    engine: str | None = None

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        metavars = [
            str(param.metavar) for param in self.get_params(ctx) if param.param_type_name == "argument"
        ]
        return [*metavars, "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        if self._is_short():
            _write_everyday(self.command, EVERYDAY[self.command.name], formatter)
            return
        own = {option.name: option.engines for option in self.command.options if option.special}
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record, name = param.get_help_record(ctx), str(param.name)
            shown = name not in own if self.engine is None else self.engine in own.get(name, ())
            if record is not None and param.param_type_name == "option" and shown:
                group = getattr(param, "rich_help_panel", None) if self.engine is None else _OWN
                panels.setdefault(group or OUTPUT, []).append(record)
        if self.engine is not None:
            panels[_WORDS] = words_beside(self.command, self.engine)
        elif own:
            panels[OUTPUT].append(("--help ENGINE", "The options that one engine alone has: --help vllm."))
        if self.command.name in EVERYDAY and self.engine is None:
            panels[OUTPUT].append((HELP_ALL, "Show every option, by task."))
        for title in sorted(filter(panels.get, panels), key=_place):
            with formatter.section(title.format(title_of(self.engine or ""))):
                formatter.write_dl(panels[title])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if not self._is_short() and self.engine is None:
            super().format_epilog(ctx, formatter)

    def _is_short(self) -> bool:
        return self.command.name in EVERYDAY and not self.everything


_OWN, _WORDS = "Options of {}", "{}'s names for other options"


def _place(title: str) -> tuple[int, int]:
    """A command's own groups, those of the tasks in their order, plan files and output."""
    if title in (OUTPUT, _WORDS):
        return 3, 0
    return (1, TASKS.index(title)) if title in TASKS[1:] else (0, 0)


def _write_everyday(command: Command, everyday: Everyday, formatter: Any) -> None:
    """A line each, in the width there is."""
    options = {option.name: option for option in command.options}
    rows = []
    for name, words in everyday.options:
        option = options[name]
        short = next((flag for flag in option.flags if not flag.startswith("--")), "")
        long = next(flag for flag in option.flags if flag.startswith("--"))
        rows.append((f"{short + ',' if short else '':<3} {long} {option.metavar}".rstrip(), words))
    examples = [(line, words) for line, words in everyday.examples]
    with formatter.section("Everyday options"):
        _write_rows(rows, formatter)
    with formatter.section("Examples"):
        _write_rows(examples, formatter)
    left = sum(not option.special for option in command.options) - len(rows)
    ways = [(f"{left} more options, by task:", f"kvplan {command.name} {HELP_ALL}")]
    if any(option.special for option in command.options):
        ways.insert(0, ("an engine's own options:", f"kvplan {command.name} --help vllm"))
    wide = max(len(more) + len(how) for more, how in ways) < columns()
    formatter.write("\n" + "".join(f"{more} {how}\n" if wide else f"{more}\n  {how}\n" for more, how in ways))


def _write_rows(rows: list[tuple[str, str]], formatter: Any) -> None:
    """A line each; the words stand below, where they find no room beside."""
    width = max(len(first) for first, _ in rows)
    lead = " " * formatter.current_indent
    for first, words in rows:
        beside = f"{lead}{first:<{width}}  {words}".rstrip()
        if len(beside) <= columns():
            formatter.write(beside + "\n")
        else:
            formatter.write(f"{lead}{first}\n{lead * 2}{words}\n")


class NamedGroup(TyperGroup):
    """A group that names the nearest command where there is none of that name."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(self.commands)

    def collect_usage_pieces(self, ctx: object) -> list[str]:
        return ["COMMAND", "..."]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown_command(args[0], self.commands, ctx.command_path)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = {name: one.get_short_help_str(200) for name, one in self.commands.items() if not one.hidden}
        more = {name: shown.pop(name) for name in MORE if name in shown and ctx.parent is None}
        for title, rows in (("Commands", shown), ("More", more)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(list(rows.items()))


def root_command(*, everything: bool = False, engine: str | None = None) -> Any:
    """The whole command line as one object of the parser. everything: help shows every option; engine: those
    that this engine alone has."""
    app = typer.Typer(
        cls=NamedGroup,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        context_settings=_context(),
        epilog=_in_width(EXAMPLES),
    )
    app.callback()(_root)
    for name in TOP_LEVEL:
        if name in GROUPS:
            app.add_typer(_group(name, everything, engine), name=name, hidden=name in HIDDEN)
        else:
            _add(app, name, COMMANDS[name], everything, engine)
    root = get_command(app)
    for param in root.params:
        if param.name == "show_completion":
            param.help = "Print the completion script."  # type: ignore[attr-defined]
    root.commands = {name: root.commands[name] for name in TOP_LEVEL}  # type: ignore[attr-defined]
    return root


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and stop.")] = False,
) -> Optional[Answer]:  # noqa: UP045 - typer evaluates it on 3.10
    """How many requests fit on which GPUs, and what it costs."""
    if version:
        from kvplan.version import __version__

        return Answer(text=f"kvplan {__version__}\n")
    if context.invoked_subcommand is None:
        return Answer(text=context.get_help() + "\n")
    return None


def _group(name: str, everything: bool, engine: str | None) -> typer.Typer:
    app = typer.Typer(
        cls=NamedGroup, help=GROUPS[name], invoke_without_command=True, context_settings=_context()
    )

    def show(context: typer.Context) -> Optional[Answer]:  # noqa: UP045 - typer evaluates it on 3.10
        return Answer(text=context.get_help() + "\n") if context.invoked_subcommand is None else None

    # typer reads the annotations of a nested function from its globals, where they are.
    app.callback(help=GROUPS[name])(show)
    for full, command in COMMANDS.items():
        head, _, member = full.partition(" ")
        if head == name:
            _add(app, member, command, everything, engine)
    return app


def _add(app: typer.Typer, name: str, command: Command, everything: bool, engine: str | None) -> None:
    about = {"command": command, "everything": everything, "engine": engine}
    shown = type("PanelCommand", (PanelCommand,), about)
    app.command(
        name,
        cls=shown,
        help=command.summary,
        short_help=command.summary,
        context_settings=_context(),
        epilog=_in_width(command.epilog),
        hidden=name in HIDDEN,
    )(_function(command))


def _function(command: Command) -> Any:
    """A function with one parameter for each entry of the table; typer reads them from its signature."""
    parameters = [_parameter(option) for option in command.options]
    if command.argument is not None:
        parameters.insert(0, _positional(command.argument))

    def call(**values: Any) -> Answer:
        words = values.pop(WORDS, None)
        for option in command.options:
            if option.repeats and values.get(option.name) is not None:
                values[option.name] = option.between.join(values[option.name])
        return command.call([words] if isinstance(words, str) else list(words or ()), values)

    call.__name__ = command.name.replace(" ", "_")
    # A signature is typer's public way in. The arguments of its option class changed between the releases
    # that kvplan allows, and newer ones have a click of their own: options built here would fit one of them.
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _positional(argument: Argument) -> inspect.Parameter:
    kind: Any = str if argument.most == 1 else list[str]
    info = typer.Argument(
        metavar=argument.metavar,
        show_default=False,
        autocompletion=completer(argument.complete) if argument.complete else None,
    )
    default = inspect.Parameter.empty if argument.least else None
    taken: Any = kind if argument.least else kind | None
    annotation: Any = Annotated[taken, info]
    return inspect.Parameter(WORDS, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parameter(option: Option) -> inspect.Parameter:
    # A switch and its opposite are one word of the declaration; its short forms stand beside it.
    pair = "/".join((option.flags[0], *option.off_flags))
    info = typer.Option(
        *((pair, *option.flags[1:]) if option.is_switch else option.flags),
        help=option.help,
        metavar=option.metavar or None,
        rich_help_panel=option.panel,
        show_default=False,
        autocompletion=completer(option.complete) if option.complete else None,
    )
    kind: object = bool | None if option.is_switch else (list[str] if option.repeats else str) | None
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info]
    )
