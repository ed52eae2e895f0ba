"""The table of commands as a typer application: help, completion, and what is not a plain command line."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Optional

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from kvplan.cli.answer import Answer
from kvplan.cli.commands import COMMANDS, GROUPS, TOP_LEVEL, Argument, Command
from kvplan.cli.completion import completer
from kvplan.cli.options import OUTPUT, Option
from kvplan.cli.usage import unknown_command

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
WORDS = "words"
EXAMPLES = """\
\b
Examples:
  kvplan size llama-3.1-8b --tokens 32k
  kvplan size qwen3-32b --gpu h200 --kv-cache-memory 60GiB --ladder
  kvplan size ./config.json --engine all --tp 8
  kvplan explain deepseek-v3

\b
Exit codes: 0 answered, 1 the answer is no, 2 could not answer,
            3 could not run here, 70 a bug in kvplan.
"""


class PanelCommand(TyperCommand):
    """A command whose help shows its options in groups, in the order of the table."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        metavars = [
            str(param.metavar) for param in self.get_params(ctx) if param.param_type_name == "argument"
        ]
        return [*metavars, "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and param.param_type_name == "option":
                panels.setdefault(getattr(param, "rich_help_panel", None) or OUTPUT, []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)


class NamedGroup(TyperGroup):
    """A group that names the nearest command where there is none of that name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["COMMAND", "..."]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown_command(args[0], list(self.commands), ctx.command_path)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(200)) for name, command in self.commands.items()]
            )


def root_command() -> Any:
    """The whole command line as one object of the parser."""
    app = typer.Typer(
        cls=NamedGroup,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        context_settings=HELP_NAMES,
        epilog=EXAMPLES,
    )
    app.callback()(_root)
    for name in TOP_LEVEL:
        if name in GROUPS:
            app.add_typer(_group(name), name=name)
        else:
            _add(app, name, COMMANDS[name])
    root = get_command(app)
    root.commands = {name: root.commands[name] for name in TOP_LEVEL}  # type: ignore[attr-defined]
    return root


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and stop.")] = False,
) -> Optional[Answer]:  # noqa: UP045 - typer evaluates it on 3.10
    """The KV cache of language models, exactly as each serving engine holds it."""
    if version:
        from kvplan.version import __version__

        return Answer(text=f"kvplan {__version__}\n")
    if context.invoked_subcommand is None:
        return Answer(text=context.get_help() + "\n")
    return None


def _group(name: str) -> typer.Typer:
    app = typer.Typer(
        cls=NamedGroup, help=GROUPS[name], invoke_without_command=True, context_settings=HELP_NAMES
    )

    def show(context: typer.Context) -> Optional[Answer]:  # noqa: UP045 - typer evaluates it on 3.10
        return Answer(text=context.get_help() + "\n") if context.invoked_subcommand is None else None

    # typer reads the annotations of a nested function from its globals, where they are.
    app.callback(help=GROUPS[name])(show)
    for full, command in COMMANDS.items():
        head, _, member = full.partition(" ")
        if head == name:
            _add(app, member, command)
    return app


def _add(app: typer.Typer, name: str, command: Command) -> None:
    app.command(
        name,
        cls=PanelCommand,
        help=command.summary,
        short_help=command.summary,
        context_settings=HELP_NAMES,
        epilog=command.epilog,
    )(_function(command))


def _function(command: Command) -> Any:
    """A function with one parameter for each entry of the table; typer reads them from its signature."""
    parameters = [_parameter(option) for option in command.options]
    if command.argument is not None:
        parameters.insert(0, _positional(command.argument))

    def call(**values: Any) -> Answer:
        words = values.pop(WORDS, None)
        return command.call([words] if isinstance(words, str) else list(words or ()), values)

    call.__name__ = command.name.replace(" ", "_")
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
    pair = (option.flags[0], *option.off_flags)
    info = typer.Option(
        *(("/".join(pair),) if option.is_switch else option.flags),
        help=option.help,
        metavar=option.metavar or None,
        rich_help_panel=option.panel,
        show_default=False,
        autocompletion=completer(option.complete) if option.complete else None,
    )
    kind: Any = (bool if option.is_switch else str) | None
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info]
    )
