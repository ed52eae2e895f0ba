"""The parts of a report: sections with sentences, a picture and tables; HTML and Markdown are forms of the
same ones."""

from __future__ import annotations

from fractions import Fraction
from typing import Union

from kvplan.record import record
from kvplan.report.html.markup import Markup


@record()
class Cell:
    """A figure as it is read, and the exact number behind it. name: what the JSON calls it."""

    text: str
    value: int | float | Fraction | None = None
    name: str | None = None


Entry = Union[Cell, str]


@record()
class Table:
    """The first column names the row. align: ``l`` or ``r`` for each column; own: the row that is the
    plan's."""

    heads: tuple[str, ...]
    align: str
    rows: tuple[tuple[Entry, ...], ...]
    caption: str = ""
    own: int | None = None


@record()
class Section:
    """One part of a report. said: sentences above the picture; listed: below the tables, one a line;
    fenced: words of a terminal or a file."""

    title: str
    said: tuple[str, ...] = ()
    picture: Markup | None = None
    tables: tuple[Table, ...] = ()
    listed: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()
