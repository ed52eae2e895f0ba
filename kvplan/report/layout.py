"""Lines of styled text, tables without boxes, and their one plain form.

A screen is a list of lines; a line is a tuple of spans; a span is a text and the name of a style. The plain
form drops the styles and nothing else, so a pipe shows what a terminal shows.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Union

from kvplan.errors import CONTROL, shortened
from kvplan.later import regex
from kvplan.named import NamedTuple

WIDTH = 80
"""Columns of a screen where nobody says how many there are."""
NARROWEST, WIDEST = 60, 120
INDENT = "  "
GAP = "   "
_LEAST_WORDS = 14
"""Columns into which words are still wrapped."""


class Span(NamedTuple):
    """A piece of text; style is "", "bold", "good", "bad", "warn" or "dim"."""

    text: str
    style: str = ""


Piece = Union[str, Span]
Line = tuple[Span, ...]
Screen = list[Line]
BLANK: Line = ()

# What a terminal that is not UTF-8 gets; everything else becomes a backslash escape.
_ASCII = {
    "×": "x", "·": "*", "−": "-", "–": "-", "—": "-", "…": "...", "→": "->", "←": "<-", "²": "^2",
    "≤": "<=", "≥": ">=", "≈": "~", "’": "'", "‘": "'", "“": '"', "”": '"', "§": "section ", "█": "#",
    "▁": "_", "▂": ".", "▃": ":", "▄": "-", "▅": "=", "▆": "+", "▇": "*", "µ": "u",
    "▏": " ", "▎": " ", "▍": " ", "▌": "=", "▋": "=", "▊": "=", "▉": "=",
}  # fmt: skip
_CLAUSE = regex(r"[:;.] | \(")
_OWNER = regex(r"[\w.-]+/(?=[\w.-]{8,})")
_ASCII_TABLE = str.maketrans(_ASCII)


_columns: ContextVar[int] = ContextVar("columns", default=WIDTH)


def columns() -> int:
    """Columns that a screen may take."""
    return _columns.get()


@contextmanager
def in_columns(number: int) -> Iterator[None]:
    """Screens made inside are so wide: the terminal's width, from NARROWEST to WIDEST."""
    before = _columns.set(max(NARROWEST, min(number, WIDEST)))
    try:
        yield
    finally:
        _columns.reset(before)


def span(piece: Piece) -> Span:
    return piece if isinstance(piece, Span) else Span(piece)


def line(*pieces: Piece, indent: int = 0) -> Line:
    """One line of the given pieces."""
    spans = tuple(span(piece) for piece in pieces)
    return (Span(INDENT * indent), *spans) if indent else spans


def printable(text: str) -> str:
    """The text with what moves a cursor, changes a colour or turns the direction of writing as ``�``: control
    characters but tab and newline, half surrogates, marks of direction. Neither a terminal nor XML gets any.
    """
    if text.isprintable():
        return text
    return CONTROL.sub("�", text.replace("\r\n", "\n").replace("\r", "\n"))


def plain(screen: Iterable[Line]) -> str:
    """The screen as text with a final newline, no blank at the end of any line."""
    return "".join(
        shortened(printable("".join(piece.text for piece in row))).rstrip() + "\n" for row in screen
    )


def to_ascii(text: str) -> str:
    """The same text in ASCII: ``×`` becomes ``x``, what has no likeness becomes an escape."""
    return text.translate(_ASCII_TABLE).encode("ascii", "backslashreplace").decode("ascii")


def wrapped(text: str, *, style: str = "", indent: int = 0, hang: int = 0, first: str = "") -> Screen:
    """Lines that leave the last column free; ``first`` before the first, ``hang`` blanks before the rest."""
    lead = INDENT * indent
    rows = textwrap.wrap(
        text,
        columns() - 1,
        initial_indent=lead + first,
        subsequent_indent=lead + " " * (hang or len(first)),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [(Span(row, style),) for row in rows]


def table(
    rows: Sequence[Sequence[Piece]],
    align: str,
    *,
    indent: int = 1,
    gap: str = GAP,
    spare: Sequence[int | str] = (),
) -> Screen:
    """Rows in columns as wide as their widest cell; align holds "l" or "r" for each column.

    Rows may be shorter than ``align``. What is wider than the screen stands closer together; then columns of
    ``spare``, by place or head, are left out, the first of them first; then words of the last column are
    wrapped; then tables stand below each other that all begin with the first column: where every column was
    asked for.
    """
    cells = [[span(piece) for piece in row] for row in rows]
    screen = _in_rows(cells, align, indent, gap)
    if table_width(screen) > columns() and len(gap) > len(INDENT):
        gap = INDENT
        screen = _in_rows(cells, align, indent, gap)
    kept = list(range(len(align)))
    for column in _places(cells, spare):
        if table_width(screen) <= columns():
            break
        kept.remove(column)
        part = [[row[at] for at in kept if at < len(row)] for row in cells]
        screen = _in_rows(part, "".join(align[at] for at in kept), indent, gap)
    if table_width(screen) <= columns():
        return screen
    cells = [[row[at] for at in kept if at < len(row)] for row in cells]
    align = "".join(align[at] for at in kept)
    return _last_wrapped(cells, align, indent, gap) or _in_blocks(cells, align, indent, gap)


def _places(cells: Sequence[Sequence[Span]], spare: Sequence[int | str]) -> Iterator[int]:
    """The columns by their places, those that the table has."""
    for one in spare:
        yield from (
            (one,) if isinstance(one, int) else (at for at, head in enumerate(cells[0]) if head.text == one)
        )


def _in_rows(cells: Sequence[Sequence[Span]], align: str, indent: int, gap: str) -> Screen:
    widths = [
        max((len(row[at].text) for row in cells if len(row) > at), default=0) for at in range(len(align))
    ]
    screen: Screen = []
    for row in cells:
        pieces: list[Span] = [Span(INDENT * indent)]
        for at, cell in enumerate(row):
            space = " " * (widths[at] - len(cell.text))
            between = gap if at else ""
            if align[at] == "r":
                pieces += [Span(between + space), cell]
            else:
                pieces += [Span(between), cell, Span(space)]
        screen.append(tuple(pieces))
    return screen


def _last_wrapped(cells: Sequence[Sequence[Span]], align: str, indent: int, gap: str) -> Screen:
    """The rows with the words of their last column below each other; nothing where they find no room."""
    last = len(align) - 1
    others = _in_rows([row[:last] for row in cells], align[:last], indent, gap)
    left = max(sum(len(piece.text) for piece in row) for row in others) + len(gap)
    room = columns() - left
    if not last or align[last] == "r" or room < _LEAST_WORDS:
        return []
    screen: Screen = []
    for row, before in zip(cells, others):
        text, style = row[last] if len(row) > last else Span("")
        words = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
        lead = (Span(" " * (left - sum(len(piece.text) for piece in before))),)
        screen += [(*before, *lead, Span(words[0], style))]
        screen += [(Span(" " * left), Span(more, style)) for more in words[1:]]
    return screen if table_width(screen) <= columns() else []


def _in_blocks(cells: Sequence[Sequence[Span]], align: str, indent: int, gap: str) -> Screen:
    """As many columns at once as fit beside the first, at least one."""
    screen: Screen = []
    begin = 1
    while begin < len(align):
        for end in range(len(align), begin, -1):
            part = [[*row[:1], *row[begin:end]] for row in cells if begin == 1 or len(row) > begin]
            block = _in_rows(part, align[0] + align[begin:end], indent, gap)
            if table_width(block) <= columns():
                break
        screen += [BLANK, *block] if screen else block
        begin = end
    return screen or _in_rows(cells, align, indent, gap)


def table_width(screen: Screen) -> int:
    """Columns that the widest line takes."""
    return max((len("".join(piece.text for piece in row).rstrip()) for row in screen), default=0)


def shorten(text: str, width: int) -> str:
    """At most ``width`` columns: the middle of a longer name becomes three dots. Not for numbers."""
    if len(text) <= width:
        return text
    kept = max(width - 3, 2)
    head = (kept + 1) // 2
    return f"{text[:head]}...{text[len(text) - (kept - head) :]}"


class Section(NamedTuple):
    """Lines that belong together. rank: of a screen that is too long the highest goes first; 0 always stays.
    less: shorter forms of it, which are tried before it goes; shrinks: at which rank, where that is another.
    close: without a blank line above."""

    rows: Screen
    rank: int = 0
    less: tuple[Screen, ...] = ()
    close: bool = False
    shrinks: int = 0

    @property
    def yields(self) -> int:
        """The rank at which it gives up lines next."""
        return self.shrinks if self.less and self.shrinks else self.rank


def joined(sections: Iterable[Section]) -> Screen:
    """The sections with a blank line between each two; those without a line are left out."""
    screen: Screen = []
    for section in sections:
        if section.rows:
            screen += [BLANK, *section.rows] if screen and not section.close else section.rows
    return screen


def within(sections: Sequence[Section], most: int) -> Screen:
    """The sections in at most so many lines: shorter forms first, then without those of the highest rank."""
    kept = list(sections)
    while len(screen := joined(kept)) > most:
        places = [at for at, one in enumerate(kept) if one.yields and one.rows]
        if not places:
            break
        place = max(places, key=lambda at: (kept[at].yields, at))
        one = kept[place]
        kept[place] = one._replace(rows=one.less[0] if one.less else [], less=one.less[1:])
    return screen


def one_line(text: str, *, first: str = "", indent: int = 1, style: str = "", cut: str = "") -> Line:
    """A text on one line: without the owners of models, its first clauses that fit, or its first words.

    cut: what stands at the end of a text that is not whole.
    """
    lead = INDENT * indent + first
    room = columns() - 1 - len(lead)
    if len(text) > room:
        text = _OWNER.sub("", text)
    if len(text) > room:
        room -= len(cut)
        ends = [at for at in (match.start() for match in _CLAUSE.finditer(text)) if room // 2 <= at <= room]
        text = text[: ends[-1]] + cut if ends else textwrap.shorten(text, room, placeholder=cut or " …")
    return (Span(lead, style), Span(text)) if style else (Span(lead + text),)
