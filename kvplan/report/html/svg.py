"""Pictures by hand: shapes, scales, a frame. Every picture has words for who does not see it, and says by
form (length, dashes, markers, a word beside it) what it says by colour."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvplan.named import NamedTuple
from kvplan.report.html.markup import Markup, Part, el

WIDE, HIGH, LEFT, BELOW = 400, 210, 46, 26
"""A picture's size, and the room of its scales, in its own units: about a telephone's pixels, so that words
can be read there and nothing is cut."""
RIGHT, ABOVE = 8, 4
Point = tuple[float, float]


def picture(*parts: Part, what: str, high: float = HIGH, caption: str | None = None) -> Markup:
    """The parts as one picture. ``what`` is read aloud, and is the caption where none is given."""
    drawn = el("svg", *parts, viewBox=f"0 0 {WIDE} {high:g}", role="img", aria_label=what)
    scrolled = el("div", drawn, class_="wide", tabindex=0, role="group", aria_label="picture")
    return el("figure", scrolled, el("figcaption", what if caption is None else caption))


def label(x: float, y: float, words: str, *, anchor: str = "start", class_: str | None = None) -> Markup:
    return el("text", words, x=float(x), y=float(y), text_anchor=anchor, class_=class_)


def rect(x: float, y: float, wide: float, high: float, class_: str, *, said: str | None = None) -> Markup:
    """said: what a pointer that rests on it is told."""
    told = None if said is None else el("title", said)
    sizes = {"x": float(x), "y": float(y), "width": float(max(wide, 0)), "height": float(high)}
    return el("rect", told, **sizes, class_=class_)


def stroke(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return el("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def points(through: Sequence[Point]) -> str:
    return " ".join(f"{round(x, 1):g},{round(y, 1):g}" for x, y in through)


def curve(through: Sequence[Point], class_: str) -> Markup:
    return el("polyline", points=points(through), class_=class_)


def area(around: Sequence[Point], class_: str) -> Markup:
    return el("polygon", points=points(around), class_=class_)


def whisker(low: float, high: float, y: float, class_: str = "whisker") -> Markup:
    """An interval lying at height y: a line with an end on each side."""
    ends = (stroke(at, y - 4, at, y + 4, class_) for at in (low, high))
    return Markup("".join((stroke(low, y, high, y, class_), *ends)))


class Mark(NamedTuple):
    """A place of a scale, 0 … 1, and its word."""

    at: float
    word: str


def along(share: float) -> float:
    """Where a share of the frame's width lies."""
    return LEFT + share * (WIDE - LEFT - RIGHT)


def up(share: float) -> float:
    """Where a share of the frame's height lies."""
    return (HIGH - BELOW) * (1 - share) + ABOVE


def frame(*parts: Part, heights: Sequence[Mark], places: Sequence[Mark], what: str) -> Markup:
    """A picture with scales: marked heights as lines across, marked places along its foot."""
    lines: list[Part] = []
    for at, word in heights:
        lines += [
            stroke(LEFT, up(at), WIDE - RIGHT, up(at), "axis"),
            label(LEFT - 6, up(at) + 4, word, anchor="end"),
        ]
    words = [label(along(at), HIGH - 6, word, anchor="middle") for at, word in places]
    return picture(*lines, *parts, *words, what=what)


def log_place(value: float, low: float, high: float) -> float:
    """Where a value lies between two others as logarithms go, 0 … 1."""
    return math.log(value / low) / math.log(high / low) if high > low else 0.5


def round_steps(low: int, high: int) -> list[int]:
    """1, 2, 5, 10 … between the two; only the powers of ten where that would be many."""
    found = [
        step * 10**power
        for power in range(len(str(max(high, 1))))
        for step in (1, 2, 5)
        if low <= step * 10**power <= high
    ]
    return found if len(found) <= 7 else [one for one in found if str(one).strip("0") == "1"]
