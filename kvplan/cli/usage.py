"""The parser's complaints in kvplan's own form, with the nearest option or command."""

from __future__ import annotations

from typing import Any

from kvplan.cli.commands import COMMANDS
from kvplan.cli.everyday import EVERYDAY
from kvplan.cli.options import SET
from kvplan.errors import KvplanError, did_you_mean
from kvplan.later import regex
from kvplan.record import Json

_MEANT = {
    **dict.fromkeys(("--rehearse", "--dry-run", "--rehearsal"), "--device cpu"),
    "--emit": "--write plan.yaml, then kvplan export plan.yaml",
}
"""Words of the documents that are no options → the option that does it."""
RENAMED = {
    "emit": "export PLAN --to command",
    "report": "export PLAN --to html",
    "models": "list models",
    "gpus": "list gpus",
    "receipts": "list receipts",
}
"""Commands of earlier releases → those that replace them."""
_WITHOUT_VALUE = regex(r"[Oo]ption '(-[^']+)' requires an argument")


def usage_error(error: Any) -> KvplanError:
    """An error of typer or click (which of the two depends on the release) as a KvplanError with exit 2."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "kvplan"
    option = getattr(error, "option_name", None)
    if option is not None and type(error).__name__ == "NoSuchOption":
        flags = _flags(context)
        command = COMMANDS.get(path.removeprefix("kvplan "))
        takes_settings = command is not None and SET in command.options
        near = _MEANT.get(option) or did_you_mean(
            option, [*flags, *(_of_engines() if takes_settings else ())]
        )
        near = near if near is None or near.split()[0] in flags or option not in _MEANT else None
        helps = ([f"did you mean {near}?"] if near else []) + [
            f"see: {path} --help{'-all' if _is_long(path) else ''}"
        ]
        return KvplanError("unknown-option", f"{path} has no option {option}", help=helps)
    text = error.format_message().rstrip(".")
    if found := _WITHOUT_VALUE.search(text):
        return _valueless(path, found[1])
    name = type(error).__name__
    code = {"MissingParameter": "missing-argument", "NoSuchCommand": "unknown-command"}.get(name, "bad-usage")
    return KvplanError(code, text, help=[*_examples(path), f"see: {path} --help"])


def _valueless(path: str, flag: str) -> KvplanError:
    """An option at the end of the line: what it takes."""
    command = COMMANDS.get(path.removeprefix("kvplan "))
    option = next((one for one in command.options if flag in one.flags), None) if command else None
    takes = f": {flag} {option.metavar}" if option is not None else ""
    helps = [f"see: {path} --help{'-all' if _is_long(path) else ''}"]
    return KvplanError("bad-usage", f"{flag} takes a value{takes}", help=helps)


def _examples(path: str) -> list[str]:
    """The first example of a command with everyday help."""
    everyday = EVERYDAY.get(path.removeprefix("kvplan "))
    return [everyday.examples[0][0]] if everyday is not None else []


def _is_long(path: str) -> bool:
    """Whether a command's help shows its everyday options only."""
    return path.removeprefix("kvplan ") in EVERYDAY


def unknown_command(name: str, commands: Json, path: str) -> KvplanError:
    near = RENAMED.get(name) if path == "kvplan" else None
    near = near or did_you_mean(name, commands)
    shown = (known for known, command in commands.items() if not command.hidden)
    return KvplanError(
        "unknown-command",
        f"{path} has no command {name!r}",
        help=f"did you mean {path} {near}?" if near else f"commands: {', '.join(shown)}",
    )


def _of_engines() -> list[str]:
    """Engines' flags for settings that have a flag here."""
    from kvplan.engines import OPTIONS_OF
    from kvplan.plans.words import words_of

    return [f"--{word.replace('_', '-')}" for engine in OPTIONS_OF for word in words_of(engine)]


def _flags(context: Any) -> list[str]:
    if context is None:
        return []
    return [
        flag
        for param in context.command.params
        for flag in (*param.opts, *param.secondary_opts)
        if flag[:1] == "-"
    ]
