"""An error's suggestions in the options of the command that was asked."""

from __future__ import annotations

import re
from functools import cache

from kvplan.cli.commands import COMMANDS, Command, command_of, text_of
from kvplan.cli.quick import parse
from kvplan.errors import KvplanError
from kvplan.later import regex

_OPTION = regex(r"(--?[A-Za-z][\w-]*)[^:]*", re.ASCII)
_IMPORT = "import"
_MOST_SIGNS = 40
"""Of a path that is repeated in a suggestion."""


def for_command(error: KvplanError, arguments: list[str]) -> tuple[str, ...]:
    """The error's suggestions; of one that begins with an option of ``kvplan import`` which the command lacks
    the way through a plan file, of one with an option of yet other commands nothing."""
    command = command_of(arguments)
    if command is None:
        return error.help
    found = (_in_words(one, command, arguments, error.code) for one in error.help)
    return tuple(one for one in found if one is not None)


def _in_words(text: str, command: Command, arguments: list[str], code: str) -> str | None:
    match = _OPTION.match(text)
    own = None if match is None else _flags(command.name).get(match[1])
    if match is None or (own is not None and not _is_another(own, match[1], code)):
        return text
    if match[1] in _flags(_IMPORT) and command.argument is not None and "PLAN" in command.argument.metavar:
        return f"kvplan {_IMPORT} {_start(arguments)} {match[0].strip()} --write plan.yaml: a plan of it"
    return None if any(match[1] in _flags(name) for name in COMMANDS) else text


def _is_another(name: str, flag: str, code: str) -> bool:
    """Whether a flag of a command is not the one that is meant: ``--set`` of a file's variables is no
    setting."""
    return code == "unresolved-variable" and _flags(_IMPORT).get(flag, name) != name


def _start(arguments: list[str]) -> str:
    """The file that was asked about, and the GPU that was said beside it."""
    _, words, given = parse(arguments) or (None, [], {})
    file = words[0] if len(words) == 1 else ""
    gpu = text_of(given, "gpu") or ""
    short = file if file.strip() and " " not in file and len(file) <= _MOST_SIGNS else "FILE"
    return f"{short} --gpu {gpu}" if gpu and "," not in gpu else short


@cache
def _flags(name: str) -> dict[str, str]:
    """Flag → the name of its option."""
    options = COMMANDS[name].options
    return {flag: one.name for one in options for flag in (*one.flags, *one.off_flags)}
