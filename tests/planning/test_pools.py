"""Engines for prompts beside engines for answers: by hand, by law, and by the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.errors import KvplanError
from kvplan.planning.pools import _least, decode_requests
from kvplan.plans.workload import Shape, Workload
from kvplan.report.layout import plain
from kvplan.report.plan_file import plan_text
from kvplan.report.plan_parts import plan_sentence
from kvplan.simulation.load import drawn

LOAD = Workload((Shape(4096, 300),))
TARGETS: dict[str, Any] = {"ttft": "2", "tpot": "0.05"}


@pytest.fixture(autouse=True, scope="module")
def short_loads() -> Iterator[None]:
    """A fifth of the requests that are drawn otherwise, for every command alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawn, "LEAST", drawn.LEAST // 5)
        patch.setattr(drawn, "EACH", drawn.EACH // 5)
        yield


@cache
def ask(arrival: int = 3, **options: Any) -> Any:
    given = {"gpu": "h100", "workload": LOAD, "arrival": arrival, "disaggregated": True, **TARGETS, **options}
    return kvplan.plan("llama-3.1-8b", **given)


def test_answers_under_way_are_littles_law() -> None:
    assert decode_requests(Fraction(10), Fraction(300), Fraction(1, 20)) == 150
    assert decode_requests(Fraction(1, 10), Fraction(1), Fraction(1, 100)) == 1


def test_one_engine_by_hand() -> None:
    """λ 1/s, t 0.5 s: ρ 0.5, W = 1 · 0.25 / (2 · 0.5) = 0.25 s; with the travel 0.8 s."""
    engines, ttft, wait = _least(1.0, [(1, 0.5)], 0.5, 0.05, 0.81)
    assert (engines, round(wait, 9), round(ttft, 9)) == (1, 0.25, 0.8)
    assert _least(1.0, [(1, 0.5)], 0.5, 0.05, 0.79)[0] == 2


@given(rate=st.floats(0.01, 50), time=st.floats(0.001, 2), more=st.floats(0.0, 5), room=st.floats(0.05, 5))
def test_more_time_never_takes_more_engines(rate: float, time: float, more: float, room: float) -> None:
    tight = _least(rate, [(1, time)], time, 0.0, time + room)
    loose = _least(rate, [(1, time)], time, 0.0, time + room + more)
    assert loose[0] <= tight[0]
    assert rate * time < tight[0]
    assert tight[1] <= time + room


def test_both_kinds_of_engines() -> None:
    result = ask()
    pools = result.pools
    assert pools.decode_requests >= 45
    assert pools.decode_replicas >= 1
    assert 1 <= pools.prefill_replicas <= (pools.slow_prefill_replicas or pools.prefill_replicas)
    assert pools.gpus == (pools.prefill_replicas + pools.decode_replicas) * pools.gpus_per_replica
    assert pools.ttft_seconds <= 2
    assert pools.ttft_high_seconds <= 2
    assert (result.plan.fleet.prefill_replicas, result.plan.fleet.decode_replicas) == (
        pools.prefill_replicas,
        pools.decode_replicas,
    )
    assert result.plan.gpus == pools.gpus
    assert result.model_dump()["pools"]["prefill_replicas"] == pools.prefill_replicas


def test_what_travels_is_what_the_prompt_holds() -> None:
    result = ask(quality="lossless")
    held = kvplan.size(result.plan, tokens=4096).total.kv_bytes_per_request
    assert result.pools.transfer_bytes == held
    assert result.pools.transfer_bytes_per_second == 3 * held


def test_a_deadline_that_no_number_of_engines_meets() -> None:
    result = ask(ttft="0.001")
    assert (result.ok, result.gpus, result.options) == (False, 0, ())
    assert any("no number of engines" in text for text in result.warnings)
    assert "No: none of the plans tried keeps the times" in " ".join(plain(plan_sentence(result)).split())


def test_more_gpus_than_there_are() -> None:
    """One engine for prompts and one for answers are two GPUs at least."""
    assert ask(1, max_gpus=2).plan.gpus == 2
    result = ask(1, max_gpus=1)
    assert (result.ok, result.gpus) == (False, 0)
    assert any("take 2 GPUs, and 1 may be used" in text for text in result.warnings)


@pytest.mark.parametrize("options", [{"requests": 5}, {"ttft": None}, {"tpot": None}, {"arrival": None}])
def test_arrivals_and_targets_are_needed(options: dict[str, Any]) -> None:
    with pytest.raises(KvplanError, match="the rate of arrivals"):
        ask(**options)


def test_without_it_nothing_is_said() -> None:
    assert "pools" not in kvplan.plan("llama-3.1-8b", gpu="h100", tokens=4096).model_dump()


def test_engines_for_prompts_hold_no_request_to_its_end(tmp_path: Any) -> None:
    """`check` counts what the engines for answers hold."""
    result = ask()
    path = tmp_path / "plan.yaml"
    path.write_text(plan_text(result.plan), encoding="utf-8")
    (checked,) = kvplan.check(path).plans
    assert checked.passed
    assert checked.fact("max_requests") == result.rows[0].requests
    one = kvplan.size(kvplan.load_plans(path)[0], tokens=4396)
    assert checked.fact("max_requests") % result.pools.decode_replicas == 0
    assert one.pool is not None


def test_ranks_of_an_engine_read_prompts_side_by_side() -> None:
    """Four data-parallel ranks wait for prompts like four engines."""
    apart = _least(8.0, [(1, 0.4)], 0.4, 0.05, 1.0)
    together = _least(8.0, [(1, 0.4)], 0.4, 0.05, 1.0, ranks=4)
    assert together[0] == -(-apart[0] // 4)


def test_one_number_of_gpus_stands_everywhere(tmp_path: Any) -> None:
    result = ask()
    text = " ".join(plain(plan_sentence(result)).split())
    total, engines = result.pools.gpus, result.pools.prefill_replicas + result.pools.decode_replicas
    assert f": {total} × h100" in text
    assert [(row.gpus, row.replicas) for row in result.rows] == [(total, engines)]
    held = result.rows[0].requests, result.rows[0].safe_requests, result.rows[0].memory_requests or 0
    assert all(each % result.pools.decode_replicas == 0 for each in held)
    assert held[2] == 0 or held[2] >= held[0]
    assert result.to_rows()[0]["gpus"] == result.model_dump()["best"]["gpus"] == total
    assert f"-{total}x-" in result.plan.name
    assert result.plan.gpus == total
    path = tmp_path / "plan.yaml"
    path.write_text(plan_text(result.plan), encoding="utf-8")
    assert f"gpus: {total}\n" in path.read_text(encoding="utf-8")
    (checked,) = kvplan.check(path).plans
    assert checked.passed


def test_it_is_the_simulated_figures_that_are_said() -> None:
    """Of both ends, with the safe number of GPUs; rows for other kinds, which have no engines for prompts,
    are none."""
    result = ask()
    found = result.simulated
    assert found.goodput[1] >= found.goodput_at_least
    assert found.ttft[1] <= 2
    assert found.tpot[1] <= 0.05
    assert found.safe_gpus is None or found.safe_gpus >= result.gpus
    assert result.rows == result.options[:1]
    with pytest.raises(KvplanError, match="--pareto"):
        ask(pareto=True)
