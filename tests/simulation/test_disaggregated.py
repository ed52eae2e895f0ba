"""Prompts on some replicas, answers on others."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.fleet.disaggregated import Disaggregated, Split
from kvplan.simulation.fleet.run import ROUTERS, Dealt
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Outcome, Target
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.offload import Offload, Tier
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine, Group
from scripts.scheduler_scenarios import scenario
from scripts.scheduler_traces import rows_of

CLOCK = StepTime(1_000_000, 10_000, 5)


def _load(rows: list[tuple[int, int, int]]) -> Load:
    return Load(tuple(Arrival(at, prompt, answer) for at, prompt, answer in rows))


def test_one_request_takes_prefill_transfer_and_decode() -> None:
    """By hand: the prompt's step, 20 blocks over the link, the last token again, then one a token."""
    split = Split(1, 1, block_ns=1000, latency_ns=500)
    run = Disaggregated(_load([(0, 320, 3)]), split, "round-robin").run(Engine(100), CLOCK, Target())
    prefill = 1_000_000 + 320 * 10_000 + 320 * 5
    transfer = 500 + 20 * 1000
    first = 1_000_000 + 10_000 + 320 * 5
    assert tuple(run.ttft) == (prefill + transfer + first,)
    assert run.transfers == 1
    assert run.transferred_blocks == 20
    assert run.transfer_ns == transfer
    steps = [1_010_000 + tokens * 5 for tokens in (321, 322)]
    assert tuple(run.latency) == (run.ttft[0] + sum(steps),)


def test_blocks_of_a_prompt_stay_until_they_are_read() -> None:
    """A slow link: the second prompt finds no room where the first's blocks still lie."""
    rows = [(0, 320, 2), (1, 320, 2)]
    fast = Disaggregated(_load(rows), Split(1, 1, 1), "round-robin").run(Engine(21), CLOCK, Target())
    slow = Disaggregated(_load(rows), Split(1, 1, 10**8), "round-robin").run(Engine(21), CLOCK, Target())
    assert fast.waits[-1] < 10**7
    assert slow.waits[-1] > 20 * 10**8


def test_what_the_decode_replica_has_is_not_sent_again() -> None:
    ids = list(range(20))
    rows = (Arrival(0, 320, 4, ids), Arrival(10**10, 320, 4, ids))
    run = Disaggregated(Load(rows, 16), Split(1, 1, 10), "round-robin").run(Engine(100), CLOCK, Target())
    assert run.transferred_blocks == 20 + 1  # a prompt's last block is computed again
    assert run.hits == 304


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3))
def test_everything_is_served_once(seed: int, prefill: int, decode: int) -> None:
    """Whatever comes: every request that one engine takes ends, none before its prompt was sent."""
    said = scenario(seed)
    block = said["engine"]["block_size"]
    rows = tuple(
        Arrival(row["at_ns"], row["input"], row["output"], row["ids"])
        for row in rows_of(Path(), said["trace"])
    )
    load = Load(rows, said["trace"]["block_tokens"])
    engine = Engine(
        said["engine"]["num_blocks"] * 3, (Group(block=block),), block,
        length=said["engine"]["max_model_len"],
        batch=max(256, said["engine"]["max_num_batched_tokens"]), sequences=40,
        overlap=said["engine"]["async_scheduling"],
    )  # fmt: skip
    run = Disaggregated(load, Split(prefill, decode, 1000, 100), "round-robin").run(engine, CLOCK, Target())
    alone = simulate(Trace(rows, load.wide), engine, CLOCK)
    assert run.refused == sum(alone.columns["refused"])
    assert len(run.latency) == len(rows) - run.refused
    assert min(run.ttft, default=1) > 0
    assert all(one >= 0 for one in run.tpot)
    assert run.transfers <= len(run.latency)
    for (one, _), (other, _) in pairwise(run.used):
        assert one <= other
    assert run.used[-1][1] == 0


def test_a_link_without_limit_is_prefill_and_decode_alone() -> None:
    """Requests far apart: TTFT is the prompt's step on one engine and one more for its last token."""
    rows = [(place * 10**10, 160 + 16 * place, 5) for place in range(8)]
    load = _load(rows)
    parted = Disaggregated(load, Split(1, 1), "round-robin").run(Engine(200), CLOCK, Target())
    whole = Dealt(load, 1).run(Engine(200), CLOCK, Target())
    again = [1_010_000 + 5 * prompt for _, prompt, _ in rows]
    assert list(parted.ttft) == [one + more for one, more in zip(whole.ttft, again)]
    assert parted.tpot == whole.tpot


@pytest.mark.parametrize("router", ROUTERS)
def test_every_router_deals_over_prefill_replicas(router: str) -> None:
    rows = tuple(
        Arrival(place * 10**6, 320, 4, [place % 3, *range(100 + place, 119 + place)]) for place in range(24)
    )
    run = Disaggregated(Load(rows, 16), Split(3, 2, 1000), router).run(Engine(500), CLOCK, Target())
    assert len(run.latency) == 24


@settings(max_examples=25, deadline=None)
@given(
    gap=st.integers(1, 20), split=st.tuples(st.integers(1, 3), st.integers(1, 3)), seqs=st.integers(1, 6),
    ttft=st.sampled_from((None, 5, 8, 20)), tpot=st.sampled_from((None, 1_015, 1_100, 2_000)),
)  # fmt: skip
def test_a_run_that_ends_early_misses_and_one_that_does_not_keeps(
    gap: int, split: tuple[int, int], seqs: int, ttft: int | None, tpot: int | None
) -> None:
    target = Target(None if ttft is None else ttft * 10**6, None if tpot is None else tpot * 1000, 0.9)
    load = _load([(place * gap * 10**6, 100 + place % 7 * 60, 1 + place % 23) for place in range(150)])
    engine = Engine(200, sequences=seqs)
    made = Disaggregated(load, Split(*split, 1000), "round-robin")
    run, found = made.run(engine, CLOCK, target), made.kept_or_late(engine, CLOCK, target)
    assert isinstance(found, Outcome) == run.keeps(target)
    if isinstance(found, Outcome):
        assert (found.ttft, found.tpot) == (run.ttft, run.tpot)
    else:
        assert found.too_many or not target.asked
        assert found.prefill + found.decode <= run.requests - run.good


def test_a_first_token_that_waits_for_a_place_among_answers_is_late_by_the_decode_side() -> None:
    """One answer at a time: more prefill replicas help nobody."""
    load = _load([(place * 10**7, 320, 30) for place in range(100)])
    late = Disaggregated(load, Split(3, 1, 1), "round-robin").kept_or_late(
        Engine(100, sequences=1), CLOCK, Target(ttft_ns=10**8)
    )
    assert not isinstance(late, Outcome)
    assert late.decode > late.prefill


def test_refused() -> None:
    load = _load([(0, 32, 2)])
    window = Engine(100, (Group(), Group("window", 16, 64)))
    tiered = replace(Engine(100), offload=Offload(16, (Tier("cpu", 9),)))
    for engine in (window, tiered):
        with pytest.raises(KvplanError, match="not simulated"):
            Disaggregated(load, Split(1, 1), "round-robin").run(engine, CLOCK, Target())
    with pytest.raises(KvplanError) as caught:
        Disaggregated(load, Split(0, 1), "round-robin")
    assert caught.value.code == "bad-replicas"
