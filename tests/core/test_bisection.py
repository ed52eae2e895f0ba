"""The last number that holds, and the first: which they are, and how few questions that takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.bisection import least_below, least_from, most_up_to


class Asked:
    """A condition that keeps what it was asked."""

    def __init__(self, holds: Callable[[int], bool]) -> None:
        self.holds, self.asked = holds, list[int]()

    def __call__(self, number: int) -> bool:
        self.asked.append(number)
        return self.holds(number)


@given(limit=st.integers(1, 10**6), last=st.integers(0, 10**6), likely=st.integers(0, 10**6))
def test_the_last_that_holds(limit: int, last: int, likely: int) -> None:
    asked = Asked(lambda number: number <= last)
    assert most_up_to(limit, asked, likely) == min(limit, last)
    assert all(0 < number <= limit for number in asked.asked)
    assert len(asked.asked) == len(set(asked.asked))
    assert len(asked.asked) <= 2 * 21


@given(low=st.integers(0, 10**6), last=st.integers(0, 10**6), more=st.integers(0, 10**6))
def test_the_first_that_holds(low: int, last: int, more: int) -> None:
    likely = low + more
    asked = Asked(lambda number: number >= last)
    wanted = max(low, last)
    found = least_from(asked, low, likely)
    assert found == (wanted if wanted <= max(likely, 2 * likely) else None)
    assert all(low <= number <= 2 * likely for number in asked.asked)
    assert len(asked.asked) <= 2 * 21


@pytest.mark.parametrize(
    ("last", "asked"),
    [
        (10, [10, 11]),  # the estimate is right: two questions
        (11, [10, 11, 13, 12]),
        (12, [10, 11, 13, 12]),
        (17, [10, 11, 13, 17, 25, 21, 19, 18]),  # steps of 1, 2, 4, 8, then halves
        (9, [10, 5, 7, 8, 9]),  # too much: halves of what is below
        (0, [10, 5, 2, 1]),
        (40, [10, 11, 13, 17, 25, 40]),  # the limit holds
    ],
)
def test_questions_from_the_estimate_upwards(last: int, asked: list[int]) -> None:
    holds = Asked(lambda number: number <= last)
    assert most_up_to(40, holds, 10) == last
    assert holds.asked == asked


def test_no_estimate_begins_with_one() -> None:
    holds = Asked(lambda number: number <= 3)
    assert most_up_to(8, holds, 0) == 3
    assert holds.asked == [1, 2, 4, 3]


@pytest.mark.parametrize(
    ("first", "asked"),
    [
        (10, [10, 5, 8, 9]),
        (11, [10, 11]),
        (12, [10, 11, 13, 12]),
        (17, [10, 11, 13, 17, 15, 16]),
        (18, [10, 11, 13, 17, 20, 19, 18]),
        (20, [10, 11, 13, 17, 20, 19]),
        (1, [10, 5, 2, 1]),
    ],
)
def test_questions_from_the_estimate_downwards(first: int, asked: list[int]) -> None:
    holds = Asked(lambda number: number >= first)
    assert least_from(holds, 0, 10) == first
    assert holds.asked[: len(asked)] == asked


def test_twice_the_estimate_is_the_last_that_is_tried() -> None:
    holds = Asked(lambda number: number > 20)
    assert least_from(holds, 0, 10) is None
    assert holds.asked == [10, 11, 13, 17, 20]


@given(last=st.integers(0, 10**6), more=st.integers(0, 10**6))
def test_the_first_below_an_amount_that_is_enough(last: int, more: int) -> None:
    asked = Asked(lambda number: number >= last)
    assert least_below(asked, last + more) == last
    assert all(0 <= number < max(1, last + more) for number in asked.asked)
    assert len(asked.asked) <= 2 * 21


@pytest.mark.parametrize(
    ("least", "asked"),
    [
        (20, [19]),  # the amount is the least: one question
        (19, [19, 17, 18]),
        (5, [19, 17, 13, 5, 0, 2, 3, 4]),  # steps of 1, 2, 4, 8, then halves
        (0, [19, 17, 13, 5, 0]),
    ],
)
def test_questions_from_what_is_enough_downwards(least: int, asked: list[int]) -> None:
    holds = Asked(lambda number: number >= least)
    assert least_below(holds, 20) == least
    assert holds.asked == asked
