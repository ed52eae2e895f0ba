"""Printed figures as intervals: ``19.53 GiB`` is every number of bytes that rounds to it."""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.observed import Count, Ratio
from kvplan.units import GIB, KIB, MIB

BYTE_UNITS = {"GiB": GIB, "MiB": MIB, "KiB": KIB, "B": 1}
_LEAST_DECIMALS = {"GiB": 2, "x": 2}
"""Engines that drop trailing zeros (``55.7GiB``) still rounded to two decimals."""
MAX_DIGITS = 30


def parse_count(text: str, unit: str, *, line: int = 0, printed: str | None = None) -> Count:
    """A printed number in `unit` ("GiB", "MiB", "B" …, or "n" for a plain count) as whole bytes or things.

    Rounded figures (those of a unit above the byte) carry the interval [x - h, x + h], h half of the last
    decimal. Raises ValueError where the text is no number.
    """
    nearest, half = _decimal(text, _LEAST_DECIMALS.get(unit, 0))
    scale = BYTE_UNITS.get(unit, 1)
    shown = printed if printed is not None else (text if unit == "n" else f"{text} {unit}")
    value = round(nearest * scale)
    if scale == 1:
        return Count(value, value, value, shown, line)
    low, high = (nearest - half) * scale, (nearest + half) * scale
    return Count(value, -int(-low // 1), int(high // 1), shown, line)


def parse_ratio(text: str, *, line: int = 0, printed: str | None = None, exact: bool = False) -> Ratio:
    """A printed decimal with the interval of its rounding (exact: the digits are all there are)."""
    nearest, half = _decimal(text, _LEAST_DECIMALS["x"])
    half = Fraction(0) if exact else half
    return Ratio(nearest, nearest - half, nearest + half, printed if printed is not None else text, line)


def parse_decimal(text: str) -> Fraction:
    """A decimal text as an exact fraction; ValueError where it is none."""
    return _decimal(text, 0)[0]


def _decimal(text: str, least_decimals: int) -> tuple[Fraction, Fraction]:
    """(value, half of the last printed decimal)."""
    plain = text.replace(",", "").replace("_", "").strip()
    whole, _, decimals = plain.lstrip("+-").partition(".")
    if not (whole + decimals).isascii() or not (whole + decimals).isdigit():
        raise ValueError(f"{text!r} is not a number")
    if len(whole) > MAX_DIGITS or len(decimals) > MAX_DIGITS:
        raise ValueError(f"{text[:40]!r}… is too long for a number")
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    half = Fraction(1, 2 * 10 ** max(len(decimals), least_decimals))
    return (-value if plain.startswith("-") else value), half
