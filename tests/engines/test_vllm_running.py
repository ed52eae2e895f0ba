"""How many requests run at once: against vLLM's own scheduler, against a plain replay, and its laws."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.engines.vllm.cache_layout.specs import Steps
from kvplan.engines.vllm.concurrency.blocks_over_time import (
    CHUNK,
    FIXED,
    FULL,
    STATE,
    WINDOW,
    Holding,
    Table,
)
from kvplan.engines.vllm.concurrency.burst import MOST_WORK
from kvplan.engines.vllm.concurrency.concurrent_requests import more_in_flight, most_settled
from kvplan.engines.vllm.concurrency.peak_demand import MOST_SEARCHED, Run, most_running
from kvplan.units import ceil_div
from scripts.record_vllm_running import answered, asked_of
from tests.engines.vllm_running_cases import Setting, answer_of
from tests.engines.vllm_running_cases import settings as cases
from tests.laws.sampling import sampled

RECORD = Path(__file__).with_name("vllm_running.json.gz")
ANSWERS: dict[str, Any] = json.loads(gzip.decompress(RECORD.read_bytes()))["answers"]
SETTINGS = {setting.name: setting for setting in cases()}
_APART = ("mix-prefix-windows",)
"""Windows: an equal head of prompts is counted for each, and more run where vLLM finds it."""


def runs(answer: dict[str, Any], requests: int) -> bool:
    """Whether all requests of the burst ran at once, and none was preempted."""
    return not answer["preempted"] and answer["most_running"] == requests


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_as_many_run_as_the_scheduler_ran(name: str) -> None:
    entry, asked = ANSWERS[name], asked_of(SETTINGS[name])
    assert asked is not None
    assert {key: entry[key] for key in asked} == asked
    assert runs(entry["at"], entry["running"])
    if len(entry["question"].get("shapes", ())) < 2 and name not in _APART:
        assert not runs(entry["over"], entry["beyond"])
    if "drafts" in entry["question"]:
        assert runs(entry["accepted"], entry["running"])


def test_the_record_covers_every_kind_of_model() -> None:
    kinds = {group["kind"] for entry in ANSWERS.values() for group in entry["question"]["groups"]}
    assert kinds == {"full", "window", "chunk", "state", "cross"}
    assert len(ANSWERS) >= 100
    asked = [entry["question"] for entry in ANSWERS.values()]
    for what, least in (("pp", 8), ("drafts", 14), ("encoder", 4), ("shapes", 10)):
        assert sum(what in question for question in asked) >= least
    assert any(entry["at"]["blocked"] for entry in ANSWERS.values())


def test_what_was_found_wrong() -> None:
    """gemma-3-27b on one H100: the start-up formula says 3, and 13 run in 16.77 GiB."""
    options: dict[str, Any] = {"gpu": "h100", "tokens": 8191, "answer_tokens": 1023, "max_model_len": 8192}
    options["kv_cache_memory"] = f"{13_740 * 1_310_720}B"
    for batch, reserved, running in ((8192, 3, 13), (2048, 5, 14)):
        pool = kvplan.size("gemma-3-27b", max_num_batched_tokens=batch, **options).pool
        assert pool is not None
        assert (pool.max_requests, pool.max_running) == (reserved, running)


@pytest.mark.vllm
def test_the_scheduler_answers_as_recorded() -> None:
    """Every seventh, all in one process."""
    entries = [ANSWERS[name] for name in sorted(ANSWERS)[::7]]
    found = [dict(entry) for entry in entries]
    answered(sys.executable, found)
    assert found == entries


# --------------------------------------------------------------------------------------------- a plain replay


class _Plain:
    """The scheduler one step and one request at a time, for groups without aligned states, until the first
    request would leave or the last prompt is computed: a request that ends before that stays as it is."""

    def __init__(self, one: Holding, usable: int) -> None:
        self.one, self.usable = one, usable

    def runs(self, count: int) -> bool:
        one, steps = self.one, self.one.steps
        done: list[list[int]] = []  # tokens of each admitted request after every step
        held: list[int] = []
        step, idle, first_end = 0, 0, 0
        while True:
            filled = len(done) == count and all(progress[-1] >= one.prompt for progress in done)
            if filled and step >= first_end + one.last_age + steps.depth - 1:
                return True
            step += 1
            budget, moved = steps.batch, False
            for number, progress in enumerate(done):
                left = one.prompt - progress[-1]
                tokens = min(left, budget) if left > 0 else int(progress[-1] < one.prompt + one.last_age)
                progress.append(progress[-1] + tokens)
                budget -= tokens
                moved = moved or left > 0
                if tokens:
                    held[number] = self._held(progress)
                    if sum(held) > self.usable:
                        return False
            while budget > 0 and len(done) < count:
                chunk = min(one.prompt, budget)
                if sum(held) + max(one.gate, one.first(chunk)) > self.usable:
                    break
                done.append([0, chunk])
                held.append(self._held(done[-1]))
                budget -= chunk
                moved = True
            if not first_end and done and done[0][-1] >= one.prompt:
                first_end = step
            young = any(p[-1] >= one.prompt > p[max(0, len(p) - 1 - steps.depth)] for p in done)
            idle = 0 if moved or young else idle + 1
            if len(done) < count and idle > one.period + steps.depth:
                return False

    def _held(self, progress: list[int]) -> int:
        depth = self.one.steps.depth
        processed = progress[-1 - depth] if len(progress) > depth else 0
        return sum(self.one.grown(table, progress[-1], processed) * table.groups for table in self.one.tables)


@st.composite
def bursts(draw: st.DrawFn) -> tuple[tuple[Table, ...], Steps, int, int, int]:
    block = draw(st.sampled_from((4, 8, 16)))
    batch, depth = draw(st.integers(24, 160)), draw(st.sampled_from((1, 2)))
    prompt, answer = draw(st.integers(1, 300)), draw(st.integers(20, 120))
    tables = []
    for rule in draw(st.lists(st.sampled_from((FULL, WINDOW, CHUNK, FIXED)), min_size=1, max_size=3)):
        span = draw(st.integers(1, 12)) * block if rule == CHUNK else draw(st.integers(1, 100))
        cap = {WINDOW: -(-(span + depth * batch) // block) + 1, CHUNK: -(-(span + depth * batch) // block)}
        tables.append(Table(rule, block, span, draw(st.integers(1, 3)), cap.get(rule)))
    steps = Steps(batch, depth)
    one = Run(tuple(tables), steps, prompt, answer)
    one.extend(1)
    usable = one.need(1) * draw(st.integers(100, 900)) // 100
    return tuple(tables), steps, prompt, answer, usable


def most(tables: tuple[Table, ...], steps: Steps, prompt: int, answer: int, usable: int, limit: int) -> int:
    return most_running(Run(tables, steps, prompt, answer), usable, limit)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(bursts())
def test_a_plain_replay_runs_as_many(burst: tuple[tuple[Table, ...], Steps, int, int, int]) -> None:
    tables, steps, prompt, answer, usable = burst
    limit = min(20, steps.batch * answer // (2 * prompt) + 1)
    found = most(*burst, limit)
    plain = _Plain(Holding(tables, steps, prompt, answer), usable)
    assert plain.runs(found) or not found
    if found < limit and plain.runs(found + 1):
        # By luck of waiting alone: at their longest together they would be too many.
        run = Run(tables, steps, prompt, answer)
        run.extend(found + 1)
        assert run.together(found + 1) > usable


@settings(max_examples=100, deadline=None, derandomize=True)
@given(bursts(), st.integers(1, 20))
def test_chunk_by_chunk_is_change_by_change(
    burst: tuple[tuple[Table, ...], Steps, int, int, int], count: int
) -> None:
    tables, steps, prompt, answer, _ = burst
    found = tuple(table for table in tables if table.rule != WINDOW)
    run = Run((*found, Table(CHUNK, 8, 64)), steps, prompt, answer)
    assert run.sparse
    if run.extend(count) < count:
        return
    ends = run._ends_of(count)
    first, last = run.starts[count - 1], run._over(ends)
    assert run._stretch(ends, first, last) == run._walked(ends, first, last)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(bursts(), st.integers(1, 400), st.integers(1, 40))
def test_lengths_beyond_the_longest_are_counted_whole(
    burst: tuple[tuple[Table, ...], Steps, int, int, int], longest: int, limit: int
) -> None:
    """What a plan says of requests longer than its max_model_len is what a longer one says, drafts aside."""
    tables, steps, prompt, answer, usable = burst
    shorter = replace(steps, longest=min(longest, prompt + answer))
    assert most(tables, shorter, prompt, answer, usable, limit) == most(*burst, limit)


def test_long_answers_of_chunks_are_replayed_whole() -> None:
    """The tables of llama-4-scout, prompts and answers of 4k tokens: not all are at full length together."""
    tables = (Table(CHUNK, 16, 8192, 3, 1536), Table(FULL, 16))
    run = Run(tables, Steps(8192, 2), 4096, 4096, most=1024)
    found = most_running(run, 1_500_000, 1024)
    assert found > 1_500_000 // run.settled(run.last_age)
    assert run.reach == 1024
    assert run.searched <= MOST_SEARCHED
    ends = run._ends_of(found + 1)
    assert run._walked(ends, max(ends), run._over(ends)) > 1_500_000
    ends = run._ends_of(found)
    assert run._walked(ends, max(ends), run._over(ends)) <= 1_500_000


@settings(max_examples=150, deadline=None, derandomize=True)
@given(bursts(), st.integers(1, 600), st.integers(1, 40))
def test_a_replay_that_stops_short_never_says_more(
    burst: tuple[tuple[Table, ...], Steps, int, int, int], work: int, limit: int
) -> None:
    whole = most(*burst, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvplan.engines.vllm.concurrency.burst.MOST_WORK", work)
        assert most(*burst, limit) <= whole


class _StepByStep(Run):
    """The same run, of which no step is left out."""

    def _skip(self) -> None:
        pass


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from((1, 7, 64, 2048, 10**6)),
    st.sampled_from((1, 5, 100, 3000, 10**5)),
    st.sampled_from((1, 2, 300, 10**4)),
    st.tuples(*(st.integers(0, most) for most in (2, 3, 1, 5))),
    st.integers(1, 300),
)
def test_steps_that_one_prompt_takes_whole_are_not_computed_one_by_one(
    batch: int, prompt: int, answer: int, besides: tuple[int, int, int, int], count: int
) -> None:
    slots, drafts, more_under_way, runway = besides
    steps = Steps(batch, depth=1 + more_under_way, drafts=drafts, slots=slots, runway=runway)
    told = []
    for kind in (_StepByStep, Run):
        run = kind((Table(FULL, 16),), steps, prompt, answer, most=512)
        ran = [run.extend(number) for number in (ceil_div(count, 3), count)]
        need = run.need(ran[-1]) if ran[-1] else 0
        told.append((ran, run.starts, run.ends, run.asked, run.let_in, run.work, run.stuck, run.reach, need))
    assert told[0] == told[1]


@pytest.mark.laws
@sampled(20, 300)
@given(bursts(), st.sampled_from((1, 10**4, 10**7)), st.sampled_from((1, 10**6)), st.integers(1, 10**6))
def test_the_work_is_bounded_whatever_is_asked(
    burst: tuple[tuple[Table, ...], Steps, int, int, int], batch: int, longest: int, limit: int
) -> None:
    tables, steps, prompt, answer, _ = burst
    run = Run(tables, Steps(batch, steps.depth), prompt * longest, answer * longest, most=limit)
    run.extend(limit)
    assert run.work <= 2 * MOST_WORK
    assert run.only_grows or run.most * run.changes <= MOST_WORK


@st.composite
def any_bursts(draw: st.DrawFn) -> tuple[tuple[Table, ...], Steps, int, int]:
    """Bursts over aligned states as well, through pipelines, with drafts that are all accepted or none."""
    tables, steps, prompt, answer, _ = draw(bursts())
    drafts, stages = draw(st.sampled_from((0, 0, 1, 3))), draw(st.sampled_from((1, 1, 2, 4)))
    block = draw(st.sampled_from((8, 16, 32)))
    if draw(st.booleans()):
        state = Table(STATE, block, 0, draw(st.integers(1, 3)), None, drafts, draw(st.booleans()))
        tables = (*(table for table in tables if table.rule not in (WINDOW, CHUNK)), state)
    align = max((table.block for table in tables if table.rule == STATE), default=0)
    under_way = stages + steps.depth - 1
    steps = replace(
        steps, depth=under_way, stride=stages, drafts=drafts, flight=-(-under_way // stages), ahead=drafts,
        gain=draw(st.sampled_from((1, 1 + drafts))), align=align, hashed=align, drops=draw(st.booleans()),
    )  # fmt: skip
    return tables, steps, prompt, answer + (under_way + 1) * (1 + drafts)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(any_bursts(), st.integers(1, 25))
def test_prompts_under_way_hold_no_more_than_the_bound(
    burst: tuple[tuple[Table, ...], Steps, int, int], count: int
) -> None:
    tables, steps, prompt, answer = burst
    run = Run(tables, steps, prompt, answer)
    if run.extend(count) < count:
        return
    done = prompt + answer - 1 + (steps.flight - 1 if steps.drafts else 0)
    each = sum(most_settled(table, steps, done) * table.groups for table in tables)
    more = more_in_flight(tables, steps, prompt)
    assert more is not None
    assert run.need(count) <= count * each + max(0, run.gate - each) + more


def test_a_step_lets_in_no_more_than_the_engine() -> None:
    """A prompt of one token, and ten million to a step."""
    run = Run((Table(FULL, 16),), Steps(10**7, 2), 1, 1, most=1024)
    assert most_running(run, 24575, 1024) == 1024
    assert run.work < 3000


@settings(max_examples=150, deadline=None, derandomize=True)
@given(bursts(), st.integers(0, 200), st.integers(1, 30))
def test_a_larger_pool_never_runs_fewer(
    burst: tuple[tuple[Table, ...], Steps, int, int, int], more: int, limit: int
) -> None:
    tables, steps, prompt, answer, usable = burst
    fewer = most(tables, steps, prompt, answer, usable, limit)
    as_many = most(tables, steps, prompt, answer, usable + more, limit)
    assert 0 <= fewer <= as_many <= limit


_CARDS = ("llama-3.1-8b", "qwen3-0.6b", "deepseek-v2-lite", "gemma-3-4b", "gpt-oss-20b", "qwen3-next-80b-a3b")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(_CARDS),
    st.integers(64, 8192),
    st.integers(1, 8),
    st.integers(2, 24),
    st.sampled_from((2048, 8192, 16384)),
)
def test_the_start_up_formula_is_never_above_it(
    card: str, tokens: int, part: int, gibibytes: int, batch: int
) -> None:
    answer = max(1, tokens // (part + 1))
    result = kvplan.size(
        card, tokens=tokens, answer_tokens=answer, kv_cache_memory=gibibytes * 2**30, max_model_len=8192,
        max_num_batched_tokens=batch,
    )  # fmt: skip
    pool = result.pool
    if pool is None:
        return
    assert pool.max_requests <= pool.max_running <= pool.max_num_seqs
    assert pool.running_blocks is not None
    assert pool.prompt_blocks is not None
    # What mixes and shared prompts are counted with says no more.
    left = pool.num_blocks - 1 - max(0, pool.prompt_blocks - pool.running_blocks)
    assert min(left // pool.running_blocks, pool.max_num_seqs) <= max(1, pool.max_running)
    full = all(group.kind in ("full_attention", "mla_attention") for group in pool.groups)
    together = pool.max_running * (tokens - answer) <= batch
    if full and together and tokens % pool.groups[0].block_size != 1:
        # All prompts are computed in one step: all requests are at their full length at once.
        assert pool.max_running == pool.max_requests


def test_the_answers_part_changes_nothing_where_every_token_is_kept() -> None:
    whole = [
        answer_of(Setting("", "llama-3.1-8b", {
            "kv_cache_memory": "4GiB", "max_model_len": 8192, "tokens": 4096, "answer_tokens": answer,
        })).pool
        for answer in (256, 512, 1024, 2048)
    ]  # fmt: skip
    assert {pool.max_running for pool in whole if pool is not None} == {7}
