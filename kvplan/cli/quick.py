"""The plain case of the command line without loading typer, which alone takes longer than a whole answer.

Typer stays the parser that decides: this one takes a command line only where it can be understood in one way,
and returns None for everything else (help, completion, mistakes, unusual spellings). A test holds the two
against each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from kvplan.cli.commands import Command, command_of
from kvplan.cli.options import Option

COMPLETION_VARIABLE = "_KVPLAN_COMPLETE"
Parsed = tuple[Command, list[str], dict[str, "str | bool | None"]]


def parse(arguments: list[str], environment: Mapping[str, str] | None = None) -> Parsed | None:
    """Command, positional words and options; None where typer has to look at it."""
    if (os.environ if environment is None else environment).get(COMPLETION_VARIABLE):
        return None
    command = command_of(arguments)
    if command is None:
        return None
    words: list[str] = []
    given: dict[str, str | bool | None] = {}
    flags = _flags(command)
    rest = iter(arguments[len(command.name.split()) :])
    for argument in rest:
        if argument == "--":
            words += rest
        elif argument == "-" or not argument.startswith("-"):
            words.append(argument)
        elif not _take(argument, rest, flags, given):
            return None
    least, most = (0, 0) if command.argument is None else (command.argument.least, command.argument.most)
    if len(words) < least or (most is not None and len(words) > most):
        return None
    return command, words, given


def _flags(command: Command) -> dict[str, tuple[Option, bool]]:
    """Flag → its option, and whether it switches it on."""
    by_flag: dict[str, tuple[Option, bool]] = {}
    for option in command.options:
        by_flag.update(dict.fromkeys(option.flags, (option, True)))
        by_flag.update(dict.fromkeys(option.off_flags, (option, False)))
    return by_flag


def _take(
    argument: str,
    rest: Iterator[str],
    flags: Mapping[str, tuple[Option, bool]],
    given: dict[str, str | bool | None],
) -> bool:
    """Read an option with its value into ``given``; whether it can be understood in one way."""
    flag, equals, value = argument.partition("=")
    if flag not in flags or (equals and not flag.startswith("--")):
        return False
    option, state = flags[flag]
    if option.is_switch:
        given[option.name] = state
        return not equals
    if not equals:
        value = next(rest, "-")
        if value.startswith("-"):
            return False
    before = given.get(option.name)
    given[option.name] = f"{before}{option.between}{value}" if option.repeats and before else value
    return True
