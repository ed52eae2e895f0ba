"""Tiers outside the GPU against vLLM's own offloading connector, and their laws."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.offload import Offload, Tier
from kvplan.simulation.vllm.offload.policies import WRITING, Arc, Lru, Met, SharedLru
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine, Group
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
    from scripts.check_scheduler import vllm_engine

    engine = vllm_engine(said["engine"])
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
        policy.insert([1, 2, 3], met)
        policy.set([1, 2, 3], 0)
    assert lru.evict(1, set()) == [1]  # as they came
    assert shared.evict(1, set()) == [3]  # the last of the prompt first, also while it runs
    assert arc.evict(1, {1}) == [2]
    assert lru.evict(3, set()) is None
    lru.finished([3, 2], Met())
    assert lru.evict(2, set()) == [3, 2]


class _Plain:
    """`SharedLru` as vLLM says it: every chunk has (rank, -place), the smallest goes first."""

    def __init__(self) -> None:
        self.chunks: dict[int, int] = {}
        self.ranks: dict[int, tuple[int, int]] = {}
        self.next = 0

    def own(self, met: Met) -> int:
        if not met.rank:
            self.next += 1
            met.rank = self.next
        return met.rank

    def insert(self, keys: list[int], met: Met) -> None:
        for key in keys:
            self.chunks[key] = WRITING
            self.ranks[key] = self.own(met), -met.places[key]

    def met(self, keys: list[int], met: Met) -> None:
        own = self.own(met)
        for key in keys:
            if key in self.chunks:
                self.ranks[key] = max(self.ranks[key], (own, -met.places[key]))

    def finished(self, keys: list[int]) -> None:
        for key in keys:
            if key in self.chunks:
                self.next += 1
                self.ranks[key] = self.next, 0

    def evict(self, count: int, kept: set[int]) -> list[int] | None:
        idle = [key for key, busy in self.chunks.items() if not busy and key not in kept]
        if len(idle) < count:
            return None
        found = sorted(idle, key=self.ranks.__getitem__)[:count]
        for key in found:
            del self.chunks[key], self.ranks[key]
        return found


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9))
def test_the_shared_order_is_that_of_ranks(seed: int) -> None:
    """Requests that come, meet what others stored, store, are evicted while they run, and end."""
    chance = random.Random(seed)
    fast, plain = SharedLru(64), _Plain()
    running: list[tuple[Met, Met, int]] = []
    for turn in range(60):
        what = chance.randrange(5)
        if what == 0 or not running:
            running.append((Met(), Met(), chance.choice([0, 0, 100 * turn])))
        one, other, base = chance.choice(running)
        if what in (1, 2):
            start = chance.randrange(12)
            places = range(start, start + chance.randrange(1, 6))
            keys = [base + place for place in places]
            fresh = [key for key in keys if key not in one.places]
            for met in (one, other):
                met.places.update({key: key - base for key in fresh})
            if fresh:
                fast.met(fresh, one)
                plain.met(fresh, other)
            wanted = [key for key in keys if fast.get(key) is None]
            if wanted:
                fast.insert(wanted, one)
                plain.insert(wanted, other)
        elif what == 3:
            for key in [key for key, busy in plain.chunks.items() if busy or chance.random() < 0.1]:
                busy = chance.choice([0, 0, 1])
                fast.set([key], busy)
                plain.chunks[key] = busy
        elif what == 4 and chance.random() < 0.4:
            running.remove((one, other, base))
            keys = sorted(one.places, key=one.places.__getitem__, reverse=True)
            fast.finished(keys, one)
            plain.finished(keys)
        count, kept = chance.randrange(1, 9), set(chance.sample(range(16), 3))
        if chance.random() < 0.5:
            assert fast.evict(count, kept) == plain.evict(count, kept)
        assert fast.chunks == plain.chunks


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
