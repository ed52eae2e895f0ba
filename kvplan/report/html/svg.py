"""Pictures by hand: shapes, scales, a frame. Every picture has words for who does not see it, and says by
form (length, dashes, markers, a word beside it) what it says by colour."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvplan.named import NamedTuple
from kvplan.report.html.markup import Markup, Part, el
from kvplan.units import human_seconds

WIDE, HIGH = 400, 210
"""A picture's size in its own units: about a telephone's pixels, so that words can be read there."""
TYPE = 13.5
"""The size of words in these units where they are largest: on a telephone."""
_LEFT, _RIGHT, _ABOVE, _BELOW = 30, 14, 12, 26
"""Room around a frame. At the left it grows with the longest word there."""
_NARROW, _WIDE = " .,:;'’|il…/", "%@mwMW—"
Point = tuple[float, float]


def picture(*parts: Part, what: str, high: float = HIGH, caption: Part = None, marks: Part = None) -> Markup:
    """The parts as one picture. ``what`` is read aloud, and is the caption where none is given; marks: a
    `legend` below it."""
    drawn = el("svg", *parts, viewBox=f"0 0 {WIDE} {high:g}", role="img", aria_label=what)
    scrolled = el("div", drawn, class_="wide", tabindex=0, role="group", aria_label="picture")
    return el("figure", scrolled, marks, el("figcaption", what if caption is None else caption))


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


def width_of(words: str) -> float:
    """At most so wide is a label, in a font of the usual kinds."""
    return TYPE * sum(0.36 if one in _NARROW else 0.98 if one in _WIDE else 0.65 for one in words)


class Mark(NamedTuple):
    """A place of a scale, 0 … 1, and its word."""

    at: float
    word: str


class Frame:
    """A picture with scales: marked heights as lines across, marked places along its foot. No word of a scale
    is cut, and none lies on another."""

    def __init__(self, heights: Sequence[Mark], places: Sequence[Mark]) -> None:
        self.heights, self.places = heights, places
        self.left = max((width_of(word) + 8 for _, word in heights), default=0.0)
        self.left = max(self.left, _LEFT)

    def x(self, share: float) -> float:
        """Where a share of the frame's width lies."""
        return self.left + share * (WIDE - self.left - _RIGHT)

    def y(self, share: float) -> float:
        """Where a share of the frame's height lies."""
        return (HIGH - _BELOW - _ABOVE) * (1 - share) + _ABOVE

    def across(self, share: float, class_: str) -> Markup:
        """A line at a height, over the whole frame."""
        return stroke(self.left, self.y(share), WIDE - _RIGHT, self.y(share), class_)

    def through(self, shares: Sequence[float], until: float = 1.0) -> list[Point]:
        """Values of equal stretches, each at its middle, from the left edge to so large a share of the
        width."""
        wide = until / (len(shares) or 1)
        inside = [(self.x((place + 0.5) * wide), self.y(share)) for place, share in enumerate(shares)]
        return [(self.x(0), inside[0][1]), *inside, (self.x(until), inside[-1][1])] if inside else []

    def beneath(self, through: Sequence[Point]) -> list[Point]:
        """The area between a line and the foot."""
        return [(through[0][0], self.y(0)), *through, (through[-1][0], self.y(0))]

    def drawn(self, *parts: Part, what: str, caption: Part = None, marks: Part = None) -> Markup:
        """The frame with the parts in it. what, caption: as of `picture`."""
        lines: list[Part] = []
        for at, word in self.heights:
            lines += [
                self.across(at, "axis"),
                label(self.left - 6, self.y(at) + 4, word, anchor="end"),
            ]
        words: list[Part] = [
            label(middle, HIGH - 6, word, anchor="middle") for middle, word in self._words_below()
        ]
        return picture(*lines, *parts, *words, what=what, caption=caption, marks=marks)

    def _words_below(self) -> list[tuple[float, str]]:
        """Words of the foot by their middles, within the picture; of two that touch the later one, but the
        last of all stays."""
        found: list[tuple[float, str]] = []
        for number, (at, word) in enumerate(self.places):
            half = width_of(word) / 2
            middle = min(max(self.x(at), half), WIDE - half)
            while found and middle - half < found[-1][0] + width_of(found[-1][1]) / 2 + 2:
                if number < len(self.places) - 1:
                    break
                found.pop()
            else:
                found.append((middle, word))
        return found


def legend(*rows: tuple[str, Part]) -> Markup:
    """Words below a picture, each beside its mark. rows: (class, words)."""
    marks = (el("li", el("i", Markup("&#8203;"), class_=kind), words) for kind, words in rows)
    return el("ul", *marks, class_="legend")


def side_by_side(*pictures: Part) -> Markup:
    """Pictures that stand side by side where there is room."""
    return el("div", *pictures, class_="pair")


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


def even_steps(most: float) -> list[float]:
    """0 and three to five even steps of 1, 2, 2.5 or 5 times a power of ten, the last not below ``most``."""
    power = 10.0 ** math.floor(math.log10(most)) if most > 0 else 1.0
    for step in (0.25, 0.5, 1, 2, 2.5):
        count = math.ceil(most / (power * step) - 1e-9)
        if count <= 4:
            return [power * step * place for place in range(max(count, 1) + 1)]
    return [0.0, power * 10]


_CLOCK = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def time_marks(seconds: float) -> list[Mark]:
    """Marks of a scale from 0 to so many seconds: ``0``, ``10 s``, ``20 s``; ``30 min``; ``6 h``."""
    if seconds < 4:
        steps = [at for at in even_steps(seconds) if at <= seconds]
        return [Mark(at / seconds, human_seconds(at) if at else "0") for at in steps]
    step = next((one for one in _CLOCK if seconds / one <= 6), 86400 * max(1, math.ceil(seconds / 86400 / 6)))
    size, unit = (3600, "h") if step >= 3600 else (60, "min") if step >= 60 else (1, "s")
    return [
        Mark(at / seconds, f"{at // size:,} {unit}" if at else "0")
        for at in range(0, math.floor(seconds) + 1, step)
    ]
