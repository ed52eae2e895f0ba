"""Answers of the library as text and as HTML: their screens without what a command line would type next."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from kvplan.report.layout import Screen, Span, plain, printable

_CSS = {
    "bold": "font-weight:bold",
    "dim": "opacity:.7",
    "good": "font-weight:bold;color:#1a7f37",
    "bad": "font-weight:bold;color:#cf222e",
    "warn": "color:#9a6700",
}
_SHOWN_ROWS = 10


def as_text(answer: Any) -> str:
    """The screen as text, without a final newline."""
    return plain(_screen(answer)).rstrip("\n")


def as_html(answer: Any) -> str:
    """The screen as one element that needs no style sheet; bold and words carry what colour does."""
    rows = "\n".join("".join(map(_html, row)).rstrip() for row in _screen(answer))
    return f'<pre class="kvplan" style="line-height:1.2">{rows}</pre>'


def _html(piece: Span) -> str:
    text = escape(printable(piece.text))
    return f'<span style="{_CSS[piece.style]}">{text}</span>' if piece.style and text.strip() else text


def _screen(answer: Any) -> Screen:
    return _SCREENS[type(answer).__name__](answer)


def _size(answer: Any) -> Screen:
    from kvplan.report.size import answer_screen

    return answer_screen(answer)


def _plan(answer: Any) -> Screen:
    from kvplan.report.plan import answer_screen

    return answer_screen(answer)


def _check(answer: Any) -> Screen:
    from kvplan.report.check.text import screen

    return screen(answer)


def _quality(answer: Any) -> Screen:
    from kvplan.report.quality import quality_screen

    return quality_screen(answer)


def _fits(answer: Any) -> Screen:
    from kvplan.report.fits import answer_screen

    return answer_screen(answer, _SHOWN_ROWS)


def _comparison(answer: Any) -> Screen:
    from kvplan.report.comparison import answer_screen

    return answer_screen(answer)


def _simulation(answer: Any) -> Screen:
    from kvplan.report.simulate import answer_screen

    return answer_screen(answer)


def _value(name: str) -> Callable[[Any], Screen]:
    def screen(value: Any) -> Screen:
        from kvplan.report import values

        shown: Screen = getattr(values, name)(value)
        return shown

    return screen


_SCREENS: dict[str, Callable[[Any], Screen]] = {
    "SizeResult": _size,
    "PlanResult": _plan,
    "CheckReport": _check,
    "QualityResult": _quality,
    "FitResult": _fits,
    "Comparison": _comparison,
    "SimulationResult": _simulation,
    "Model": _value("model_lines"),
    "Gpu": _value("gpu_lines"),
    "Plan": _value("plan_lines"),
    "Observation": _value("observation_lines"),
}
