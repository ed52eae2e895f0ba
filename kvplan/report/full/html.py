"""The report as one page: no script, nothing loaded, at most half a megabyte."""

from __future__ import annotations

from collections.abc import Container, Sequence

from kvplan.api.reporting import PlanReport
from kvplan.plans.findings import CheckReport
from kvplan.report.check.shown import label, sentence, verdict
from kvplan.report.full.content import about, answer_of, headline_of, sections_of, summary_of
from kvplan.report.html.markup import Markup, Part, el
from kvplan.report.html.page import head, page, section, table
from kvplan.report.layout import shorten
from kvplan.report.sections import Cell, Entry, Table
from kvplan.report.words import count
from kvplan.version import __version__

LIMIT = 500_000
"""Bytes of a page."""
_ROOM = 2_000
_FIGURES = ("gpus", "tokens", "max_requests", "safe_max_requests")
_ROWS, _NAME_WIDTH = 300, 100
"""Of the overview: plans at most, and characters of a name."""
_SKIP = el("a", "Skip to the plans", href="#plans", class_="skip")
_STATES = {"passes": "good", "fails": "bad", "could not be judged": "bad"}


def report_page(reports: Sequence[PlanReport]) -> str:
    """The whole page. Plans that do not fit stand in the overview and are named below it."""
    several = len(reports) > 1
    said = sentence(CheckReport(tuple(one.checked for one in reports)))
    title = said
    top: Markup = el("header", el("h1", said))
    if len(reports) == 1:
        title, top = f"{label(reports[0].checked)}: {headline_of(reports[0])}", _head(reports[0])
    foot = el(
        "footer",
        el("p", f"Written by kvplan {__version__}: every figure is computed, no GPU was asked unless a"
           " receipt says so. Likely: each estimate at its middle; safe: at the end that leaves least.",
           class_="soft"),
    )  # fmt: skip
    frame = page(title, top, _overview(reports, range(len(reports))), foot)
    articles, left_out = _articles(reports, LIMIT - len(frame.encode()) - _ROOM)
    first = [_SKIP, top, _overview(reports, articles)] if several else [top]
    return page(title, *first, el("main", *articles.values(), left_out, id="plans"), foot)


def _articles(reports: Sequence[PlanReport], room: int) -> tuple[dict[int, Markup], Markup | None]:
    """Plans by their place, each in full as long as all others fit in short, which is answer, figures and
    findings; and what is said of those that do not fit."""
    several = len(reports) > 1
    short = [_article(one, place, several=several, short=True) for place, one in enumerate(reports)]
    needed = sum(len(one.encode()) for one in short)
    shown: dict[int, Markup] = {}
    brief = 0
    for place, (one, less) in enumerate(zip(reports, short)):
        needed -= len(less.encode())
        full = _article(one, place, several=several)
        chosen = full if len(full.encode()) + needed <= room else less
        if len(chosen.encode()) <= room:
            brief += chosen is less
            room -= len(chosen.encode())
            shown[place] = chosen
    left = len(reports) - len(shown)
    told = [f"{count(brief, 'plan')} in short"] if brief else []
    told += [f"{count(left, 'plan')} not at all"] if left else []
    if not told:
        return shown, None
    said = f"A page has at most {LIMIT // 1000} kB: {', '.join(told)}."
    return shown, el("p", said, " kvplan export PLAN --to html writes each in full.")


def _article(one: PlanReport, place: int, *, several: bool, short: bool = False) -> Markup:
    top: list[Part] = []
    if several:
        top += [el("h2", label(one.checked)), el("p", about(one), class_="about"),
                el("p", headline_of(one), class_="answer"), *_state(one)]  # fmt: skip
    found = summary_of(one) if short else sections_of(one)
    parts = [section(each, level=3 if several else 2) for each in found]
    return el("article", *top, *parts, id=f"plan-{place + 1}")


def _head(one: PlanReport) -> Markup:
    """The head of the page of one plan."""
    return head(
        " · ".join(filter(None, (label(one.checked), about(one)))),
        headline_of(one),
        *_state(one),
        good=one.checked.passed and headline_of(one) == answer_of(one),
    )


def _state(one: PlanReport) -> list[Part]:
    """Whether the plan passes, where it stands; and what is held, where the headline is what fails."""
    state = verdict(one.checked)
    words = el("strong", f"The plan {state}", class_=_STATES[state])
    held = answer_of(one)
    return [el("p", held) if held != headline_of(one) else None, el("p", words, f" · {one.checked.path}")]


def _overview(reports: Sequence[PlanReport], shown: Container[int]) -> Markup:
    """Every plan in a row, its name leading to it where it is shown below."""
    rows: list[tuple[Entry, ...]] = []
    for place, one in enumerate(reports[:_ROWS]):
        checked = one.checked
        known = ((name, checked.fact(name)) for name in _FIGURES)
        figures = ["–" if value is None else Cell(f"{value:,}", value, name) for name, value in known]
        gpu = one.plan.settings.gpu if one.plan is not None else None
        name = shorten(label(checked), _NAME_WIDTH)
        link = el("a", name, href=f"#plan-{place + 1}") if place in shown else name
        rows.append((link, verdict(checked), gpu.slug if gpu is not None else "–", *figures))
    heads = ("plan", "verdict", "kind", "GPUs", "tokens", "requests", "safe")
    more = len(reports) - _ROWS
    said = el("p", f"{count(more, 'plan')} more: kvplan check") if more > 0 else None
    return el("nav", table(Table(heads, "lllrrrr", tuple(rows))), said, aria_label="Plans")
