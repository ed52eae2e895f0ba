"""Commas: thousands of one number, or values of a list."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.cli.lists import pieces_of
from kvplan.cli.options import BY_NAME, values_of
from kvplan.errors import KvplanError
from kvplan.units import parse_tokens


def tokens(text: str) -> list[int]:
    found: list[int] = values_of(BY_NAME["tokens"], text, text)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32,768", [32768]),
        ("8,192", [8192]),
        ("131,072", [131072]),
        ("262,144", [262144]),
        ("1,048,576", [1048576]),
        ("8192,32768", [8192, 32768]),
        ("8k,32k", [8192, 32768]),
        ("512,1024", [512, 1024]),
        ("128, 256", [128, 256]),
        ("32, 768", [32, 768]),
        ("8k", [8192]),
        ("1_000", [1000]),
    ],
)
def test_tokens(text: str, expected: list[int]) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize("text", ["128,256", "100,200,300", "8,192,32,768", "8192,032"])
def test_what_could_be_both_is_refused_with_both_ways(text: str) -> None:
    with pytest.raises(KvplanError) as caught:
        tokens(text)
    assert caught.value.code == "ambiguous-list"
    assert caught.value.help


def test_requests() -> None:
    requests = BY_NAME["requests"]
    assert values_of(requests, "1,8,32", "") == [1, 8, 32]
    assert values_of(requests, "1,4,16,64,256", "") == [1, 4, 16, 64, 256]
    assert values_of(requests, "1,024", "") == [1024]
    assert values_of(requests, "128,256", "") == [128, 256], "nobody asks for 128,256 requests at once"
    with pytest.raises(KvplanError):
        values_of(requests, "1,200", "")


@given(st.integers(1000, 10**12))
def test_a_number_as_it_is_printed_is_read_back_or_refused(number: int) -> None:
    """What the program prints is never read as something else."""
    assert parse_tokens(f"{number:,}") == number
    with contextlib.suppress(KvplanError):
        assert tokens(f"{number:,}") == [number]
    assert tokens(str(number)) == [number], "what help suggests works"


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=6))
def test_a_list_with_blanks_is_always_that_list(values: list[int]) -> None:
    assert [int(piece) for piece in pieces_of(", ".join(map(str, values)), "tokens")] == values


@pytest.mark.parametrize("text", ["8192,32768", "32,76", "1,2345", "1,,000", ",100"])
def test_the_library_takes_no_list_for_a_number(text: str) -> None:
    with pytest.raises(KvplanError):
        parse_tokens(text)
