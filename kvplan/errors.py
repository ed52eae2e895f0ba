"""The errors that a user may meet, and the one form in which they are shown.

Every mistake that is not a bug of kvplan is raised as a `KvplanError`:

    error[code]: what is wrong
      where it is: file:line:column, the line, a caret
      what was computed
    help: one thing that would fix it

`code` is a kebab-case name that stays the same between releases (scripts match on it); `message` may change.
Exit codes: 2 could not answer (the default), 3 could not run on this machine. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvplan.later import regex
from kvplan.record import record

EXIT_OK = 0
EXIT_NO = 1
EXIT_CANNOT_ANSWER = 2
EXIT_CANNOT_RUN = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

_INDENT = "  "
_HELP = "help: "


CONTROL = regex(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Characters that move a cursor, change a colour, turn the direction of writing or are none."""


def escaped(text: str) -> str:
    """The text with control characters as they are written in code: ``\\x00``. Tabs and line ends stay."""
    if text.isascii() and text.isprintable():
        return text
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


_LONG_WORD = regex(r"\S{257,}")
_KEPT_BEFORE, _KEPT_BEHIND = 200, 40


def shortened(text: str) -> str:
    """The text with words of more than 256 characters cut in the middle: a name may be as long as somebody
    makes it, and a screen shows more than one."""
    if len(text) <= 256:
        return text
    return _LONG_WORD.sub(lambda found: f"{found[0][:_KEPT_BEFORE]}…{found[0][-_KEPT_BEHIND:]}", text)


_WINDOW, _LEAD = 96, 32
"""A source line longer than this is shown as a window around the caret, with so much before it."""


@record()
class Mark:
    """Where something was written: lines and columns count from 1."""

    path: str
    """as the user typed it"""
    line: int
    column: int
    end_column: int
    """after the last character of it in this line"""
    shown: str | None = None
    """the line itself; None: the text was not at hand"""

    _JSON = ("path", "line", "column", "end_column")

    def show(self, room: int = _WINDOW) -> str:
        """``path:line:column``, the line (about ``room`` columns of it), and a caret under what is meant."""
        place = f"{self.path}:{self.line}:{self.column}"
        if self.shown is None:
            return place
        from kvplan.masking import masked  # only where something went wrong

        line = "".join(c if c == "\t" or c.isprintable() else "\ufffd" for c in masked(self.shown))
        begin = self.column - 1
        shown, start, end = _window(line, begin, min(self.end_column - 1, len(line)), room)
        gutter = str(self.line)
        pad = "".join(c if c == "\t" else " " * _width(c) for c in shown[:start])
        carets = "^" * max(1, sum(_width(c) for c in shown[start:end]))
        return f"{place}\n{gutter} | {shown}\n{' ' * len(gutter)} | {pad}{carets}"


Where = Mark | str
"""A place in a file, or a text that says where: an option, a folder."""


class KvplanError(Exception):
    """A mistake that the user can mend.

    Args: code: kebab-case name, for example ``unknown-model``. message: one sentence without a final full
    stop; what is wrong. where: the place, or several: that of a plan's line and that in the file which the
    line names. detail: what was computed before the error was found, one line each. help: what would mend it,
    one entry for each way; one string counts as one entry.
    """

    exit_code: int = EXIT_CANNOT_ANSWER
    """overrides the class's own exit code"""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: Where | Sequence[Where] | None = None,
        detail: str | Sequence[str] = (),
        help: str | Sequence[str] = (),  # noqa: A002 - the word that is printed
        exit_code: int | None = None,
    ) -> None:
        message = escaped(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.places: tuple[Where, ...] = (
            () if not where else (where,) if isinstance(where, str | Mark) else tuple(where)
        )
        self.detail = _as_lines(detail)
        self.help = _as_lines(help)
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message

    @property
    def place(self) -> Mark | None:
        """The first place in a file."""
        return next((one for one in self.places if isinstance(one, Mark)), None)

    @property
    def where(self) -> str | None:
        """The places as text, each with its line and a caret."""
        shown = (one if isinstance(one, str) else one.show() for one in self.places)
        return escaped("\n".join(shown)) or None

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own __reduce__ would call the class with the message alone; this keeps copies and
        # errors that cross a process boundary whole.
        return (_rebuild, (type(self), self.code, self.message), self.__dict__.copy())

    def format(self, columns: int | None = None) -> str:
        """The error as text, without colour and without a final newline.

        In so many columns, where they are said: sentences are wrapped; what is copied (places in files,
        commands) and what is aligned stays on its line.
        """
        lines = _wrapped(shortened(f"error[{self.code}]: {self.message}"), "", _INDENT, columns)
        if self.where:
            lines += [(_INDENT + line).rstrip() for line in self.where.splitlines()]
        for block in self.detail:
            for line in shortened(block).splitlines():
                lines += _rows(line, _INDENT, _INDENT, columns)
        for entry in self.help:
            first, *rest = shortened(entry).splitlines() or [""]
            hang = " " * len(_HELP)
            lines += _rows(first, _HELP, hang, columns)
            lines += [(hang + line).rstrip() for line in rest]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The error as plain data for JSON reports."""
        return {
            "code": self.code,
            "message": self.message,
            "where": self.where,
            "detail": list(self.detail),
            "help": list(self.help),
            "exit_code": self.exit_code,
        }


def _rows(text: str, first: str, hang: str, columns: int | None) -> list[str]:
    copied = "kvplan " in text or "  " in text
    return [(first + text).rstrip()] if copied else _wrapped(text, first, hang, columns)


def _wrapped(text: str, first: str, hang: str, columns: int | None) -> list[str]:
    if columns is None or len(first) + len(text) <= columns:
        return [(first + text).rstrip()]
    from textwrap import TextWrapper

    wrapper = TextWrapper(columns, first, hang, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)


class RefusedError(KvplanError):
    """The question was understood but kvplan will not guess (an unknown layer type, say). Exit 2."""


class CannotRunHere(KvplanError):  # noqa: N818 - says what it means at the raise
    """This machine lacks what the command needs: a CUDA device, the network, an optional package. Exit 3."""

    exit_code = EXIT_CANNOT_RUN


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, or None where nothing is near. Case does not matter; the same letters
    in another order come first.

    >>> did_you_mean("lama-3", ["llama-3", "qwen3"])
    'llama-3'
    >>> did_you_mean("4900", ["9070", "4090"])
    '4090'
    """
    by_folded: dict[str, str] = {}
    for candidate in candidates:
        by_folded.setdefault(candidate.casefold(), candidate)
    folded = word.casefold()
    if folded in by_folded:
        return by_folded[folded]
    import difflib  # only where something went wrong: every start would pay for it

    near = difflib.get_close_matches(folded, by_folded, n=8, cutoff=0.6)
    swapped = (one for one in near if sorted(one) == sorted(folded))
    best = next(swapped, near[0] if near else None)
    return None if best is None else by_folded[best]


def _as_lines(value: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        return (escaped(value),) if value else ()
    return tuple(map(escaped, value))


def _window(line: str, start: int, end: int, room: int) -> tuple[str, int, int]:
    """The part of a long line around the caret, and the caret's place in it."""
    if len(line) <= room:
        return line, start, end
    begin = max(0, min(start - _LEAD, len(line) - room))
    stop = begin + room
    head = "..." if begin else ""
    tail = "..." if stop < len(line) else ""
    shift = len(head) - begin
    return head + line[begin:stop] + tail, start + shift, min(end, stop) + shift


def _width(char: str) -> int:
    """Columns that a terminal gives the character."""
    import unicodedata  # only where something went wrong

    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _rebuild(kind: type[KvplanError], code: str, message: str) -> KvplanError:
    # Subclasses may have other constructors, so they are made without calling one.
    error = kind.__new__(kind, message)
    KvplanError.__init__(error, code, message)
    return error
