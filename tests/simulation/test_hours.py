"""The least replicas of each hour of a trace: enough for the hour served alone, and one less is too few."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.hours import HOUR, hours_of
from kvplan.simulation.load.load import Load
from kvplan.units import SECOND
from tests.simulation.outcomes import simulated as simulated_model

ASKED: dict[str, Any] = {
    "gpu": "l40s", "ttft": 1, "step_time": "20ms+100us*tokens", "search": False, "helps": False,
}  # fmt: skip


def day(*rates: float, seed: int = 1) -> Load:
    """Poisson arrivals, at another rate in each hour; none where it is 0."""
    chance, rows = random.Random(seed), []
    for hour, rate in enumerate(rates):
        seconds = hour * 3600.0
        while rate and (seconds := seconds + chance.expovariate(rate)) < (hour + 1) * 3600:
            prompt, answer = chance.randint(500, 4000), chance.randint(20, 200)
            rows.append(Arrival(int(seconds * SECOND), prompt, answer))
    return Load(tuple(rows), name="day")


LOAD = day(0.2, 1.5, 0, 0.02)


def simulated(load: Load, **more: Any) -> Any:
    return simulated_model("llama-3.1-8b", trace=load, **ASKED | more)


def test_the_replicas_of_every_hour_keep_its_target_alone_and_one_less_does_not() -> None:
    found = simulated(LOAD, replicas=2, hours=True).hours
    assert [one.hour for one in found] == [1, 2, 3, 4]
    assert sum(one.requests for one in found) == len(LOAD.arrivals)
    assert max(one.likely for one in found) > 1
    assert found[2].likely == found[2].safe == 0
    for one, part in zip(found, hours_of(LOAD), strict=True):
        if not one.requests:
            continue
        for pool, number in (("likely", one.likely), ("safe", one.safe)):
            alone = simulated(part, replicas=number, pool=pool)
            assert alone.likely.keeps(alone.target)
            if number > 1:
                assert not simulated(part, replicas=number - 1, pool=pool).keeps


def test_hours_are_the_trace_and_nothing_else() -> None:
    parts = list(hours_of(LOAD))
    rows = [(one.prompt, one.answer) for part in parts for one in part.arrivals]
    assert rows == [(one.prompt, one.answer) for one in LOAD.arrivals]
    assert all(0 <= one.at_ns < HOUR for part in parts for one in part.arrivals)
    assert simulated(LOAD, replicas=1).hours == ()


@pytest.mark.parametrize(
    ("load", "more"),
    [(LOAD.first(3), {}), (LOAD, {"concurrency": 4}), (LOAD, {"prefill_replicas": 1, "decode_replicas": 1})],
)  # fmt: skip
def test_what_has_no_hours_is_refused(load: Load, more: dict[str, Any]) -> None:
    with pytest.raises(KvplanError, match="hour"):
        simulated(load, hours=True, **more)
