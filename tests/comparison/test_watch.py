"""Thresholds of a watched server."""

from __future__ import annotations

from fractions import Fraction

from kvplan.comparison.watch import Watcher
from kvplan.engines.observed.page import LiveSample


def test_the_first_sample_counts_from_the_start() -> None:
    moment = Watcher().take(LiveSample("vllm", preemptions=7, queries=100, hits=40, hit_rate=Fraction(2, 5)))
    assert moment.preempted == 0
    assert moment.hit_rate == Fraction(2, 5)
    assert moment.flags == ("prefix cache hits below 50 %",)


def test_thresholds_are_not_flagged_themselves() -> None:
    at = LiveSample("vllm", usage=Fraction(9, 10), hit_rate=Fraction(1, 2), preemptions=0)
    assert Watcher().take(at).flags == ()
    past = LiveSample("sglang", usage=Fraction(91, 100), swa_usage=Fraction(95, 100), mamba_usage=Fraction(1))
    assert Watcher().take(past).flags == (
        "cache above 90 %",
        "window cache above 90 %",
        "state cache above 90 %",
    )


def test_rates_are_of_the_time_between() -> None:
    watcher = Watcher()
    watcher.take(LiveSample("vllm", preemptions=1, queries=1000, hits=1000))
    moment = watcher.take(LiveSample("vllm", preemptions=4, queries=2000, hits=1100))
    assert moment.hit_rate == Fraction(1, 10)
    assert moment.preempted == 3
    assert moment.flags == ("prefix cache hits below 50 %", "preemptions rise")


def test_a_restart_is_no_negative_rate() -> None:
    watcher = Watcher()
    watcher.take(LiveSample("vllm", preemptions=9, queries=1000, hits=900))
    moment = watcher.take(LiveSample("vllm", preemptions=0, queries=10, hits=0))
    assert moment.hit_rate is None
    assert moment.preempted is None
    assert moment.flags == ()


def test_a_server_that_counts_nothing() -> None:
    watcher = Watcher()
    dump = watcher.take(LiveSample("sglang")).model_dump(3)
    assert dump["cache_usage"] is None
    assert dump["flags"] == []
    assert dump["seconds"] == 3
