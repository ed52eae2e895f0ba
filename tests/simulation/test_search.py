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
from kvplan.simulation.search import _least


@given(st.integers(1, 300), st.integers(0, 300))
def test_the_least_is_that_of_a_full_scan(least: int, above: int) -> None:
    asked: list[int] = []

    def keeps(number: int) -> bool:
        asked.append(number)
        return number >= least

    assert _least(keeps, least + above) == least
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
