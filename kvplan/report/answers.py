"""Answers of the library as text and as HTML: their screens without what a command line would type next."""

from __future__ import annotations

from html import escape
from importlib import import_module

from kvplan.report.layout import Screen, Span, plain, printable

_CSS = {
    "bold": "font-weight:bold",
    "dim": "opacity:.7",
    "good": "font-weight:bold;color:#1a7f37",
    "bad": "font-weight:bold;color:#cf222e",
    "warn": "color:#9a6700",
}
_SHOWN_ROWS = 10
LONGEST = 160


def as_text(answer: object) -> str:
    """The screen as text, without a final newline."""
    return plain(_screen(answer)).rstrip("\n")


def as_line(answer: object) -> str:
    """The screen's first sentence in one line, cut where it is longer than a person reads."""
    said: list[str] = []
    for row in _screen(answer):
        text = "".join(piece.text for piece in row).strip()
        if not text:
            break
        said.append(text)
        if text.endswith("."):
            break
    line = printable(" ".join(said))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def as_html(answer: object) -> str:
    """The screen as one element that needs no style sheet; bold and words carry what colour does."""
    rows = "\n".join("".join(map(_html, row)).rstrip() for row in _screen(answer))
    return f'<pre class="kvplan" style="line-height:1.2">{rows}</pre>'


def _html(piece: Span) -> str:
    text = escape(printable(piece.text))
    return f'<span style="{_CSS[piece.style]}">{text}</span>' if piece.style and text.strip() else text


def _screen(answer: object) -> Screen:
    name = type(answer).__name__
    module, _, function = _SCREENS[name].partition(":")
    shown: Screen = getattr(import_module(f"kvplan.report.{module}"), function)(answer, *_MORE.get(name, ()))
    return shown


_SCREENS = {
    "SizeResult": "size:answer_screen",
    "Explanation": "explain:answer_screen",
    "SizeTable": "size_tables:answers_screen",
    "PlanResult": "plan:answer_screen",
    "CheckReport": "check.text:screen",
    "QualityResult": "quality:quality_screen",
    "FitResult": "fits:answer_screen",
    "Comparison": "comparison:answer_screen",
    "Simulation": "simulate:answer_screen",
    "Run": "simulate:run_line",
    "Option": "plan_table:option_line",
    "FitRow": "fits:row_line",
    "CheckedPlan": "check.text:plan_line",
    "Finding": "check.text:finding_line",
    "ComparedRow": "comparison:row_line",
    "Model": "values:model_lines",
    "Gpu": "values:gpu_lines",
    "Plan": "values:plan_lines",
    "Observation": "values:observation_lines",
}
_MORE = {"FitResult": (_SHOWN_ROWS,)}
