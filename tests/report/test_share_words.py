"""A share of requests in time with its interval, and what an interval that spans everything means."""

from __future__ import annotations

import pytest

from kvplan.report.words import in_time_words


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((0.9703, 0.982, 0.999), "98.2 % in time (97.0 … 99.9)"),
        ((0.3, 0.99, 1.0), "99.0 % in time (30.0 … 100.0)"),
        ((0.0, 1.0, 1.0), "likely 100.0 % in time (not safely: 0.0 % at worst)"),
        ((0.04, 0.991, 1.0), "likely 99.1 % in time (not safely: 4.0 % at worst)"),
    ],
)
def test_an_interval_that_says_nothing_is_said_in_words(
    shares: tuple[float, float, float], said: str
) -> None:
    assert in_time_words(*shares) == said
