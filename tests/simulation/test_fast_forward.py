"""Steps that are taken together give what single steps give, and what every scheduler must keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.simulation.time.results import Answer
from kvplan.simulation.vllm.replica import Replica, StepTime, simulate
from scripts.check_scheduler import trace_of, vllm_engine
from scripts.scheduler_scenarios import scenario


def answers(asked: dict[str, Any]) -> list[Answer] | None:
    """With single steps and with jumps; None where the engine or a request is refused, by both."""
    found = []
    for jump in (False, True):
        trace, engine = trace_of(asked["trace"], Path()), vllm_engine(asked["engine"])
        try:
            found.append(simulate(trace, engine, StepTime(**asked["step"]), jump=jump, rows=True))
        except KvplanError:
            continue
    assert len(found) in (0, 2)
    return found or None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
@example(66)
@example(260)
@example(282)
@example(2041)
def test_jumps_equal_single_steps(seed: int) -> None:
    found = answers(scenario(seed))
    if found is None:
        return
    single, jumped = found
    assert jumped.rows == single.rows
    assert jumped.columns == single.columns
    for name in ("steps", "empty", "tokens", "preemptions", "busy_ns", "end_ns"):
        assert getattr(jumped, name) == getattr(single, name)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_blocks_are_conserved(seed: int) -> None:
    asked = scenario(seed)
    engine = vllm_engine(asked["engine"])
    trace, clock = trace_of(asked["trace"], Path()), StepTime(**asked["step"])
    replica = Replica(trace, engine, clock, jump=True, rows=True)
    try:
        answer = replica.run()
    except KvplanError:
        return
    pool = replica.scheduler.memory.pool
    queued, piece = pool.dead, pool.ends.after
    while piece is not None and piece is not pool.ends:
        assert piece.refs == 0
        queued += (piece.stop - piece.start) * piece.times
        piece = piece.after
    assert pool.free == engine.blocks == pool.blank + queued
    assert answer.rows is not None
    for row in answer.rows:
        assert 0 <= row[6] <= engine.blocks
        assert row[1] <= engine.batch
        assert row[3] <= row[4] <= engine.sequences
    served = [end for end, no in zip(answer.columns["finished_ns"], answer.columns["refused"]) if not no]
    assert all(end >= 0 for end in served)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 50))
def test_a_slower_clock_changes_nothing_but_the_clock(seed: int, times: int) -> None:
    asked = scenario(seed)
    slow = scenario(seed)
    slow["step"] = {name: value * times for name, value in asked["step"].items()}
    for row in slow["trace"]["rows"]:
        row["at_ns"] *= times
    first, second = answers(asked), answers(slow)
    if first is None or second is None:
        return
    assert first[1].rows is not None
    assert second[1].rows is not None
    assert [row[1:] for row in first[1].rows] == [row[1:] for row in second[1].rows]
    assert [row[0] * times for row in first[1].rows] == [row[0] for row in second[1].rows]
