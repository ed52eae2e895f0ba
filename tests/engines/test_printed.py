"""Printed figures and the interval of their rounding."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.engines.observed import total
from kvplan.engines.observed.printed import parse_count, parse_decimal, parse_ratio
from kvplan.units import GIB, MIB


@given(st.integers(0, 2**45), st.sampled_from([("GiB", GIB), ("MiB", MIB)]))
def test_what_is_printed_is_contained(amount: int, unit: tuple[str, int]) -> None:
    name, size = unit
    # Three ways in which engines print: two decimals, round() (drops zeros), four decimals.
    texts = [f"{amount / size:.2f}", f"{amount / size:.4f}"]
    if name == "GiB":
        texts.append(str(round(amount / size, 2)))
    for text in texts:
        count = parse_count(text, name)
        assert count.low <= amount <= count.high
        assert count.low <= count.value <= count.high


def test_counts_are_exact() -> None:
    count = parse_count("1,234,567", "n", line=9)
    assert (count.value, count.low, count.high, count.printed, count.line) == (
        1234567,
        1234567,
        1234567,
        "1,234,567",
        9,
    )
    assert count.exact
    assert parse_count("-5", "n").value == -5
    assert parse_count("-0.75", "GiB").value == -3 * GIB // 4


def test_ratios() -> None:
    ratio = parse_ratio("4.46")
    assert ratio.contains(Fraction(4464, 1000))
    assert not ratio.contains(Fraction(4466, 1000))
    assert parse_ratio("0.9", exact=True).low == Fraction(9, 10)
    assert parse_decimal("0.920000") == Fraction(23, 25)


@pytest.mark.parametrize("text", ["", "-", ".", "1e9", "0x10", "1.2.3", "٣", "9" * 40, "nan"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        parse_count(text, "GiB")


def test_sums_add_their_intervals() -> None:
    parts = [parse_count("1.00", "GiB"), parse_count("2.00", "GiB")]
    both = total(parts)
    assert both is not None
    assert both.value == 3 * GIB
    assert both.high - both.low == sum(part.high - part.low for part in parts)
    assert total([]) is None
