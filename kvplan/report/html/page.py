"""Sections as HTML, and the page around them."""

from __future__ import annotations

from fractions import Fraction

from kvplan.report.html.markup import Markup, Part, el, markup
from kvplan.report.html.style import STYLE
from kvplan.report.sections import Cell, Entry, Section, Table

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is loaded and nothing runs, whatever stands in the page."""


def page(title: str, *body: Part) -> Markup:
    """A whole document: one file that asks for nothing."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        el("style", Markup(STYLE)),
    )
    return Markup(f"<!DOCTYPE html>{el('html', head, el('body', *body), lang='en')}\n")


def section(one: Section, *, level: int = 2) -> Markup:
    """A section with its heading."""
    return el("section", el(f"h{level}", one.title), content(one))


def content(one: Section) -> Markup:
    """What stands below a section's heading."""
    return markup(
        *(el("p", words) for words in one.said),
        one.picture,
        *(table(each) for each in one.tables),
        el("ul", *(el("li", words) for words in one.listed)) if one.listed else None,
        *(el("pre", words) for words in one.fenced),
    )


def table(one: Table) -> Markup:
    """A table that scrolls by itself where it is wide, also by keyboard."""
    head = el(
        "tr",
        *(el("th", words, scope="col", class_=_class(at, words)) for at, words in zip(one.align, one.heads)),
    )
    rows = (_row(row, one, own=place == one.own) for place, row in enumerate(one.rows))
    inside = el(
        "table",
        el("caption", one.caption) if one.caption else None,
        el("thead", head),
        el("tbody", *rows),
    )
    name = one.caption or ", ".join(filter(None, one.heads)) or "figures"
    return el("div", inside, class_="wide", tabindex=0, role="region", aria_label=name)


def _row(row: tuple[Entry, ...], of: Table, *, own: bool) -> Markup:
    cells: list[Part] = []
    for place, (at, entry, title) in enumerate(zip(of.align, row, of.heads)):
        kind = _class(at, title)
        shown = _figure(entry) if isinstance(entry, Cell) else markup(entry)
        cells.append(el("td", shown, class_=kind) if place else el("th", shown, scope="row", class_=kind))
    return el("tr", *cells, class_="own" if own else None)


def _class(at: str, title: str) -> str | None:
    return "n" if at == "r" else "from" if title == FROM else None


FROM = "from"
"""The head of the column that says where a figure comes from."""


def _figure(cell: Cell) -> Markup:
    """The figure with its exact number, as a program finds it."""
    if cell.value is None:
        return markup(cell.text)
    return el("data", cell.text, value=_exact(cell.value), data_name=cell.name)


def _exact(value: int | float | Fraction) -> str:
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    return repr(value)
