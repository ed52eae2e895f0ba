"""The parser's complaints in kvplan's own form, with the nearest option or command."""

from __future__ import annotations

from typing import Any

from kvplan.errors import KvplanError, did_you_mean


def usage_error(error: Any) -> KvplanError:
    """An error of typer or click (which of the two depends on the release) as a KvplanError with exit 2."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "kvplan"
    option = getattr(error, "option_name", None)
    if option is not None and type(error).__name__ == "NoSuchOption":
        near = did_you_mean(option, _flags(context))
        helps = ([f"did you mean {near}?"] if near else []) + [
            f"see: {path} --help{'-all' if _is_long(path) else ''}"
        ]
        return KvplanError("unknown-option", f"{path} has no option {option}", help=helps)
    name = type(error).__name__
    code = {"MissingParameter": "missing-argument", "NoSuchCommand": "unknown-command"}.get(name, "bad-usage")
    return KvplanError(code, error.format_message().rstrip("."), help=f"see: {path} --help")


def _is_long(path: str) -> bool:
    """Whether a command's help shows its everyday options only."""
    from kvplan.cli.everyday import EVERYDAY

    return path.removeprefix("kvplan ") in EVERYDAY


def unknown_command(name: str, known: list[str], path: str) -> KvplanError:
    near = did_you_mean(name, known)
    return KvplanError(
        "unknown-command",
        f"{path} has no command {name!r}",
        help=f"did you mean {path} {near}?" if near else f"commands: {', '.join(known)}",
    )


def _flags(context: Any) -> list[str]:
    if context is None:
        return []
    return [
        flag
        for param in context.command.params
        for flag in (*param.opts, *param.secondary_opts)
        if flag[:1] == "-"
    ]
