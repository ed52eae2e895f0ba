"""Which of an engine's printed settings kvplan knows, and under which name of its own."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from kvplan.engines.observed import Count, Ratio, Setting, SettingValue
from kvplan.engines.observed.literals import items, value_of
from kvplan.engines.observed.printed import parse_decimal


def settings_from(
    text: str, start: int, known: Mapping[str, str], *, line: int, source: str
) -> dict[str, Setting]:
    """The known settings among the printed items that begin at `start`; unreadable values are left out."""
    found: dict[str, Setting] = {}
    for key, value_text in items(text, start):
        if key == "speculative_config":
            found.update(_speculative(value_text, line, source))
        elif key in known:
            try:
                found[known[key] or key] = Setting(plain(value_of(value_text)), line, source)
            except ValueError:
                continue
    return found


def plain(value: object) -> SettingValue:
    """A literal as a setting: floats become exact fractions of their printed digits, lists and dicts their
    text.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return _fraction(repr(value))
    if isinstance(value, str):
        return value.removeprefix("torch.")[:400]
    return str(value)[:400]


def from_text(text: str) -> SettingValue:
    """A setting that was printed without quotes, as Prometheus labels are: 16, 0.9, True, None, auto."""
    words: dict[str, SettingValue] = {"None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    if len(text) <= 30:
        try:
            value = parse_decimal(text) if text.strip() == text else None
        except ValueError:
            value = None
        if value is not None:
            return int(value) if value.denominator == 1 and "." not in text else value
    return text[:400]


def from_figure(figure: Count | Ratio | str | None, line: int, source: str) -> Setting:
    """A figure or word that a line of its own told, as a setting."""
    if isinstance(figure, Count | Ratio):
        return Setting(figure.value, line, source)
    return Setting(from_text(figure) if isinstance(figure, str) else None, line, source)


def _fraction(text: str) -> SettingValue:
    try:
        return parse_decimal(text)
    except ValueError:
        try:
            return Fraction(text)
        except (ValueError, OverflowError, ZeroDivisionError):
            return text


def _speculative(text: str, line: int, source: str) -> dict[str, Setting]:
    """Method and number of draft tokens out of vLLM's speculative_config (a dict, or a printed object)."""
    names = {
        "method": "speculative_method",
        "num_speculative_tokens": "num_speculative_tokens",
        "num_spec_tokens": "num_speculative_tokens",
        "model": "speculative_model",
    }
    found: dict[str, Setting] = {}
    for key, value in items(text):
        if key in names:
            try:
                found[names[key]] = Setting(plain(value_of(value)), line, source)
            except ValueError:
                continue
    return found
