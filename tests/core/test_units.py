"""Sizes and token counts: what is accepted, what is refused, and that nothing is ever a float."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.units import GB, GIB, MIB, ceil_div, gib, human_bytes, parse_bytes, parse_tokens, round_up

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80GiB", 80 * GIB),
        ("80 gib", 80 * GIB),
        ("80GB", 80 * GB),
        ("1.5GiB", 3 * GIB // 2),
        ("0.1GB", GB // 10),
        ("512MiB", 512 * MIB),
        ("17b", 17),
        ("68719476736", 64 * GIB),
        (123, 123),
        (0, 0),
    ],
)
def test_sizes(text: int | str, expected: int) -> None:
    assert parse_bytes(text) == expected
    assert type(parse_bytes(text)) is int


@pytest.mark.parametrize(
    "text",
    ["80", "1048575", "80G", "80g", "80 K", "GiB", "", "-5GiB", "1e9", "80GiBs", "1,5GiB", "٣GiB", -1, True],
)
def test_sizes_that_could_mean_two_things_or_nothing_are_refused(text: int | str) -> None:
    with pytest.raises(KvplanError) as caught:
        parse_bytes(text)
    assert caught.value.code == "bad-size"
    assert caught.value.help
    assert caught.value.exit_code == 2


def test_a_bare_g_is_explained_both_ways() -> None:
    with pytest.raises(KvplanError) as caught:
        parse_bytes("80G")
    assert "80GiB" in str(caught.value.help) + caught.value.message
    assert "80GB" in str(caught.value.help) + caught.value.message


@given(st.integers(0, 2**70))
def test_integer_bytes_pass_through(amount: int) -> None:
    assert parse_bytes(amount) == amount
    assert parse_bytes(f"{amount}B") == amount


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_ceil_division_and_rounding(amount: int, step: int) -> None:
    assert (ceil_div(amount, step) - 1) * step < amount <= ceil_div(amount, step) * step or amount == 0
    assert round_up(amount, step) % step == 0
    assert 0 <= round_up(amount, step) - amount < step


@pytest.mark.parametrize(
    ("text", "tokens"), [("4k", 4096), ("128K", 131072), ("1M", 1048576), ("4,096", 4096), (7, 7)]
)
def test_token_counts(text: int | str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", "k", "4.5k", "-1", "1e3", -1, 10**13, "999999999999999M", True])
def test_bad_token_counts(text: int | str) -> None:
    with pytest.raises(KvplanError):
        parse_tokens(text)


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "0.00 GiB"),
        (8 * GIB, "8.00 GiB"),
        (GIB // 100, "0.01 GiB"),
        (1234 * GIB, "1,234.00 GiB"),
        (-GIB, "-1.00 GiB"),
    ],
)
def test_gib(amount: int, shown: str) -> None:
    assert gib(amount) == shown


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(GIB, "1.00 GiB"), (MIB, "1.00 MiB"), (1536, "1.50 KiB"), (100, "100 B"), (0, "0.00 GiB")],
)
def test_small_sizes_keep_a_meaningful_unit(amount: int, shown: str) -> None:
    assert human_bytes(amount) == shown


def test_only_units_converts() -> None:
    """1024, 2**30 and 1e9 as conversion factors stand in units.py alone."""
    factor = re.compile(r"\b(?:1024\s*\*|2\s*\*\*\s*[1-4]0\b|1e9\b|1000\s*\*\*)|<<\s*[1-4]0\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "kvplan").rglob("*.py"))
        if path.name != "units.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if factor.search(line.split("#")[0]) and '"""' not in line
    ]
    assert found == []
