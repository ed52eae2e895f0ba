"""What one request holds of vLLM's blocks, step by step, and what the scheduler asks of the pool for it.

vllm-project/vllm 0.32 vllm/v1/core/sched/scheduler.py (schedule, _mamba_block_aligned_split),
vllm/v1/core/kv_cache_manager.py (allocate_slots) and vllm/v1/core/single_type_kv_cache_manager.py.

A request holds, after a step has scheduled it up to c tokens, p of which are processed (all steps but the
last ``depth`` - 1 have ended), in a group of blocks of b tokens:

    full       ceil((c + ahead) / b)
    window     ceil((c + ahead) / b) - max(0, p - span) // b         span = window - 1 + retained
    chunk      ceil((c + ahead) / b) - (p // span) * span // b       span = the chunk
    state      one for every block that a step ended in, from (p - 1) // b on (mamba_cache_mode align)
    fixed      span

It frees what it no longer sees when it is scheduled, before it takes new blocks. First come, first served:
the requests that run are scheduled first, in their order, one token each once their prompts are computed;
what is left of max_num_batched_tokens goes to prompts. One that waits is admitted where blocks for its whole
prompt are free (at most what one request may take at a time: ``cap``) and the watermark beside them.
"""

from __future__ import annotations

from kvplan.record import KeptHash, record
from kvplan.units import ceil_div

FULL, WINDOW, CHUNK, STATE, FIXED = "full", "window", "chunk", "state", "fixed"


@record()
class Table(KeptHash):
    """``groups`` groups of one rule. block: tokens of one block over all context ranks; span: as above; cap:
    most blocks that admission asks for; spare: blocks of drafts beside a state; checkpoint: whether a state
    keeps one block more for the prompt's."""

    rule: str
    block: int
    span: int = 0
    groups: int = 1
    cap: int | None = None
    spare: int = 0
    checkpoint: bool = False


@record()
class Steps(KeptHash):
    """What the scheduler's settings come to.

    batch: max_num_batched_tokens; depth: steps under way at once, the one that is scheduled among them; each:
    tokens of a step that a decoding request takes; ahead: slots beyond the last token (drafts); chunked:
    whether prompts may be cut; align: tokens at whose multiples prompts are cut (state groups), 0: anywhere;
    hashed: tokens of the finest prefix hash.
    """

    batch: int
    depth: int = 1
    each: int = 1
    ahead: int = 0
    chunked: bool = True
    align: int = 0
    hashed: int = 0


class Holding:
    """One request of a burst of equal ones. prompt and answer: its tokens; the last is never computed.

    gate: blocks that must be free to admit it; period: steps after which it holds as much, growth aside;
    changes: how often at most it takes blocks or gives some back in so many steps.
    """

    def __init__(self, tables: tuple[Table, ...], steps: Steps, prompt: int, answer: int) -> None:
        self.tables, self.steps, self.prompt, self.last_age = tables, steps, prompt, answer - 1
        self.period = max((_period(table) for table in tables), default=1)
        stretch = max(0, min(self.period + steps.depth, self.last_age))
        self.changes = sum(2 * (stretch // _often(table) + 1) for table in tables) or 1
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
        """Blocks of a request ``age`` steps after its prompt's last, all steps of the prompt processed."""
        found = self._settled.get(age)
        if found is None:
            done = self.prompt + age
            found = self._settled[age] = sum(
                self.grown(table, done, done - self.steps.depth) * table.groups for table in self.tables
            )
        return found

    def grown(self, table: Table, done: int, processed: int) -> int:
        if table.rule == FIXED:
            return table.span
        if table.rule == STATE:
            return ceil_div(done, table.block) - max(0, processed - 1) // table.block + table.spare
        blocks = ceil_div(done + self.steps.ahead, table.block)
        if table.rule == WINDOW:
            return blocks - max(0, processed - table.span) // table.block
        if table.rule == CHUNK:
            return blocks - processed // table.span * table.span // table.block
        return blocks

    def next_change(self, age: int) -> tuple[int, int]:
        """The next age at which a settled request holds more or fewer blocks, and by how many."""
        found = self._next.get(age)
        if found is None:
            ages = [age + 1 + ahead for table in self.tables for ahead in self._until(table, age + 1)]
            coming = min(ages, default=self.last_age + 1)
            found = self._next[age] = coming, self.settled(coming) - self.settled(coming - 1)
        return found

    def _until(self, table: Table, age: int) -> tuple[int, ...]:
        """Steps from ``age`` until the group takes a block, and until it gives one back."""
        done = self.prompt + age
        if table.rule == FIXED:
            return ()
        if table.rule == STATE:
            return (1 - done) % table.block, (1 + self.steps.depth - done) % table.block
        takes = (1 - self.steps.ahead - done) % table.block
        if table.rule == WINDOW:
            return takes, (self.steps.depth + table.span - done) % table.block
        if table.rule == CHUNK:
            return takes, (self.steps.depth - done) % table.span
        return (takes,)

    @property
    def first_ages(self) -> list[int]:
        """The first ages of a settled request, up to where it holds less again."""
        ages = [self.steps.depth]
        while True:
            age, _ = self.next_change(ages[-1])
            if age > min(self.last_age, self.steps.depth + self.period):
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
        """Tokens of a prompt's next step (state groups: _mamba_block_aligned_split)."""
        block, prompt = self.steps.align, self.prompt
        end = min(prompt, done + budget)
        if not block:
            return end - done
        last = (prompt - 1) // block * block
        tail = (prompt - 1) // self.steps.hashed * self.steps.hashed if self.steps.hashed < block else 0
        if end >= prompt and any(
            table.checkpoint and self.keeps_checkpoint(table, done, end) for table in self.tables
        ):
            last = tail = 0
        if end < prompt:
            aligned = end // block * block
            if aligned > done or block <= self.steps.batch:
                end = aligned
        stops = ((done // block + 1) * block if done % block else 0, last, tail if last < tail else 0)
        return max(0, min((stop for stop in stops if done < stop < end), default=end) - done)


def _period(table: Table) -> int:
    """Steps after which a settled request of the group holds as much again, growth aside."""
    if table.rule in (FIXED, FULL):
        return 1
    return table.span if table.rule == CHUNK else table.block


def _often(table: Table) -> int:
    """Tokens after which a group may take or give back a block."""
    return min(table.block, table.span) if table.rule == CHUNK else table.block
