"""Groups that share a table and come to hold different blocks: each finds, holds and gives back its own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.simulation.vllm.block_table import BlockTable
from kvplan.simulation.vllm.diverged_groups import beside, front_of, let_go_groups, revive, tell_apart
from kvplan.simulation.vllm.pool import Piece, Pool, Run
from kvplan.simulation.vllm.prefix_blocks import apart, found, found_apart
from kvplan.simulation.vllm.replica import Replica, StepTime, simulate
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.settings import Engine, Group
from kvplan.simulation.vllm.tables import Table
from scripts.check_scheduler import trace_of, vllm_engine
from scripts.scheduler_scenarios import sample_rows, scenario

THREE = Table(Engine(blocks=1000, groups=(Group(),) * 3), Group(), 0, 3)


def several(seed: int) -> dict[str, Any]:
    """A random workload on an engine with several groups of one rule, few blocks and prefixes kept."""
    chance = random.Random(seed)
    asked = scenario(seed)
    engine, trace = asked["engine"], asked["trace"]
    block = chance.choice([4, 16])
    windows, others = (
        [{"kind": "window", "window": chance.choice([block, 2 * block + 3, 5 * block, 100])}]
        * chance.randint(2, 5)
        for _ in range(2)
    )
    full: dict[str, Any] = {"kind": "full"}
    groups: list[dict[str, Any]] = chance.choice([
        [*windows, full], [*windows, full], [*windows, *others, full, full], [full] * 3,
        [full, full, *[{"kind": "chunk", "chunk": 3 * block}] * 3], [*windows, full, *windows],
    ])  # fmt: skip
    wide = trace["block_tokens"] = block * chance.choice([1, 2])
    trace["rows"] = sample_rows(chance, wide, chance.choice([12, 24, 60]), chance.random() < 0.5)
    longest = max(row["input"] + row["output"] for row in trace["rows"])
    least = (-(-longest // block) + 2) * len(groups)
    batch = engine["max_num_batched_tokens"]
    return asked | {
        "engine": engine | {
            "block_size": block, "groups": groups, "enable_prefix_caching": True, "mamba_cache_mode": "none",
            "retention": chance.choice([None, None, engine["retention"]]), "max_model_len": longest + 5,
            "num_blocks": int(least * chance.choice([1, 1.2, 1.5, 2, 4])) + 1,
            "max_num_batched_tokens": batch if engine["enable_chunked_prefill"] else max(batch, longest + 5),
        },
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_several_groups_of_a_table_give_what_tables_of_their_own_give(seed: int) -> None:
    """Single steps have a table for each group."""
    asked = several(seed)
    engine, clock = vllm_engine(asked["engine"]), StepTime(**asked["step"])
    try:
        single = simulate(trace_of(asked["trace"], Path()), engine, clock, jump=False, rows=True)
    except KvplanError:
        with pytest.raises(KvplanError):
            simulate(trace_of(asked["trace"], Path()), engine, clock, rows=True)
        return
    shared = simulate(trace_of(asked["trace"], Path()), engine, clock, rows=True)
    assert shared.rows == single.rows
    assert shared.columns == single.columns


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**9))
def test_pieces_are_held_by_as_many_as_they_say(seed: int) -> None:
    """And what nobody holds stands in the queue, once, and in its run."""
    asked = several(seed)
    replica = Replica(
        trace_of(asked["trace"], Path()), vllm_engine(asked["engine"]), StepTime(**asked["step"]), jump=True,
        rows=False,
    )  # fmt: skip
    scheduler = replica.scheduler
    schedule = scheduler.schedule

    def checked() -> Any:
        _check(scheduler.running, scheduler.memory.pool)
        return schedule()

    scheduler.schedule = checked  # type: ignore[method-assign]
    try:
        replica.run()
    except KvplanError:
        return
    _check([], scheduler.memory.pool)
    assert scheduler.memory.pool.free == replica.engine.blocks


def _check(running: list[Request], pool: Pool) -> None:
    holders: dict[Piece, int] = {}
    for request in running:
        for span in (span for one in request.held for span in one.spans if span.piece):
            for piece in _row(span.piece, span.stop - span.start):
                size = piece.stop - piece.start
                rows = [_row(one, size) for one in piece.groups] if piece.groups else [[piece]]
                for leaf in (leaf for row in rows for leaf in row):
                    holders[leaf] = holders.get(leaf, 0) + 1
    assert all(piece.refs == count and piece.groups is None for piece, count in holders.items())
    free, queued = pool.blank + pool.dead, pool.ends.after
    while queued is not None and queued is not pool.ends:
        assert not queued.refs
        assert queued.groups is None
        assert queued in queued.pieces
        free += (queued.stop - queued.start) * queued.times
        queued = queued.after
    assert free == pool.free


def _row(piece: Piece | None, blocks: int) -> list[Piece]:
    row = []
    while blocks:
        assert piece is not None
        row.append(piece)
        blocks -= piece.stop - piece.start
        piece = piece.rest
    return row


def _stored(run: Run, start: int, stop: int) -> Piece:
    run.stamp += 1
    piece = Piece(run, run.pieces[0], start, stop, 1, 3)
    run.pieces[0].append(piece)
    return piece


def test_what_some_groups_have_lost_is_found_by_the_others() -> None:
    """Blocks 0 to 10 are stored twice; of the older piece the first group loses two. A hit of these is the
    younger piece's in the first group, the older's in the others."""
    pool, run = Pool(60, True), Run(1)
    pool.free = pool.blank = 0
    older, younger = _stored(run, 0, 10), _stored(run, 0, 10)
    run.doubled = True
    pool.bundles += 1
    pool.let_go(older)
    pool.take(2)
    assert (pool.free, pool.dead, run.losing) == (28, 4, True)
    tell_apart(pool, older)
    assert (pool.free, pool.dead, run.losing) == (28, 0, False)
    assert apart(run, THREE, 8, 10)
    assert found(run, 0, 8, 10, 0) == [(younger, 10)]
    assert [piece.group for piece, _ in found(run, 0, 8, 10, 1)] == [1]

    answers = found_apart(pool, run, THREE, 7, 10)
    assert [reach for _, reach in answers] == [8, 10]
    held = BlockTable(THREE)
    parts = [(piece, start, reach, start) for (piece, reach), start in zip(answers, (7, 8))]
    held.adopt(pool, parts, 10, 7)
    assert pool.free == 28 - 3 - 4  # of the first group's two blocks the younger piece is held anyway
    held.let_go(pool)
    assert pool.free == 28
    let_go_groups(pool, [younger])
    assert pool.free == 58
    pool.take(58)
    assert not run.pieces[0]


@pytest.mark.parametrize("taken", range(1, 15))
@pytest.mark.parametrize("before", [True, False])
def test_groups_are_evicted_one_after_another(before: bool, taken: int) -> None:
    """Of what is given back together the first group's blocks are taken first, of each the last first,
    whether it was told apart before, or after some were taken."""
    pool, run = Pool(15, True), Run(1)
    pool.free = pool.blank = 0
    first, second = _stored(run, 0, 3), _stored(run, 3, 5)
    pool.bundles += 1
    for piece in (second, first):
        pool.let_go(piece)
    if before:
        tell_apart(pool, first)
    pool.take(taken)
    if not before and pool.dead:
        revive(pool)
    reach = [
        max((piece.stop for piece in run.pieces[0] if piece.group == group), default=0) for group in range(3)
    ]
    assert reach == [max(0, 5 - max(0, taken - 5 * group)) for group in range(3)]
    assert pool.free == 15 - taken
    pool.take(pool.free)
    assert not run.pieces[0]


def test_a_holder_may_give_back_the_front_of_what_was_told_apart() -> None:
    pool, run = Pool(30, True), Run(1)
    pool.free = pool.blank = 0
    piece = _stored(run, 0, 10)
    tell_apart(pool, piece)
    assert piece.groups is not None
    front = front_of(pool, piece, 4)
    assert (front.start, front.stop) == (0, 4)
    assert front.rest is not None
    assert (front.rest.start, front.rest.stop) == (4, 10)
    let_go_groups(pool, [front])
    assert pool.free == 12
    let_go_groups(pool, [beside(front.rest.groups or [], 4, 10)])
    assert pool.free == 30
