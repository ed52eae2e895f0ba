"""A load of which so many requests are always under way."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.fleet.closed import ClosedDealt
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Target
from kvplan.simulation.shown import shown as shown_as
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.settings import Engine
from tests.simulation.outcomes import simulated

CLOCK = StepTime(1_000_000, 0, 0)
LOAD = Load(tuple(Arrival(0, 32, 10) for _ in range(12)))


def test_each_that_ends_brings_the_next() -> None:
    """Four at once, ten steps each: three rounds of ten steps."""
    run = ClosedDealt(LOAD, 1, 4).run(Engine(100), CLOCK, Target())
    assert run.end_ns == 30 * 10**6
    assert tuple(run.ttft) == (10**6,) * 12
    assert tuple(run.latency) == (10 * 10**6,) * 12


def test_pools_share_the_concurrency() -> None:
    run = ClosedDealt(LOAD, 2, 3).run(Engine(100), CLOCK, Target())
    assert run.end_ns == 60 * 10**6  # one of them has one at a time, six requests of ten steps
    assert len(run.latency) == 12


def test_refused_requests_bring_theirs_too() -> None:
    rows = [Arrival(0, 5000 if place % 2 else 32, 10) for place in range(12)]
    run = ClosedDealt(Load(tuple(rows)), 1, 2).run(Engine(100, length=1000), CLOCK, Target())
    assert run.refused == 6
    assert len(run.latency) == 6
    assert run.end_ns == 30 * 10**6


ASKED: dict[str, Any] = {
    "trace": LOAD, "gpu": "h100", "max_model_len": 4096, "step_time": "6ms", "search": False, "helps": False,
}  # fmt: skip


def test_the_answer_says_what_it_comes_to() -> None:
    found = simulated("llama-3.1-8b", concurrency=4, **ASKED)
    assert found.concurrency == 4
    assert found.replicas == 1
    assert shown_as(found).model_dump()["concurrency"] == 4
    assert found.rate == pytest.approx(12 / (found.likely.end_ns / 1e9))


@pytest.mark.parametrize(
    "asked", [{"concurrency": 0}, {"concurrency": 4, "rate": 2}, {"concurrency": 1, "replicas": 2}]
)
def test_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(KvplanError) as caught:
        simulated("llama-3.1-8b", **ASKED, **asked)
    assert caught.value.code == "bad-usage"
    assert caught.value.help
