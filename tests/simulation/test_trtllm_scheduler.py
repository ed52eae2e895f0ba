"""TensorRT-LLM's scheduler: no oracle runs here, so laws and small cases hold what it promises."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.schedulers import simulate_any
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import Trace
from kvplan.simulation.trtllm import TrtllmEngine
from kvplan.simulation.trtllm.blocks import Blocks
from kvplan.simulation.trtllm.replica import TrtllmReplica
from kvplan.simulation.trtllm.request import Request
from kvplan.simulation.trtllm.scheduler import Scheduler
from kvplan.simulation.trtllm.settings import (
    CHUNKING,
    EQUAL,
    IN_ORDER,
    MAX_UTILIZATION,
    NO_EVICT,
    POLICIES,
    STATIC,
)
from kvplan.simulation.trtllm.span import Span
from scripts.scheduler_scenarios import sample_rows
from tests.simulation.trtllm_visited import VisitedReplica

TIME = StepTime(1000, 100, 7)


def _random(seed: int) -> tuple[Trace, TrtllmEngine]:
    chance = random.Random(seed)
    wide, block = chance.choice([4, 8, 16, 32, 48]), chance.choice([8, 16, 32])
    rows = sample_rows(chance, wide, chance.choice([6, 20]), chance.random() < 0.6)
    longest = max(row["input"] + row["output"] for row in rows)
    chunking = chance.choice([None, *CHUNKING])
    policy = chance.choice(POLICIES)
    engine = TrtllmEngine(
        blocks=int((-(-longest // block) + 2) * chance.choice([1, 1.2, 2, 5])) + 1, block=block,
        batch=chance.choice([block, 64, 256, 4096]) if chunking else longest + 1200,
        sequences=chance.choice([1, 3, 8, 64]), length=longest + chance.randint(1, 50),
        caching=chance.random() < 0.8, partial=chance.random() < 0.7, policy=policy, chunking=chunking,
        overlap=policy != MAX_UTILIZATION and chance.random() < 0.6,
    )  # fmt: skip
    arrivals = [Arrival(row["at_ns"], row["input"], row["output"], row["ids"]) for row in rows]
    return Trace(arrivals, wide), engine


def _tree(blocks: Blocks) -> Iterator[Span]:
    """Every span that can be found, parents first; each where its parent has it."""
    going = [blocks.root]
    for node in going:
        for first, alike in (node.children or {}).items():
            for key, child in alike.items():
                assert (child.parent, child.first, child.key) == (node, first, key)
                assert child.start == node.stop
                going.append(child)
                yield child


def _queue(blocks: Blocks) -> list[Span]:
    found: list[Span] = []
    span = blocks.line.after
    while span is not None and span is not blocks.line:
        assert span.after is not None
        assert span.after.before is span
        found.append(span)
        span = span.after
    return found


class _Watched(Scheduler):
    """Looks at the blocks after each batch and each result."""

    def look(self) -> None:
        memory, answers = self.memory, self.answers
        queue = _queue(memory)
        assert memory.idle == sum(span.stop - span.start for span in queue)
        held: dict[Span, set[Request]] = {}
        growing = 0
        for request in self.active:
            assert (request.prefilling, request.ending) == (request in self.prompts, request in self.ending)
            place = 0
            for span in request.spans:
                assert span.start == place < span.stop
                place = span.stop
                held.setdefault(span, set()).add(request)
            if request in answers.requests:
                growing += -(-(answers.requests[request][0] + answers.clock) // memory.size) - place
            else:
                assert not request.begun or place == request.held == -(-request.written // memory.size)
        assert all(span.holders.keys() == requests for span, requests in held.items())
        blocks = sum(span.stop - span.start for span in held) + growing
        assert memory.free + blocks == self.engine.blocks
        assert not any(span.holders for span in queue)
        stored = list(_tree(memory))
        assert len(stored) == len(set(stored))
        assert all(span in held or span in queue for span in stored)
        assert sum(answers.begins.values()) == len(answers)

    def schedule(self, queued: Any) -> Any:
        batch = super().schedule(queued)
        self.look()
        if batch is not None:
            assert batch.tokens <= self.engine.batch
            assert len(self.active) <= self.engine.sequences
            for request, tokens in batch.parts:
                whole = request.position == request.prompt
                assert tokens > 0
                assert whole or request.position % self.engine.block == 0 or not request.reused
        return batch

    def update(self, batch: Any) -> Any:
        made = super().update(batch)
        self.look()
        return made


class _Watching(TrtllmReplica):
    def __init__(self, trace: Trace, engine: TrtllmEngine) -> None:
        super().__init__(trace, engine, TIME, jump=False, rows=False)
        self.scheduler = self.serving = _Watched(engine)


@given(st.integers(0, 10**6))
def test_steps_that_are_taken_together_are_the_same(seed: int) -> None:
    trace, engine = _random(seed)
    jumped, single = (simulate_any(trace, engine, TIME, jump=jump) for jump in (True, False))
    assert jumped.columns == single.columns
    for name in ("steps", "tokens", "busy_ns", "end_ns", "preemptions"):
        assert getattr(jumped, name) == getattr(single, name)


@given(st.integers(0, 10**6))
def test_spans_and_a_clock_say_what_visiting_each_block_says(seed: int) -> None:
    trace, engine = _random(seed)
    found, visited = simulate_any(trace, engine, TIME, rows=True), VisitedReplica(trace, engine, TIME).run()
    assert found.columns == visited.columns
    assert found.rows == visited.rows
    assert (found.end_ns, found.preemptions) == (visited.end_ns, visited.preemptions)


@given(st.integers(0, 10**6))
def test_no_block_is_lost_and_nobody_is_paused_who_was_promised_an_end(seed: int) -> None:
    trace, engine = _random(seed)
    found = _Watching(trace, engine).run()
    if engine.policy != MAX_UTILIZATION:
        assert found.preemptions == 0
    for number, row in enumerate(trace.arrivals):
        taken = not found.columns["refused"][number]
        assert taken == engine.takes(row.prompt)
        assert (found.columns["finished_ns"][number] > 0) == taken
        assert 0 <= found.columns["cached_tokens"][number] < row.prompt


def _served(engine: TrtllmEngine, *rows: tuple[int, int, int, tuple[int, ...]], wide: int = 8) -> Answer:
    trace = Trace([Arrival(*row) for row in rows], wide)
    return simulate_any(trace, engine, TIME, rows=True)


SMALL = TrtllmEngine(blocks=100, block=8, batch=64, sequences=4, length=200)


def test_whole_answers_are_promised_before_anybody_joins() -> None:
    """Three times (16 + 24 tokens) are 15 blocks: with 14 the third waits for an end."""
    rows = [(0, 16, 24, (one, one + 50, *range(one * 100, one * 100 + 3))) for one in (1, 2, 3)]
    together = _served(replace(SMALL, blocks=15), *rows)
    waits = _served(replace(SMALL, blocks=14), *rows)
    assert together.columns["admitted_step"] == [0, 0, 0]
    assert waits.columns["admitted_step"][2] >= 23
    assert waits.preemptions == 0


def test_by_steps_more_join_and_the_last_one_pauses() -> None:
    rows = [(0, 16, 24, (one, one + 50, *range(one * 100, one * 100 + 3))) for one in (1, 2, 3)]
    engine = replace(SMALL, blocks=14, policy=MAX_UTILIZATION, overlap=False)
    found = _served(engine, *rows)
    assert found.columns["admitted_step"] == [0, 0, 0]
    assert found.columns["preemptions"] == [0, 0, 1]
    assert found.columns["cached_again_tokens"][2] > 0  # what it had computed is found again


def test_a_batch_is_static_where_that_is_asked_for() -> None:
    rows = [(0, 8, 10, ()), (3000, 8, 10, ())]
    inflight, static = (_served(replace(SMALL, policy=policy), *rows) for policy in (NO_EVICT, STATIC))
    assert inflight.columns["admitted_step"][1] < 10 <= static.columns["admitted_step"][1]


def test_the_second_of_two_alike_waits_until_the_first_can_be_found() -> None:
    """beneficialToSkip: 40 tokens alike; only the last is computed again. Without reuse both go at once."""
    rows = [(0, 40, 4, (1, 2, 3, 4, 5)), (0, 40, 4, (1, 2, 3, 4, 5))]
    engine = replace(SMALL, batch=128, overlap=False)
    alike = _served(engine, *rows)
    assert alike.columns["admitted_step"] == [0, 1]
    assert alike.columns["cached_tokens"] == [0, 32]  # the last block is stored once an answer ends
    assert _served(replace(engine, caching=False), *rows).columns["admitted_step"] == [0, 0]


def test_a_part_of_a_block_is_reused_where_that_is_on() -> None:
    rows = [(0, 20, 2, (1, 2, 3, 4, 5)), (10**7, 24, 2, (1, 2, 3, 4, 6, 7))]
    assert _served(SMALL, *rows, wide=4).columns["cached_tokens"] == [0, 16]
    rows = [(0, 20, 2, (1, 2, 3, 4, 5)), (10**7, 28, 2, (1, 2, 3, 8, 9, 10, 11))]
    assert _served(SMALL, *rows, wide=4).columns["cached_tokens"] == [0, 12]
    assert _served(replace(SMALL, partial=False), *rows, wide=4).columns["cached_tokens"] == [0, 8]


def test_chunks_end_where_blocks_do() -> None:
    engine = replace(SMALL, batch=60, chunking=IN_ORDER, caching=False, overlap=False)
    found = _served(engine, (0, 150, 2, ()), (0, 30, 2, ()))
    assert found.rows is not None
    assert [row[1] for row in found.rows[:4]] == [56, 56, 38 + 16, 1 + 14]
    equal = _served(replace(engine, chunking=EQUAL), (0, 150, 2, ()), (0, 30, 2, ()))
    assert equal.rows is not None
    assert equal.rows[0][1:4] == (56, 56, 2)  # 32 of the one, 24 of the other


def test_prompts_that_are_not_cut_fit_into_a_step_or_are_refused() -> None:
    found = _served(SMALL, (0, 65, 2, ()), (0, 64, 2, ()), (0, 200, 2, ()))
    assert found.columns["refused"] == [1, 0, 1]


def test_blocks_of_any_size_cost_nothing() -> None:
    found = _served(replace(SMALL, block=10**15, batch=10**16, length=10**16), (0, 10**6, 10**3, ()))
    assert found.tokens == 10**6 + 10**3 - 1


def test_answers_end_at_the_longest_request() -> None:
    found = _served(replace(SMALL, length=50), (0, 40, 100, ()))
    assert found.tokens == 40 + 9


def test_what_was_let_go_first_is_taken_first_and_its_children_are_lost() -> None:
    blocks = Blocks(replace(SMALL, blocks=4))
    one = Request(0, 0, 25, 1, Chain(((0, 25, 7),), 0))
    blocks.enter(one)
    one.made = 1
    blocks.leave(one)
    assert _stored(blocks) == 4
    again = Request(1, 0, 24, 1, Chain(((0, 25, 7),), 1))
    assert blocks.next_new(again) is None
    blocks.take(1)  # the last block first
    assert _stored(blocks) == 3
    assert blocks.enter(again) == 23
    assert blocks.free == 0
    with pytest.raises(KvplanError, match="none is left"):
        blocks.take(1)


def _stored(blocks: Blocks) -> int:
    return sum(span.stop - span.start for span in _tree(blocks))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"blocks": 0}, "blocks is 0"),
        ({"policy": "LAST"}, "LAST"),
        ({"chunking": "MIXED"}, "MIXED"),
        ({"chunking": IN_ORDER, "batch": 7}, "less than a block"),
        ({"release": "1.3"}, "not read"),
        ({"policy": MAX_UTILIZATION}, "overlap scheduler"),
    ],
)
def test_what_is_not_described_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(KvplanError, match=said) as caught:
        _served(replace(SMALL, **change), (0, 8, 2, ()))
    assert caught.value.help


def test_a_request_that_never_fits_is_named() -> None:
    with pytest.raises(KvplanError) as caught:
        _served(replace(SMALL, blocks=3), (0, 16, 2, ()), (0, 20, 20, ()))
    assert caught.value.code == "request-never-fits"
