"""The report as Markdown: the same sections without pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplan.api.reporting import PlanReport
from kvplan.later import regex
from kvplan.report.check.markdown import code, fenced
from kvplan.report.check.shown import label, one_line, verdict
from kvplan.report.full.content import about, answer_of, headline_of, sections_of
from kvplan.report.sections import Cell, Entry, Section, Table

_MARKS = regex(r"([\\`*_{}\[\]<>&#|~@])")
_CALLED = regex(r"((?<![^\W_])[^\s\w]*@\w\S*)")
"""A word that begins like the name of an account; the release of an engine (vllm@0.33) does not."""
_NAMES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", "|": "&#124;"}


def report_markdown(reports: Sequence[PlanReport]) -> str:
    """Every plan under a heading of its own."""
    return "\n".join(line for one in reports for line in _plan(one)) + "\n"


def _plan(one: PlanReport) -> Iterator[str]:
    yield from (f"## {said(label(one.checked))}", "", f"**{said(headline_of(one))}**", "")
    if headline_of(one) != answer_of(one):
        yield from (said(answer_of(one)), "")
    yield from (said(about(one)), "") if about(one) else ()
    yield from (f"The plan {verdict(one.checked)}: {said(one.checked.path)}", "")
    for section in sections_of(one):
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    if not (section.said or section.tables or section.listed or section.fenced):  # a picture alone
        return
    yield from (f"### {said(section.title)}", "")
    for words in section.said:
        yield from (said(words), "")
    for table in section.tables:
        yield from _table(table)
    if section.listed:
        yield from (*(f"- {said(words)}" for words in section.listed), "")
    for words in section.fenced:
        yield from (fenced(words), "")


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield from (said(table.caption) + ":", "")
    yield _row(table.heads)
    yield _row(tuple("---:" if at == "r" else "---" for at in table.align), plain=True)
    for place, row in enumerate(table.rows):
        yield _row(row, own=place == table.own)
    yield ""


def _row(cells: Sequence[Entry], *, own: bool = False, plain: bool = False) -> str:
    words = [cell.text if isinstance(cell, Cell) else cell for cell in cells]
    shown = words if plain else [said(one) for one in words]
    if own:
        shown = [f"**{one}**" if one else one for one in shown]
    return "| " + " | ".join(shown) + " |"


def said(words: str) -> str:
    """Text on one line in which no sign is markup and nobody is mentioned: a host decodes a character
    reference before it looks for names, so that a word it may call somebody by stands in a code span."""
    return "".join(
        code(piece) if place % 2 else _MARKS.sub(lambda sign: _NAMES.get(sign[1], f"\\{sign[1]}"), piece)
        for place, piece in enumerate(_CALLED.split(one_line(words)))
    )
