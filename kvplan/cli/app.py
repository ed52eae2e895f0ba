"""The tree of commands. A command's module is imported when it is called, not before."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, Optional

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from kvplan.cli.answer import Answer
from kvplan.cli.options import Option
from kvplan.cli.usage import unknown_command

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
# name → (module, attribute, one line for the list of commands)
COMMANDS = {
    "size": ("kvplan.cli.size", "How much cache a model takes, and how many requests fit."),
    "explain": ("kvplan.cli.explain", "Why: every term, its factors and the config keys they came from."),
    "models": ("kvplan.cli.catalog", "The models that kvplan knows by name."),
    "gpus": ("kvplan.cli.catalog", "The GPUs that kvplan knows by name."),
    "cards": ("kvplan.cli.cards", "Make a model card from a config; check cards."),
    "schema": ("kvplan.cli.schema", "JSON Schemas of the answers, cards and GPU files."),
}


class PanelCommand(TyperCommand):
    """A command whose help shows its options in groups, in the order in which they were declared."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            default = "Arguments" if param.param_type_name == "argument" else "Output and help"
            panels.setdefault(getattr(param, "rich_help_panel", None) or default, []).append(record)
        panels["Output and help"] = panels.pop("Output and help", [])
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class LazyGroup(TyperGroup):
    """The root: knows the names of the commands and loads the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, summary = COMMANDS[cmd_name]
        command = import_module(module).commands()[cmd_name]
        command.short_help = summary
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise unknown_command(args[0], list(COMMANDS), "kvplan")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


class NamedGroup(TyperGroup):
    """A group inside the root that names the nearest command, too."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown_command(args[0], list(self.commands), ctx.command_path)
        return super().resolve_command(ctx, args)


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


def root_command() -> Any:
    """The whole command line as one object of the parser."""
    app = typer.Typer(
        cls=LazyGroup,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        context_settings=HELP_NAMES,
        epilog=EXAMPLES,
    )
    app.callback()(_root)
    return get_command(app)


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


def single(function: Callable[..., Answer], name: str, epilog: str = "") -> Any:
    """One function as a command of the parser."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, cls=PanelCommand, context_settings=HELP_NAMES, epilog=epilog or None)(function)
    return get_command(app)


def group(name: str, summary: str, members: dict[str, tuple[Callable[..., Answer], str]]) -> Any:
    """Several functions under one name; members: name → (function, epilog)."""
    app = typer.Typer(
        name=name,
        cls=NamedGroup,
        help=summary,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=False,
        context_settings=HELP_NAMES,
    )
    app.callback()(lambda: None)
    for member, (function, epilog) in members.items():
        app.command(member, cls=PanelCommand, context_settings=HELP_NAMES, epilog=epilog or None)(function)
    return get_command(app)


def with_options(options: tuple[Option, ...], complete: dict[str, Callable[[str], list[str]]]) -> Any:
    """Give a function with ``**given`` one parameter for each option: text, True/False, or None where not given."""

    def decorate(function: Callable[..., Answer]) -> Callable[..., Answer]:
        own = inspect.signature(function, eval_str=True)
        parameters = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        parameters += [_parameter(option, complete.get(option.name)) for option in options]

        def call(**values: Any) -> Answer:
            return function(**values)

        call.__doc__, call.__name__ = function.__doc__, function.__name__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call

    return decorate


def _parameter(option: Option, complete: Callable[[str], list[str]] | None) -> inspect.Parameter:
    flags = "/".join(filter(None, (option.flags[0], "".join(option.off_flags)))) if option.is_switch else None
    info = typer.Option(
        *((flags,) if flags else option.flags),
        help=option.help,
        metavar=option.metavar or None,
        rich_help_panel=option.panel,
        show_default=False,
        autocompletion=complete,
    )
    kind: Any = Optional[bool] if option.is_switch else Optional[str]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info]
    )
