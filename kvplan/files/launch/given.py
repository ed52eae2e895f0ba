"""Variables that a file leaves open, with the values that whoever reads it gives them (``--set NAME=value``).

A reader asks here for a name that nothing in the file sets, so that a value that the file sets counts before
the one that is given, and so that which names are open is known once the file was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from kvplan.errors import KvplanError, did_you_mean
from kvplan.later import regex

OPTION = "--set"
_NAME = regex(r"[A-Za-z_]\w*", re.ASCII)
_MOST = 12
"""Open names that an error lists."""


class Variables:
    """The values by name, and every name that was asked for, in the order of the text."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.asked: dict[str, None] = {}

    def value(self, name: str) -> str | None:
        """The value of a variable that nothing in the text sets; None where nobody gives one."""
        if _NAME.fullmatch(name):
            self.asked[name] = None
        return self.values.get(name)

    def check_used(self, shown: str) -> None:
        """Raises KvplanError(unused-set) for a value that nothing asked for, with the names that are open."""
        unused = [name for name in self.values if name not in self.asked]
        if not unused:
            return
        left = [name for name in self.asked if name not in self.values]
        near = did_you_mean(unused[0], left)
        more = " …" if len(left) > _MOST else ""
        said = f"open: {', '.join(left[:_MOST])}{more}" if left else "no other variable of it is open"
        raise KvplanError(
            "unused-set", f"{OPTION} {unused[0]}: nothing in {shown} leaves a variable of that name open",
            help=(*((f"did you mean {near}?",) if near else ()), said),
        )  # fmt: skip


_current: ContextVar[Variables | None] = ContextVar("variables", default=None)


def value_of(name: str) -> str | None:
    """The value that is given for a variable that nothing in the text sets; None where none is."""
    variables = _current.get()
    return None if variables is None else variables.value(name)


def is_left_open(name: str) -> bool:
    """Whether the text that is read leaves a variable open; of a text that nobody reads for values any is."""
    variables = _current.get()
    return variables is None or (name in variables.asked and name not in variables.values)


@contextmanager
def giving(variables: Variables) -> Iterator[None]:
    """A text that is read inside takes these values for what it leaves open."""
    token = _current.set(variables)
    try:
        yield
    finally:
        _current.reset(token)


def variables_of(words: Sequence[str]) -> dict[str, str]:
    """``NAME=value`` of each word. Raises KvplanError(bad-usage)."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise KvplanError(
                "bad-usage", f"{OPTION} takes NAME=value, not {word!r}",
                help=f"{OPTION} MODEL=Qwen/Qwen3-8B, for example",
            )  # fmt: skip
        if found.get(name, value) != value:
            raise KvplanError("bad-usage", f"{OPTION} gives {name} two values", help="give one of them")
        found[name] = value
    return found
