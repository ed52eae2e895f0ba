"""Lines, tables, numbers and positions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.report.explain_layers import positions
from kvplan.report.layout import Span, line, plain, shorten, table, to_ascii, wrapped
from kvplan.report.words import Unit, count, exact_size, of_bytes, settings_words
from kvplan.units import GIB, MIB, parse_bytes


def test_numbers_stand_right_and_lines_end_where_their_text_does() -> None:
    rows = table([["name", Span("GiB", "dim")], ["a", "1.00"], ["longer", "12.00"]], "lr")
    assert plain(rows) == "  name       GiB\n  a         1.00\n  longer   12.00\n"


def test_rows_may_be_short() -> None:
    assert plain(table([["a", "b"], ["c"]], "ll")) == "  a   b\n  c\n"


def test_wrapped_lines_hang_under_their_first_word() -> None:
    rows = plain(wrapped("word " * 30, indent=1, first="help: ")).splitlines()
    assert rows[0].startswith("  help: word")
    assert all(row.startswith("        word") for row in rows[1:])
    assert max(map(len, rows)) <= 80


def test_plain_is_the_text_without_styles() -> None:
    assert plain([line("a ", Span("b", "bad"), indent=1), ()]) == "  a b\n\n"


@given(st.text())
def test_ascii_is_ascii(text: str) -> None:
    assert to_ascii(text).isascii()


def test_ascii_keeps_what_has_a_likeness() -> None:
    assert to_ascii("8 × 128 · 2 − 1 … ² 模") == "8 x 128 * 2 - 1 ... ^2 \\u6a21"


@given(st.text(alphabet="abc/-", min_size=1), st.integers(5, 40))
def test_shortened_names_fit(name: str, width: int) -> None:
    short = shorten(name, width)
    assert len(short) <= max(width, 5)
    assert short == name or "..." in short


@pytest.mark.parametrize(
    ("amounts", "unit", "shown"),
    [
        ([16 * GIB], "GiB", "16.00"),
        ([GIB // 100 + 1], "GiB", "0.01"),
        ([MIB], "MiB", "1.00"),
        ([1536], "KiB", "1.50"),
        ([7], "B", "7"),
        ([0], "GiB", "0.00"),
        ([], "GiB", "0.00"),
    ],
)
def test_a_column_has_one_unit_that_says_something(amounts: list[int], unit: str, shown: str) -> None:
    column = Unit(amounts)
    assert column.name == unit
    assert column.show(amounts[0] if amounts else 0) == shown


@given(st.integers(0, 10**18))
def test_two_decimals_are_rounded_half_up(amount: int) -> None:
    shown = Fraction(Unit([GIB * 100]).show(amount).replace(",", ""))
    assert abs(shown - Fraction(amount, GIB)) <= Fraction(1, 200)


def test_bytes_and_fractions_of_them() -> None:
    assert of_bytes(131_072) == "131,072 B"
    assert of_bytes(Fraction(4096, 3)) == "1,365.33 B"


@given(st.integers(0, 10**15))
def test_an_exact_size_is_read_back(amount: int) -> None:
    assert parse_bytes(exact_size(amount)) == amount


def test_one_and_many() -> None:
    assert (count(1, "request"), count(2000, "request")) == ("1 request", "2,000 requests")


def test_settings_that_say_nothing_are_left_out() -> None:
    settings = {
        "dtype": "bfloat16",
        "tensor_parallel_size": 1,
        "block_size": None,
        "async": True,
        "layers": (1, 2),
    }
    assert settings_words(settings) == "dtype bfloat16, async on, layers 1+2"


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([], ""),
        ([0], "0"),
        (range(32), "0-31"),
        ([0, 1, 2, 5, 6], "0-2, 5-6"),
        (range(5, 60, 6), "5, 11, 17 … 59 (every 6th)"),
        (range(0, 20, 2), "0, 2, 4 … 18 (every other)"),
        ([0, 2, 4, 7, 9, 11, 14, 16], "0, 2, 4, 7, 9, 11 … 16"),
    ],
)
def test_positions(places: list[int], text: str) -> None:
    assert positions(places) == text
