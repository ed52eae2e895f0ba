"""How many requests run at once: what vLLM charges at start-up is not what a running request holds.

The start-up formula (`cache_layout.specs.charge_of`) gives every request of a windowed group its window and
all tokens in flight; the scheduler gives blocks back as soon as no coming token sees them, so of many
requests only those whose prompts are computed just now hold that much. `concurrency.burst` replays the
scheduler; where that grows too long, or requests differ or share parts of their prompts, a closed form takes
its place.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.engines.budget.sharing import Taken
from kvplan.engines.vllm.cache_layout.specs import SpecKind, Steps
from kvplan.engines.vllm.concurrency.blocks_over_time import (
    CHUNK,
    FIXED,
    FULL,
    GROWING,
    STATE,
    WINDOW,
    Holding,
    Table,
)
from kvplan.engines.vllm.concurrency.peak_demand import MOST_SEARCHED, Run, most_running
from kvplan.later import later
from kvplan.record import replace
from kvplan.units import ceil_div

if TYPE_CHECKING:
    from kvplan import bisection
    from kvplan.engines.vllm.cache_layout.plan import Plan, PlanGroup
else:
    bisection = later("kvplan", "bisection")


def tables_of(plan: Plan, encoder_tokens: int) -> tuple[Table, ...]:
    """The groups as the block manager sees them, equal ones together."""
    found = Counter(_table(group, plan.max_model_len, encoder_tokens) for group in plan.groups)
    return tuple(
        Table(rule, block, span, groups, cap, spare, checkpoint)
        for (rule, block, span, cap, spare, checkpoint), groups in found.items()
    )


def _table(
    group: PlanGroup, longest: int, encoder_tokens: int
) -> tuple[str, int, int, int | None, int, bool]:
    block = group.block_size * group.charge.shards
    if group.cross:
        return FIXED, block, ceil_div(encoder_tokens, block), None, 0, False
    if group.charge.fixed is not None:
        if not group.aligned:
            return FIXED, block, group.charge.fixed, None, 0, False
        return STATE, block, 0, None, group.drafts, group.charge.fixed - group.drafts > 2
    if group.window is None:
        return FULL, block, 0, None, 0, False
    rule = CHUNK if group.kind == SpecKind.CHUNKED.value else WINDOW
    return rule, block, group.window, group.charge.blocks(longest), 0, False


_ONE_AT_A_TIME = allocate_lock()
"""A run goes on as far as it is asked to: two threads must not extend it at once."""


MOST_ASKED = 1024
"""A run serves every max_num_seqs up to so many, and is computed as far as it is asked: a mix has some
hundred shapes, and a planner asks for each of them of many pools and limits."""


def _most_asked(limit: int) -> int:
    return max(MOST_ASKED, 1 << (limit - 1).bit_length())


@lru_cache(maxsize=1024)
def _run(tables: tuple[Table, ...], steps: Steps, prompt: int, answer: int, most: int) -> Run:
    return Run(tables, steps, prompt, answer, most=most)


@lru_cache(maxsize=8192)
def _running(
    tables: tuple[Table, ...], steps: Steps, prompt: int, answer: int, usable: int, limit: int, most: int
) -> tuple[int, bool]:
    """How many run, and whether more might: the replay ended there because it grew too long."""
    # All drafts accepted, then none: with none all requests run together for longest.
    if steps.drafts and steps.gain == 1:
        runs, more = _running(
            tables, replace(steps, gain=1 + steps.drafts), prompt, answer, usable, limit, most
        )
        limit = limit if more else runs
    with _ONE_AT_A_TIME:
        run = _run(tables, steps, prompt, answer, most)
        runs = most_running(run, usable, limit)
        return runs, runs < limit and (run.reach <= runs or run.searched > MOST_SEARCHED)


def max_running(
    plan: Plan, usable: int, prompt: int, answer: int, encoder_tokens: int = 0, *, limit: int | None = None
) -> int:
    """The largest burst of equal requests, at most ``limit`` (max_num_seqs), of which every one runs in so
    many usable blocks, none is preempted, and one that waits for blocks waits for a neighbour's prompt, never
    for a request to end."""
    limit = plan.max_num_seqs if limit is None else limit
    tables = tables_of(plan, encoder_tokens)
    steps = _steps(plan, encoder_tokens)
    most = _most_asked(max(limit, plan.max_num_seqs))
    runs, more = _running(tables, steps, max(1, prompt), max(1, answer), max(0, usable), limit, most)
    return max(runs, min(limit, _closed(plan, usable, prompt, answer, encoder_tokens))) if more else runs


def _closed(plan: Plan, usable: int, prompt: int, answer: int, encoder_tokens: int) -> int:
    """The closed form, which does not depend on the steps: decode_blocks of each, and of one request what
    prompt_blocks exceeds them."""
    each = decode_blocks(plan, prompt, answer, encoder_tokens)
    first = max(0, prompt_blocks(plan, prompt, answer, encoder_tokens) - each)
    return max(0, (usable - first) // max(1, each))


def _steps(plan: Plan, encoder_tokens: int) -> Steps:
    """The steps of requests with so many encoder tokens: one step encodes no more than max_num_batched_tokens
    (max_num_encoder_input_tokens and encoder_cache_size, vllm/config/scheduler.py)."""
    crossed = encoder_tokens if any(group.cross for group in plan.groups) else 0
    return _at_length(plan.steps, plan.max_model_len, crossed)


@lru_cache(maxsize=1024)
def _at_length(steps: Steps, longest: int, encoder_tokens: int) -> Steps:
    """A plan is asked at other lengths than the one that it was made for."""
    encoders = steps.batch if encoder_tokens else 0
    return replace(steps, longest=longest, encoder=encoder_tokens, encoders=encoders)


def decode_blocks(plan: Plan, prompt: int, answer: int, encoder_tokens: int = 0) -> int:
    """Most blocks that one request holds once its prompt is settled."""
    return _settled_and_gate(tables_of(plan, encoder_tokens), _steps(plan, encoder_tokens), prompt, answer)[0]


@lru_cache(maxsize=16384)
def _settled_and_gate(
    tables: tuple[Table, ...], steps: Steps, prompt: int, answer: int
) -> tuple[int, int]:  # fmt: skip
    """(`decode_blocks`, `prompt_blocks`). A search asks for the shapes of a mix again at every pool size."""
    done = prompt + max(1, answer) - 1
    settled = sum(most_settled(table, steps, done) * table.groups for table in tables)
    return settled, Holding(tables, steps, prompt, answer).gate


def held_blocks(plan: Plan, prompt: int, answer: int, encoder_tokens: int = 0) -> tuple[int, int, int]:
    """(`decode_blocks`, `prompt_blocks`, those of the first that do not grow with the request)."""
    tables, steps = tables_of(plan, encoder_tokens), _steps(plan, encoder_tokens)
    done = prompt + max(1, answer) - 1
    settled = {table: most_settled(table, steps, done) * table.groups for table in tables}
    fixed = sum(blocks for table, blocks in settled.items() if table.rule in (FIXED, STATE))
    return sum(settled.values()), Holding(tables, steps, max(1, prompt), max(1, answer)).gate, fixed


def burst_blocks(plan: Plan, requests: int, prompt: int, answer: int, encoder_tokens: int = 0) -> int:
    """The fewest usable blocks in which so many requests of the shape run at once (`max_running`).

    Of bursts whose replay is long, to a fifth of a per cent.
    """
    settled, admitted, _ = held_blocks(plan, prompt, answer, encoder_tokens)
    enough = settled * requests + max(0, admitted - settled)
    if requests == 1:
        return enough
    limit = max(requests, plan.max_num_seqs)

    def runs(blocks: int) -> bool:
        return max_running(plan, blocks, prompt, answer, encoder_tokens, limit=limit) >= requests

    tables, steps = tables_of(plan, encoder_tokens), _steps(plan, encoder_tokens)
    with _ONE_AT_A_TIME:
        run = _run(tables, steps, max(1, prompt), max(1, answer), _most_asked(limit))
        if requests <= run.reach and run.extend(requests) >= requests:
            let_in = run.let_in[requests - 1] if requests <= len(run.let_in) else 0
            enough = min(enough, max(run.need(requests), let_in))
    if not runs(enough):
        return enough
    if run.only_grows or requests * run.changes <= MOST_SEARCHED // _TRIES:
        return bisection.least_below(runs, enough)
    low, high = enough * 3 // 4, enough
    for _ in range(_FEW_TRIES):
        middle = (low + high) // 2
        low, high = (low, middle) if runs(middle) else (middle, high)
    return high


_TRIES, _FEW_TRIES = 32, 7
"""Pools that are tried for a burst, and for one whose replay is long: that is to a fifth of a per cent."""


def running_blocks(
    plan: Plan, usable: int, prompt: int, answer: int, encoder_tokens: int = 0, *, limit: int | None = None
) -> int:
    """`decode_blocks`, or more where prompts under way leave room for fewer requests than the sum says:
    so the closed form never says more than runs."""
    return _running_and_gate(plan, usable, (prompt, answer, encoder_tokens), limit)[0]


def _running_and_gate(
    plan: Plan, usable: int, shape: tuple[int, int, int], limit: int | None
) -> tuple[int, int]:  # fmt: skip
    """(`running_blocks`, `prompt_blocks`) of a shape: prompt, answer, encoder tokens."""
    prompt, answer, encoder_tokens = shape
    limit = plan.max_num_seqs if limit is None else limit
    tables, steps = tables_of(plan, encoder_tokens), _steps(plan, encoder_tokens)
    settled, gate = _settled_and_gate(tables, steps, prompt, answer)
    left = usable - max(0, gate - settled)
    if not settled or left < settled:
        return settled, gate
    most = min(left // settled, limit)
    more = more_in_flight(tables, steps, prompt)
    # One that ends sooner is not scheduled again, and frees nothing.
    if more is not None and answer > (steps.depth + 1) * (1 + steps.drafts):
        # Where all drafts are accepted, a step begins before the end is sure.
        beyond = steps.flight - 1 if steps.drafts else 0
        each = _settled_and_gate(tables, steps, prompt, answer + beyond)[0]
        if most * each + more <= left:
            return settled, gate
        sure = ceil_div(each * left, left - more) if left > more else 0
        if more and sure and (sure - settled) * LITTLE <= settled:
            return sure, gate
    runs = max_running(plan, usable, prompt, answer, encoder_tokens, limit=most)
    if runs >= most:
        return settled, gate
    return (ceil_div(left, runs) if runs else usable + 1), gate


def taken_of_blocks(
    plan: Plan, usable: int, shape: tuple[int, int, int], *, limit: int | None = None
) -> Taken | None:
    """The share of a pool of ``usable`` blocks that one request of a mix takes. shape: prompt, answer,
    encoder tokens; limit: max_num_seqs."""
    if usable <= 0:
        return None
    settled, gate = _running_and_gate(plan, usable, shape, limit)
    return Taken(Fraction(settled, usable), Fraction(max(0, gate - settled), usable))


LITTLE = 32
"""Where what `more_in_flight` may take adds no more than one block in so many to a request, it is set aside:
such bursts are long, and a mix has some hundred shapes to replay."""


def more_in_flight(tables: tuple[Table, ...], steps: Steps, prompt: int) -> int | None:
    """Blocks that a burst's prompts under way hold at most beyond what their requests settle at.

    Of windows and chunks tokens in flight, and two blocks begun for each prompt; of states the blocks that
    its parts under way end in, and their checkpoints. None: left to the replay (encoders).
    """
    if steps.encoder:
        return None
    under_way = steps.depth + steps.stride - 1  # blocks are given back when a request's turn comes
    tokens = under_way * (steps.batch if steps.chunked else max(steps.batch, prompt))
    prompts = tokens // max(1, prompt) + 2
    found = 0
    for table in tables:
        if table.rule == STATE:
            ends = (1 + int(table.checkpoint)) * (under_way + 1)
            begun = ceil_div(prompt + under_way, table.block)
            found += prompts * (min(begun, ends) - min(begun, 2)) * table.groups
        elif table.rule not in GROWING:
            found += (ceil_div(tokens, table.block) + 2 * prompts) * table.groups
    return found


def most_settled(table: Table, steps: Steps, done: int) -> int:
    if table.rule == FIXED:
        return table.span
    drafts = steps.drafts * steps.flight
    if table.rule == STATE:
        return (
            min(ceil_div(done + drafts, table.block), ceil_div(steps.flight + drafts, table.block) + 1)
            + table.spare
        )
    most = max(steps.longest, done + 1) if steps.longest else done + drafts + steps.ahead
    whole = ceil_div(min(done + drafts + steps.ahead, most), table.block)
    if table.rule == FULL:
        return whole
    seen = table.span + ceil_div(steps.depth, steps.stride) + drafts + steps.ahead
    return min(whole, ceil_div(seen, table.block) + (table.rule == WINDOW))


def prompt_blocks(plan: Plan, prompt: int, answer: int, encoder_tokens: int = 0) -> int:
    """Blocks that must be free to admit a request, and that it may hold while its prompt is computed."""
    return _settled_and_gate(tables_of(plan, encoder_tokens), _steps(plan, encoder_tokens), prompt, answer)[1]
