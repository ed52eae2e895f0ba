"""vLLM's scheduler over a burst of equal requests, in whole blocks and steps.

vllm-project/vllm 0.32 vllm/v1/core/sched/scheduler.py (schedule): first come, first served, so a request is
never affected by those that come after it, one run serves bursts of every length, and what is asked of the
pool can be recorded for each. Nothing is computed block by block or token by token: a request that decodes
changes what it holds at ages that follow from b alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from operator import itemgetter

from kvplan.engines.vllm.cache_layout.specs import Steps
from kvplan.engines.vllm.concurrency.blocks_over_time import GROWING, STATE, Holding, Table
from kvplan.units import ceil_div

MOST_WORK = 200_000
"""Steps, parts of prompts and changes of what is held that one run computes, and those that a burst may have
in one stretch; one that would take more stops short, and what it has seen run does run. Ordinary questions
seldom need a third of it, a million tokens in steps of a few more."""

_FORGOTTEN: list[int] = []
"""In place of a prompt's parts that nobody looks at again: a list for each of 100,000 requests is a second of
every full collection in a process that answers many questions."""


class Burst(Holding):
    """The burst's first requests, one after another, until so many as were asked for have been computed.

    prompt and answer: tokens of each request; the last token of an answer is never computed. usable: blocks
    of the pool, where requests wait for them; None: there are always enough, and ``asked`` says how many.
    most: requests that the engine lets in at all (max_num_seqs).

    asked[n]: most blocks that a burst of n needs until request n + 1 is let in; let_in[n]: what it takes
    until request n + 1 is.
    """

    def __init__(
        self,
        tables: tuple[Table, ...],
        steps: Steps,
        prompt: int,
        answer: int,
        usable: int | None = None,
        watermark: int = 0,
        most: int | None = None,
    ) -> None:
        super().__init__(tables, steps, prompt, answer)
        self.usable, self.watermark = usable, watermark
        # Where nothing is given back, a burst takes most when it is at its longest: no step before decides.
        self.only_grows = not watermark and all(table.rule in GROWING for table in tables)
        most = MOST_WORK if most is None else most
        self.most = most if self.only_grows else min(most, MOST_WORK // self.changes)
        self.work = 0
        self.starts: list[int] = []
        self.ends: list[int | None] = []
        self.marks: list[list[int]] = []
        self.asked: list[int] = [0]
        self.let_in: list[int] = []
        self.stuck = False
        self._step = self._peak = self._held = self._waited = 0
        self._holding: list[int] = []
        self._young: list[int] = []
        self._prefilling: list[int] = []
        self._calendar: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self._encoder_room = max(steps.encoders, steps.encoder)
        self._decoding = [0] * steps.stride
        self._computed = 0
        self._leaving: defaultdict[int, int] = defaultdict(int)

    def _age(self, step: int, end: int) -> int:
        """Steps that a request was given after its prompt's last."""
        return min((step - end) // self.steps.stride, max(self.last_age, 0))

    def _progress(self, number: int, step: int) -> int:
        """Tokens of a request that are scheduled once a step is."""
        start, end = self.starts[number], self.ends[number]
        if step < start:
            return 0
        if end is not None and step >= end:
            return self.prompt + self._age(step, end) * self.steps.gain
        marks = self.marks[number]
        return marks[min(step - start, len(marks) - 1)]

    def holds(self, number: int, step: int) -> int:
        """Blocks of a request after a step: as its last step left it, in which it was given a token."""
        end = self.ends[number]
        if end is not None and step >= end:
            age = self._age(step, end)
            if age >= self.lag:
                return self.settled(age)
            step, done = end + age * self.steps.stride, self.taken(age)
        else:
            step = self._last_part(number, step)
            done = self._progress(number, step)
        processed = self._progress(number, step - self.steps.depth)
        found = 0
        for table in self.tables:
            if table.rule == STATE:
                found += self._states(table, number, step, done, processed) * table.groups
            else:
                found += self.grown(table, done, processed) * table.groups
        return found

    def _last_part(self, number: int, step: int) -> int:
        """The last step that took a part of a prompt."""
        start, marks = self.starts[number], self.marks[number]
        place = min(step - start, len(marks) - 1)
        while place > 0 and marks[place] == marks[place - 1]:
            place -= 1
        return start + place

    def _states(self, table: Table, number: int, step: int, done: int, processed: int) -> int:
        """Blocks of an aligned state group while the prompt is computed or under way."""
        block, marks = table.block, self.marks[number]
        steps = min(step - self.starts[number] + 1, len(marks))
        first = (processed - 1) // block if processed else 0
        # Parts that end in earlier blocks leave nothing.
        begin = bisect_right(marks, first * block, 0, max(steps, 0))
        places: set[int] = set()
        before = marks[begin - 1] if begin else 0
        for mark in marks[begin:steps]:
            if mark > before:
                places.add(ceil_div(mark, block) - 1)
                if self.keeps_checkpoint(table, before, mark):
                    places.add(ceil_div(mark, block) - 2)
            before = mark
        if done > before:
            places.update(range(before // block, ceil_div(done, block)))
        return sum(place >= first for place in places) + table.spare

    # ------------------------------------------------------------------------------------------- the run

    @property
    def spent(self) -> bool:
        return self.work > MOST_WORK

    @property
    def reach(self) -> int:
        """The longest burst that the run says anything of, so far as is known."""
        return min(self.most, self._computed) if self.spent else self.most

    def extend(self, count: int, usable: int | None = None) -> int:
        """Go on until ``count`` prompts are computed (or all that so many usable blocks let in), or it is
        sure that they never are; how many were."""
        while not self.stuck and not self.spent and self._computed < count:
            if usable is not None and self.let_in and self.let_in[-1] > usable:
                count = min(count, bisect_right(self.let_in, usable))
                if self._computed >= count:
                    break
            if self.only_grows:
                self._skip()
            self._one_step()
            while self._computed < len(self.ends) and self.ends[self._computed] is not None:
                self._computed += 1
        return min(self._computed, count)

    def _skip(self) -> None:
        """Go beyond the steps that the oldest prompt under way takes whole, while no request ends.

        Where requests only grow nothing else happens in them: no step but a prompt's last is looked at again.
        They count as steps that were computed, so a run reaches as far.
        """
        steps = self.steps
        if not self._prefilling or steps.stride > 1 or steps.align or steps.encoder:
            return
        marks = self.marks[self._prefilling[0]]
        room = steps.batch - self._decoding[0] * (1 + steps.drafts + steps.slots) - steps.slots
        if room < 1:
            return
        # The last whole step, and what a step leaves for its last (`chunk`), are taken one by one.
        skipped = min(
            (self.prompt - marks[-1] - steps.runway) // room - 1,
            (MOST_WORK - self.work) // 2,
            next(iter(self._leaving), self._step + self.prompt) - self._step - 1,
        )
        if skipped > 0:
            marks.append(marks[-1] + skipped * room)
            self._step += skipped
            self.work += 2 * skipped
            self._waited = 0

    def _one_step(self) -> None:
        self._step += 1
        self.work += 1
        step, steps = self._step, self.steps
        turn = step % steps.stride
        self._decoding[turn] -= self._leaving.pop(step, 0)
        # One token and its drafts for each request whose prompt is computed (in a pipeline every ``stride``
        # steps); prompts have the rest.
        budget = steps.batch - self._decoding[turn] * (1 + steps.drafts + steps.slots)
        encoders = self._encoders(step)
        if not self.only_grows:
            self._decode(step)
        left = self._go_on(step, budget)
        # A prompt that no step takes a part of (fewer tokens than its alignment) waits for ever.
        busy = self._let_in(step, left, encoders) or left < budget
        self._waited = 0 if busy or self._young else self._waited + 1
        if self._waited > self.period * steps.stride + self.ripe or (
            self.usable is not None and self._peak > self.usable
        ):
            self.stuck = True

    def _go_on(self, step: int, budget: int) -> int:
        """Prompts under way: what is left of the step's tokens."""
        slots = self.steps.slots
        for number in list(self._prefilling):
            if budget <= slots:
                break
            taken = self._compute(number, step, budget - slots)
            budget -= taken + slots if taken else 0
        return budget

    def _let_in(self, step: int, budget: int, encoders: int) -> bool:
        """New requests, as the tokens, the encoders and the blocks of the whole prompt, with the watermark
        beside them, allow; whether one was let in."""
        steps, before = self.steps, len(self.starts)
        while budget > steps.slots and encoders and len(self.starts) < self.most and not self.spent:
            number = len(self.starts)
            chunk = self.chunk(0, budget - steps.slots)
            if not chunk or (not steps.chunked and chunk < self.prompt):
                break
            need = 0
            if not self.only_grows:
                need = self._held + max(self.gate, self.first(chunk)) + (self.watermark if number else 0)
            if self.usable is not None and need > self.usable:
                break
            if number:
                self.asked.append(self._peak)
            self.starts.append(step)
            self.ends.append(None)
            self.marks.append([])
            self._holding.append(0)
            self._prefilling.append(number)
            self._peak = max(self._peak, need)
            self.let_in.append(self._peak)
            budget -= self._compute(number, step, chunk) + steps.slots
            encoders -= 1
            self._encoder_room -= steps.encoder
        return len(self.starts) > before

    def _encoders(self, step: int) -> int:
        """Requests whose encoders this step may run.

        v1/core/encoder_cache_manager.py (EncoderDecoderCacheManager): what an encoder takes of the cache is
        given back with each step of its request that has ended, not with the first alone.
        """
        one = self.steps.encoder
        if not one:
            return self.most
        self._encoder_room += one * bisect_right(self.starts, step - self.steps.depth)
        return min(max(1, self.steps.encoders // one), self._encoder_room // one)

    def _decode(self, step: int) -> None:
        """Requests whose prompts are computed: what they take and give back in this step, in their order."""
        changes = self._calendar.pop(step, [])
        changes.sort(key=itemgetter(0))
        self.work += len(changes)
        for number, age, change in changes:
            self._held += change
            self._holding[number] += change
            self._peak = max(self._peak, self._held)
            self._plan_change(number, age)
        young = self._young
        self._young = []
        for number in young:
            self._now(number, step)
            end = self.ends[number]
            assert end is not None
            if step - end < self.ripe:
                self._young.append(number)
            else:
                self._plan_change(number, self.lag)

    def _plan_change(self, number: int, age: int) -> None:
        coming, change = self.next_change(age)
        end = self.ends[number]
        assert end is not None
        if coming <= self.last_age:
            self._calendar[end + coming * self.steps.stride].append((number, coming, change))

    def _now(self, number: int, step: int) -> None:
        self.work += 1 + (len(self.marks[number]) >> 4 if self.steps.align else 0)  # states look at each part
        held = self.holds(number, step)
        self._held += held - self._holding[number]
        self._holding[number] = held
        self._peak = max(self._peak, self._held)

    def _compute(self, number: int, step: int, budget: int) -> int:
        """Schedule more of a prompt; how many tokens."""
        marks = self.marks[number]
        done = marks[-1] if marks else 0
        tokens = self.chunk(done, budget)
        marks.append(done + tokens)
        self.work += 1
        if done + tokens >= self.prompt:
            self.ends[number] = step
            self._prefilling.remove(number)
            if self.only_grows:
                self.marks[number] = _FORGOTTEN
            else:
                self._young.append(number)
            self._decoding[step % self.steps.stride] += 1
            self._leaving[step + (self.last_age + 1) * self.steps.stride] += 1
        if tokens and not self.only_grows:
            self._now(number, step)
        return tokens
