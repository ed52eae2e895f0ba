"""How many replicas a load needs: the least that keep it, also where a trace is too short for a rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.plans.arrival import Arrival
from kvplan.report.layout import plain
from kvplan.report.simulate import TOO_SHORT, simulation_screen
from kvplan.report.simulate_html import rules_of, simulation_page
from kvplan.simulation.load.load import Load
from kvplan.simulation.results import SimulationResult
from kvplan.simulation.search import _grown, least_of
from tests.laws.sampling import sampled


@given(st.integers(1, 300), st.integers(0, 300))
def test_the_least_is_that_of_a_full_scan(least: int, above: int) -> None:
    asked: list[int] = []

    def keeps(number: int) -> bool:
        asked.append(number)
        return number >= least

    assert least_of(keeps, least + above) == least
    assert len(asked) <= 2 * (least + above).bit_length() + 1
    assert all(number > 0 for number in asked)


@pytest.mark.parametrize("times", [(0,), (0, 10**7), (0, 10**6, 2 * 10**6)])
def test_a_few_requests_at_once_need_one_replica(times: tuple[int, ...]) -> None:
    load = Load(tuple(Arrival(at, 500, 50) for at in times), 16, "few", "azure")
    found = kvplan.simulate("llama-3.1-8b", gpu="h100-sxm-80gb", trace=load, replicas="auto", helps=False)
    assert isinstance(found, SimulationResult)
    assert found.needed is not None
    assert (found.needed.likely, found.needed.safe) == (1, 1)
    text = plain(simulation_screen(found, where="1 × h100", rules=rules_of(found)))
    assert "0.00 (" not in text
    if len(times) == 1:
        assert TOO_SHORT in text
        assert TOO_SHORT in simulation_page(found, where="1 × h100")


@given(least=st.integers(1, 1200), first=st.integers(1, 1024), most=st.integers(1, 1024))
def test_the_search_ends_at_the_least_or_at_the_most(least: int, first: int, most: int) -> None:
    found, tried = _grown(lambda number: number >= least, first, most)
    assert found == (least if least <= most else None)
    assert tried <= most
    assert found is not None or tried == most


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Requests one by one, or so many at each step; not spread, as a program may hand them over."""
    together = draw(st.sampled_from((1, 3, 10)))
    step = draw(st.integers(1, 3000)) * 10**6
    prompt, answer = draw(st.sampled_from(((400, 20), (4096, 100), (9000, 10))))
    return Load(tuple(Arrival(i // together * step, prompt, answer) for i in range(60)), 16, "drawn", "azure")


@pytest.mark.laws
@sampled(4, 60)
@given(load=loads(), ttft=st.sampled_from((0.1, 0.5, 2.0)), goodput=st.sampled_from((0.8, 0.9, 0.99)))
def test_auto_is_the_scan_over_replicas(load: Load, ttft: float, goodput: float) -> None:
    """By the likely times: the least number of replicas of which a run keeps the target, or none of all."""

    def asked(replicas: int | str) -> SimulationResult:
        found = kvplan.simulate(
            "llama-3.1-8b", gpu="h100-sxm-80gb", trace=load, replicas=replicas, ttft=ttft, tpot=0.05,
            goodput=goodput, helps=False,
        )  # fmt: skip
        assert isinstance(found, SimulationResult)
        return found

    needed = asked("auto").needed
    assert needed is not None
    if needed.likely is None:
        assert not asked(len(load.arrivals)).keeps
        return
    assert asked(needed.likely).keeps
    assert needed.likely == 1 or not asked(needed.likely - 1).keeps


def test_requests_of_one_step_are_spread_over_it() -> None:
    times = [0, 0, 0, 3, 3, 6, 12, 12]
    load = Load(tuple(Arrival(at * 10**9, 10, 1) for at in times), 16, "steps", "mooncake").over_its_steps()
    assert [one.at_ns / 10**9 for one in load.arrivals] == [0, 1, 2, 3, 4.5, 6, 12, 13.5]
    assert "whole steps of 3 s" in load.notes[0]


@pytest.mark.parametrize("times", [(0, 0, 0), (0, 1, 2, 3), (0, 0, 1, 2, 3)])
def test_times_of_their_own_and_one_burst_stay(times: tuple[int, ...]) -> None:
    load = Load(tuple(Arrival(at, 10, 1) for at in times), 16, "own", "azure")
    assert load.over_its_steps() is load
