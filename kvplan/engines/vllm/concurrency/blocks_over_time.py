"""Blocks that one request holds over time, step by step, and the blocks that the scheduler needs free for it.

vllm-project/vllm 0.32 vllm/v1/core/sched/scheduler.py (schedule, _mamba_block_aligned_split),
vllm/v1/core/kv_cache_manager.py (allocate_slots) and vllm/v1/core/single_type_kv_cache_manager.py. A request
frees what it no longer sees when it is scheduled, before it takes new blocks; one that gets no token in a
step keeps what it has.
"""

from __future__ import annotations

from math import gcd, lcm

from kvplan.engines.vllm.cache_layout.specs import Steps
from kvplan.record import KeptHash, record
from kvplan.units import ceil_div

FULL, WINDOW, CHUNK, STATE, FIXED = "full", "window", "chunk", "state", "fixed"
GROWING = (FULL, FIXED)
"""Rules that give nothing back before a request ends."""


@record()
class Table(KeptHash):
    """``groups`` groups of one rule."""

    rule: str
    block: int
    """tokens of one block over all context ranks"""
    span: int = 0
    """a window's tokens less one and those retained; a chunk's tokens; fixed blocks"""
    groups: int = 1
    cap: int | None = None
    """most blocks that admission asks for: what one request may take at a time"""
    spare: int = 0
    """blocks of drafts beside a state"""
    checkpoint: bool = False
    """whether a state keeps one block more for the prompt's"""


class Holding:
    """One request of a burst of equal ones. prompt and answer: its tokens; the last is never computed.

    age: steps that it was given after its prompt's last; last_age: its age when it ends; gate: blocks that
    must be free to admit it; lag: its steps under way once its prompt is processed; ripe: steps from its
    prompt's last until then; period: ages after which it holds as much, growth aside; changes: how often at
    most it takes blocks or gives some back in so many, chunk by chunk where that is enough (``sparse``).
    """

    def __init__(self, tables: tuple[Table, ...], steps: Steps, prompt: int, answer: int) -> None:
        self.tables, self.steps, self.prompt, self.answer = tables, steps, prompt, answer
        # A plan is also asked for lengths beyond its own (what a longer one would take).
        self.longest = max(steps.longest, prompt + answer) if steps.longest else 0
        self.last_age = ceil_div(answer - 1, steps.gain)
        if (
            steps.gain > 1
        ):  # what is under way may be rejected: a step more is scheduled before the end is sure
            self.last_age += steps.flight - 1
        self.lag = ceil_div(steps.depth, steps.stride)
        self.ripe = self.lag * steps.stride
        self.period = lcm(*(_period(table, steps.gain) for table in tables))
        # Only chunks give blocks back, and every step makes one token: `concurrency.peak_demand`.
        capped = self.longest and self.taken(self.last_age) + steps.ahead > self.longest
        plain = steps.gain == steps.stride == 1 and not capped
        self.sparse = plain and {table.rule for table in tables} <= {FULL, FIXED, CHUNK}
        stretch = max(0, min(self.period + self.lag, self.last_age))
        gives = sum(stretch // table.span + 1 for table in tables if table.rule == CHUNK)
        if self.sparse and gives:
            stretch = min(stretch, ceil_div(prompt, steps.batch) + 2 * self.ripe)
        self.changes = sum(2 * (stretch * steps.gain // _often(table) + 1) for table in tables) + gives
        self.gate = sum(self._gate(table) * table.groups for table in tables)
        self._next: dict[int, tuple[int, int]] = {}
        self._settled: dict[int, int] = {}

    def _gate(self, table: Table) -> int:
        """Blocks that must be free for a new request (get_num_blocks_to_allocate of the whole prompt)."""
        if table.rule == FIXED:
            return table.span
        blocks = ceil_div(self.prompt, table.block)
        if table.rule == STATE:
            return min(blocks, 1 + self.keeps_checkpoint(table, 0, self.prompt)) + table.spare
        return blocks if table.cap is None else min(blocks, table.cap)

    @staticmethod
    def keeps_checkpoint(table: Table, start: int, end: int) -> int:
        return int(table.checkpoint and ceil_div(end, table.block) - 2 > (start - 1) // table.block)

    def settled(self, age: int) -> int:
        """Blocks of a request of this age, all steps of the prompt processed."""
        found = self._settled.get(age)
        if found is None:
            done, processed = self.taken(age), self.prompt + (age - self.lag) * self.steps.gain
            found = self._settled[age] = sum(
                self.grown(table, done, processed) * table.groups for table in self.tables
            )
        return found

    def taken(self, age: int) -> int:
        """Tokens that are scheduled for a request of this age, drafts under way included; none beyond the
        last place that a token may have."""
        steps, made = self.steps, self.prompt + age * self.steps.gain
        most = made + (1 + steps.drafts - steps.gain) * min(age, steps.flight)
        return min(most, self.longest - 1) if self.longest else most

    def grown(self, table: Table, done: int, processed: int) -> int:
        """Blocks in a group once ``done`` tokens are scheduled, drafts of all steps under way included, and
        ``processed`` of them processed (all steps but the last ``depth`` - 1 have ended)."""
        if table.rule == FIXED:
            return table.span
        if table.rule == STATE:  # of every block that a step ended in (mamba_cache_mode align)
            return ceil_div(done, table.block) - max(0, processed - 1) // table.block + table.spare
        slots = done + self.steps.ahead
        if self.longest:
            slots = min(slots, self.longest)
        blocks = ceil_div(slots, table.block)
        if table.rule == WINDOW:
            return blocks - max(0, processed - table.span) // table.block
        if table.rule == CHUNK:
            return blocks - processed // table.span * table.span // table.block
        return blocks

    def next_change(self, age: int) -> tuple[int, int]:
        """The next age at which a settled request holds more or fewer blocks, and by how many."""
        found = self._next.get(age)
        if found is None:
            ages = [later for table in self.tables for later in self._until(table, age)]
            coming = min(ages, default=self.last_age + 1)
            found = self._next[age] = coming, self.settled(coming) - self.settled(coming - 1)
        return found

    def _until(self, table: Table, age: int) -> tuple[int, ...]:
        """The next ages at which the group takes a block, and at which it gives one back."""
        steps, block = self.steps, table.block
        if table.rule == FIXED:
            return ()
        taken = self.prompt + (1 + steps.drafts - steps.gain) * steps.flight
        seen = self.prompt - self.lag * steps.gain
        if table.rule == STATE:
            return self._passes(taken, block, age), self._passes(seen, block, age)
        takes = self._passes(taken + steps.ahead, block, age)
        if table.rule == WINDOW:
            return takes, self._passes(seen - table.span + 1, block, age)
        if table.rule == CHUNK:
            return takes, self._passes(seen + 1, table.span, age)
        return (takes,)

    def _passes(self, start: int, block: int, age: int) -> int:
        """The first age after this at which start + gain · age goes beyond a further multiple of block."""
        now = max(1, ceil_div(start + self.steps.gain * age, block))
        return (now * block - start) // self.steps.gain + 1

    @property
    def first_ages(self) -> list[int]:
        """The first ages of a settled request, up to where it holds less again."""
        ages = [self.lag]
        while True:
            age, _ = self.next_change(ages[-1])
            if age > min(self.last_age, self.lag + self.period):
                return ages
            ages.append(age)

    def first(self, chunk: int) -> int:
        """Blocks that the first chunk of a prompt takes."""
        found = 0
        for table in self.tables:
            if table.rule == STATE:
                blocks = 1 + self.keeps_checkpoint(table, 0, chunk) + table.spare
            else:
                blocks = self.grown(table, chunk, 0)
            found += blocks * table.groups
        return found

    def chunk(self, done: int, budget: int) -> int:
        """Tokens of a prompt's next step (_mamba_block_aligned_split, _reserve_prefill_lookahead)."""
        end = min(self.prompt, done + budget)
        if self.steps.align:
            end = self._aligned(done, end)
        left = self.prompt - end
        return max(0, end - done - (self.steps.runway - left if 0 < left < self.steps.runway else 0))

    def _aligned(self, done: int, end: int) -> int:
        """Where a step ends that may end at ``end``, of a prompt with state groups."""
        block, prompt = self.steps.align, self.prompt
        last = self._kept(block)
        tail = self._kept(self.steps.hashed) if self.steps.hashed < block else 0
        if end >= prompt and any(
            table.checkpoint and self.keeps_checkpoint(table, done, end) for table in self.tables
        ):
            last = tail = 0
        if end < prompt:
            aligned = end // block * block
            if aligned > done or block <= self.steps.batch:
                end = aligned
        stops = ((done // block + 1) * block if done % block else 0, last, tail if last < tail else 0)
        return max(done, min((stop for stop in stops if done < stop < end), default=end))

    def _kept(self, block: int) -> int:
        """The last place of a prompt whose state a prefix hit can begin from
        (get_mamba_prefill_checkpoint_position)."""
        if self.steps.drops:
            return max(0, self.prompt // block * block - block)
        return (self.prompt - 1) // block * block


def _period(table: Table, gain: int) -> int:
    """Ages after which a settled request of the group holds as much again, growth aside."""
    if table.rule in (FIXED, FULL):
        return 1
    whole = table.span if table.rule == CHUNK else table.block
    return whole // gcd(whole, gain)


def _often(table: Table) -> int:
    """Tokens after which a group may take or give back a block."""
    return min(table.block, table.span) if table.rule == CHUNK else table.block
