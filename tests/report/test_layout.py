"""Lines, tables, numbers and positions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.report.explain_layers import positions
from kvplan.report.layout import (
    NARROWEST,
    WIDEST,
    Screen,
    Section,
    Span,
    columns,
    in_columns,
    joined,
    line,
    one_line,
    plain,
    shorten,
    table,
    to_ascii,
    within,
    wrapped,
)
from kvplan.report.notes import short_warnings, warning_section
from kvplan.report.words import (
    Unit,
    about,
    between,
    count,
    of_bytes,
    settings_words,
    two_digits,
)
from kvplan.units import GIB, MIB


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


def rows_of(number: int, mark: str = "row") -> Screen:
    return [line(f"{mark} {at}") for at in range(number)]


SECTIONS = st.lists(
    st.builds(
        lambda number, rank, shorter, close: Section(
            rows_of(number), rank, tuple(rows_of(min(one, number), "less") for one in shorter), close
        ),
        st.integers(0, 6),
        st.integers(0, 4),
        st.lists(st.integers(0, 3), max_size=2),
        st.booleans(),
    ),
    max_size=6,
)


@given(SECTIONS, st.integers(0, 30))
def test_a_screen_is_cut_to_so_many_lines_and_what_must_stay_stays(
    sections: list[Section], most: int
) -> None:
    screen = within(sections, most)
    kept = [row for section in sections if not section.rank for row in section.rows]
    least = len(joined([section for section in sections if not section.rank]))
    assert len(screen) <= max(most, least)
    assert sum(map(bool, screen)) >= len(kept)
    assert len(screen) <= len(joined(sections))
    if len(joined(sections)) <= most:
        assert screen == joined(sections)


def test_the_highest_rank_goes_first_and_shorter_forms_before_nothing() -> None:
    sections = [
        Section(rows_of(2, "must")),
        Section(rows_of(4, "table"), 1, (rows_of(2, "table"),)),
        Section(rows_of(3, "more"), 2),
    ]
    lengths = {most: plain(within(sections, most)) for most in (11, 10, 6, 4)}
    assert "more 2" in lengths[11]
    assert "more" not in lengths[10]
    assert "table 3" in lengths[10]
    assert "table 1" in lengths[6]
    assert "table 3" not in lengths[6]
    assert lengths[4] == "must 0\nmust 1\n"


@given(st.integers(-5, 500))
def test_a_screen_is_as_wide_as_the_terminal_within_bounds(number: int) -> None:
    with in_columns(number):
        assert columns() == max(NARROWEST, min(number, WIDEST))
        assert all(len(row[0].text) < columns() for row in wrapped("word " * 60))
    assert columns() == 80


@given(st.text(alphabet="abc /-:;(.", max_size=300), st.integers(60, 120))
def test_one_line_is_one_line(text: str, number: int) -> None:
    with in_columns(number):
        shown = plain([one_line(text, first="warning: ", style="warn")])
    assert len(shown.splitlines()) == 1
    assert len(shown) <= number or " " not in text.strip()


def test_one_line_keeps_a_whole_clause_and_drops_owners_first() -> None:
    text = "the card of RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic is unverified (typed from memory)"
    assert plain([one_line(text, first="warning: ")]) == (
        "  warning: the card of Llama-3.3-70B-Instruct-FP8-dynamic is unverified\n"
    )


def test_warnings_are_said_once_and_the_others_counted() -> None:
    shown = plain(short_warnings(("a", "b", "a", "c", "d"), 3)).splitlines()
    assert shown == ["  warning: a", "  warning: b", "  warning: c", "  1 more warning: -v"]
    assert plain(short_warnings(("a", "a"), 3)) == "  warning: a\n"


def test_a_warning_is_whole_where_there_is_room_and_counted_where_not() -> None:
    text = "an installation that has FlashInfer takes another backend, more than fits: --attention-backend"
    section = warning_section((text, "b"), 3, 9)
    above = [line(f"row {number}") for number in range(6)]
    for most in range(8, 20):
        shown = plain(within([Section(above), section], most))
        said = " ".join(shown.split())
        assert len(shown.splitlines()) <= max(most, 9)
        assert "--attention-backend" in said or said.endswith("2 warnings: -v")
        assert ("--attention-backend" in said) == (most >= 10)
        assert "row 5" in shown


def test_a_warning_that_must_be_said_is_said_without_room() -> None:
    section = warning_section(("what no figure has", "b", "c"), 3, 9, least=1)
    shown = plain(within([Section([line(f"row {number}") for number in range(9)]), section], 9))
    assert shown.splitlines()[-2:] == ["  warning: what no figure has", "  2 more warnings: -v"]


def test_a_table_gives_up_rows_before_other_parts_and_goes_after_them() -> None:
    rows = [[line(f"row {number}") for number in range(many)] for many in (4, 3, 2)]
    held = Section(rows[0], 2, tuple(rows[1:]), shrinks=7)
    other = Section([line("memory"), line("more")], 3)
    for most, has in ((7, (4, 1)), (6, (3, 1)), (5, (2, 1)), (4, (2, 0)), (1, (0, 0))):
        shown = plain(within([held, other], most))
        assert (shown.count("row"), shown.count("memory")) == has


@given(st.integers(1, 10**9))
def test_an_estimate_has_two_digits(number: int) -> None:
    shown = two_digits(number)
    assert len(str(shown).rstrip("0")) <= 2
    assert abs(shown - number) * 20 <= number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0236, "24 ms"), (0.254, "250 ms"), (1.726, "1.7 s"), (20.2, "20 s"), (163, "160 s")],
)
def test_times_are_about(seconds: float, text: str) -> None:
    assert about(seconds) == text


def test_an_interval_has_its_unit_once() -> None:
    assert between(0.049, 0.176) == "49 … 180 ms"
    assert between(0.363, 5.6) == "360 ms … 5.6 s"


@given(st.integers(257, 5000))
def test_a_word_of_any_length_fills_no_screen(letters: int) -> None:
    shown = plain([line("name ", "x" * letters, " fits")])
    assert len(shown) < 260
    assert shown.startswith("name xxx")
    assert shown.endswith("x fits\n")
    assert plain([line("x" * 256)]) == "x" * 256 + "\n"
