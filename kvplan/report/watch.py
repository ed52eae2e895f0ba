"""The lines of ``kvplan compare --watch``."""

from __future__ import annotations

from fractions import Fraction

from kvplan.comparison.watch import Moment
from kvplan.engines.folders import title_of
from kvplan.report.layout import BLANK, Screen, Span, line

_COLUMNS = (("seconds", 9), ("running", 9), ("waiting", 9), ("cache", 9), ("hits", 9), ("preempted", 11))


def head_screen(engine: str, url: str, seconds: int) -> Screen:
    """The server that is followed, and the titles of the columns."""
    titles = "".join(title.rjust(width) for title, width in _COLUMNS)
    return [
        line(f"Following {title_of(engine)} at {url} every {seconds} s; Ctrl-C ends."),
        BLANK,
        line(Span(titles, "dim")),
    ]


def moment_screen(moment: Moment, elapsed: int) -> Screen:
    """One sample, and under it what is past a threshold."""
    sample = moment.sample
    cells = (
        f"{elapsed:,}",
        _count(sample.running),
        _count(sample.waiting),
        _percent(sample.usage),
        _percent(moment.hit_rate),
        _preempted(sample.preemptions, moment.preempted),
    )
    row = "".join(cell.rjust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
    flags = "; ".join(moment.flags)
    return [line(row), *([line(" " * 9, Span(f"! {flags}", "warn"))] if flags else [])]


def lost_screen(message: str, elapsed: int) -> Screen:
    """A moment without an answer."""
    return [line(f"{elapsed:,}".rjust(9), "  ", Span(message[:66], "bad"))]


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _percent(share: Fraction | None) -> str:
    return "-" if share is None else f"{float(share * 100):.1f} %"


def _preempted(total: int | None, new: int | None) -> str:
    if total is None:
        return "-"
    return f"{total:,} (+{new:,})" if new else f"{total:,}"
