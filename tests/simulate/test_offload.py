"""Tiers outside the GPU against vLLM's own offloading connector, and their laws."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import KvplanError
from kvplan.simulate import Arrival, Engine, Group, StepTime, Trace, simulate
from kvplan.simulate.offload import Offload, Tier
from kvplan.simulate.offload.policies import Arc, Lru, Met, SharedLru
from scripts.check_scheduler import difference
from scripts.scheduler_traces import rows_of

RECORD = Path(__file__).with_name("vllm_offload.json.gz")
SCENARIOS: dict[str, Any] = json.loads(gzip.decompress(RECORD.read_bytes()))["scenarios"]
CLOCK = StepTime(1_000_000, 1000, 0)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_recorded_by_vllms_connector(name: str) -> None:
    assert difference(SCENARIOS[name], Path()) is None
    assert difference(SCENARIOS[name], Path(), jump=False) is None


def test_what_is_recorded() -> None:
    engines = [one["engine"] for one in SCENARIOS.values()]
    tiers = [engine["offload"] for engine in engines]
    assert {engine["async_scheduling"] for engine in engines} == {False, True}
    assert {one["policy"] for one in tiers} == {"lru", "arc"}
    assert {one["answers"] for one in tiers} == {False, True}
    assert {len(one["tiers"]) for one in tiers} == {1, 2, 3}
    assert {engine.get("release", "0.32") for engine in engines} == {"0.32", "0.33.0"}
    assert sum(sum(one["requests"]["preemptions"]) for one in SCENARIOS.values()) > 100


@pytest.mark.vllm
@pytest.mark.parametrize("seed", range(200, 210))
def test_live(seed: int) -> None:
    pytest.importorskip("vllm")
    from scripts.record_vllm_offload import answer, offloaded

    recorded = answer(offloaded(seed), Path())
    if "error" in recorded or recorded["reused"]:
        pytest.skip(recorded.get("error", "blocks of an ended request are taken while they are stored"))
    assert difference(recorded, Path()) is None


def _turns(pool: int, offload: Offload | None) -> tuple[Any, Any]:
    """Two prompts of 20 blocks, one after another, three times: a pool of 21 blocks has room for one."""
    rows = [Arrival(at * 10**9, 320, 8, list(range(100 * (at % 2), 100 * (at % 2) + 20))) for at in range(6)]
    engine = Engine(pool, (Group(),), length=400, offload=offload)
    answer = simulate(Trace(rows, 16), engine, CLOCK)
    return answer, answer.offloaded


def test_what_the_gpu_forgets_is_loaded() -> None:
    plain, _ = _turns(21, None)
    assert sum(plain.columns["cached_tokens"]) == 0
    tier = Tier("cpu", 100, 1000, 1000, 0)
    answer, counts = _turns(21, Offload(16, (tier,)))
    assert counts.loads == 4
    # all of a prompt is loaded; its last token is computed again
    assert sum(counts.loaded) + sum(answer.columns["cached_tokens"]) == 4 * 320
    assert counts.stored_blocks == [40]  # once each
    assert answer.end_ns < plain.end_ns + 10**7


def test_a_tier_that_is_too_small_evicts_and_one_behind_it_has_all() -> None:
    small = Offload(16, (Tier("cpu", 20, 0, 0, 0),))
    _, counts = _turns(21, small)
    assert sum(counts.loaded) == 0
    both = Offload(16, (Tier("cpu", 20, 0, 0, 0), Tier("nvme", 1000, 0, 0, 0)))
    _, counts = _turns(21, both)
    assert counts.loaded[1] > 0
    assert counts.stored_blocks[1] == 40


def test_a_load_that_outlasts_computing_is_left_out() -> None:
    slow = Tier("cpu", 100, 0, 10**8, 0)
    _, always = _turns(21, Offload(16, (slow,)))
    answer, cheaper = _turns(21, Offload(16, (slow,), compute_ns=1000))
    assert always.loads == 4
    assert cheaper.loads == 0
    assert cheaper.left_out == 4
    assert sum(answer.columns["cached_tokens"]) == 0


def test_a_step_that_waits_for_its_loads_lasts_longer() -> None:
    tier = Tier("cpu", 100, 0, 1_000_000, 0)
    between, _ = _turns(21, Offload(16, (tier,)))
    within, counts = _turns(21, Offload(16, (tier,), within=True, spared=1))
    assert counts.loads == 4
    assert within.busy_ns > between.busy_ns
    assert sum(counts.loaded) == 4 * 304  # never a prompt's last token


@pytest.mark.parametrize("seed", range(12))
def test_jumps_equal_single_steps(seed: int) -> None:
    from scripts.record_vllm_offload import offloaded

    said = offloaded(seed + 300)
    arrivals = [
        Arrival(row["at_ns"], row["input"], row["output"], row["ids"])
        for row in rows_of(Path(), said["trace"])
    ]
    trace = Trace(arrivals, said["trace"]["block_tokens"])
    from scripts.check_scheduler import engine_of

    engine = engine_of(said["engine"])
    one = simulate(trace, engine, CLOCK, rows=True)
    other = simulate(trace, engine, CLOCK, rows=True, jump=False)
    assert one.digest() == other.digest()
    assert one.columns == other.columns
    plain = simulate(trace, replace(engine, offload=None), CLOCK)
    assert one.columns["refused"] == plain.columns["refused"]
    assert all((a < 0) == (b < 0) for a, b in zip(one.columns["finished_ns"], plain.columns["finished_ns"]))


def test_orders_of_eviction() -> None:
    lru, shared, arc = Lru(4), SharedLru(4), Arc(4)
    for policy in (lru, shared, arc):
        met = Met()
        met.places = {1: 0, 2: 1, 3: 2}
        for key, place in met.places.items():
            policy.insert(key, place, met)
            policy.set(key, 0)
    assert lru.evict(1, set()) == [1]  # as they came
    assert shared.evict(1, set()) == [3]  # the last of the prompt first, also while it runs
    assert arc.evict(1, {1}) == [2]
    assert lru.evict(3, set()) is None
    lru.finished([3, 2], set(), set())
    assert lru.evict(2, set()) == [3, 2]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"groups": (Group(), Group("window", 16, 64))}, "not-simulated"),
        ({"caching": False}, "not-simulated"),
        ({"policy": "priority"}, "not-simulated"),
        ({"offload": Offload(24, (Tier("cpu", 9),))}, "bad-offload"),
        ({"offload": Offload(16, ())}, "bad-offload"),
        ({"offload": Offload(16, (Tier("cpu", 0),))}, "bad-offload"),
        ({"offload": Offload(16, (Tier("cpu", 9),), policy="lfu")}, "bad-offload"),
    ],
)
def test_refused(change: dict[str, Any], code: str) -> None:
    engine = replace(Engine(100, offload=Offload(16, (Tier("cpu", 9),))), **change)
    with pytest.raises(KvplanError) as caught:
        simulate(Trace([Arrival(0, 16, 1)], 16), engine, CLOCK)
    assert caught.value.code == code
    assert caught.value.help
