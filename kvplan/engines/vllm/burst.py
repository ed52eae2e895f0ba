"""vLLM's scheduler over a burst of equal requests, in whole blocks and steps.

vllm-project/vllm 0.32 vllm/v1/core/sched/scheduler.py (schedule). What a request holds: `holding`.

So a request is never affected by those that come after it: one course serves bursts of every length, and what
is asked of the pool can be recorded for each. Nothing is computed block by block or token by token: a request
that decodes changes what it holds at ages that follow from b alone. What a course takes is counted, and one
that would take more than `MOST_WORK` stops short: what it has seen run does run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from operator import itemgetter

from kvplan.engines.vllm.holding import FIXED, FULL, STATE, Holding, Steps, Table
from kvplan.units import ceil_div

MOST_WORK = 200_000
"""Steps, parts of prompts and changes of what is held that one course computes, and those that a burst may
have in one stretch. Ordinary questions seldom need a third of it, a million tokens in steps of a few more."""


class Course(Holding):
    """The burst's first requests, one after another, until so many as were asked for have been computed.

    prompt and answer: tokens of each request; the last token of an answer is never computed. usable: blocks
    of the pool, where requests wait for them; None: there are always enough, and ``asked`` says how many.
    most: requests that the engine lets in at all (max_num_seqs).

    searched: changes looked at for the question asked last.

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
        most: int = MOST_WORK,
    ) -> None:
        super().__init__(tables, steps, prompt, answer)
        self.usable, self.watermark = usable, watermark
        # Where nothing is given back, a burst takes most when it is at its longest: no step before decides.
        self.only_grows = not watermark and all(table.rule in (FULL, FIXED) for table in tables)
        self.most = most if self.only_grows else min(most, MOST_WORK // self.changes)
        self.work = 0
        self.searched = 0
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
        self._decoding = self._computed = 0
        self._leaving: defaultdict[int, int] = defaultdict(int)
        self._needs: dict[int, int] = {}

    def _progress(self, number: int, step: int) -> int:
        """Tokens of a request that are scheduled once a step is."""
        start, end = self.starts[number], self.ends[number]
        if step < start:
            return 0
        if end is not None and step >= end:
            return self.prompt + min(step - end, self.last_age)
        marks = self.marks[number]
        return marks[min(step - start, len(marks) - 1)]

    def holds(self, number: int, step: int) -> int:
        """Blocks of a request after a step has scheduled it."""
        end = self.ends[number]
        if end is not None and step - end >= self.steps.depth:
            return self.settled(min(step - end, max(self.last_age, 0)))
        done, processed = self._progress(number, step), self._progress(number, step - self.steps.depth)
        found = 0
        for table in self.tables:
            if table.rule == STATE:
                found += self._states(table, number, step, processed) * table.groups
            else:
                found += self.grown(table, done, processed) * table.groups
        return found

    def _states(self, table: Table, number: int, step: int, processed: int) -> int:
        """Blocks of an aligned state group while the prompt is computed or under way."""
        start, block = self.starts[number], table.block
        places: set[int] = set()
        before = 0
        for mark in self.marks[number][: step - start + 1]:
            if mark > before:
                places.add(ceil_div(mark, block) - 1)
                if self.keeps_checkpoint(table, before, mark):
                    places.add(ceil_div(mark, block) - 2)
            before = mark
        done = self._progress(number, step)
        if done > before:
            places.update(range(before // block, ceil_div(done, block)))
        first = (processed - 1) // block if processed else 0
        return sum(place >= first for place in places) + table.spare

    # ------------------------------------------------------------------------------------------- the course

    @property
    def spent(self) -> bool:
        return self.work > MOST_WORK

    @property
    def reach(self) -> int:
        """The longest burst that the course says anything of, so far as is known."""
        return min(self.most, self._computed) if self.spent else self.most

    def extend(self, count: int, usable: int | None = None) -> int:
        """Go on until ``count`` prompts are computed (or all that so many usable blocks let in), or it is
        sure that they never are; how many were."""
        while not self.stuck and not self.spent and self._computed < count:
            if usable is not None and self.let_in and self.let_in[-1] > usable:
                count = min(count, bisect_right(self.let_in, usable))
                if self._computed >= count:
                    break
            self._one_step()
            while self._computed < len(self.ends) and self.ends[self._computed] is not None:
                self._computed += 1
        return min(self._computed, count)

    def _one_step(self) -> None:
        self._step += 1
        self.work += 1
        step = self._step
        self._decoding -= self._leaving.pop(step, 0)
        budget = max(1, self.steps.batch - self._decoding * self.steps.each)
        if not self.steps.chunked:
            budget = max(budget, self.prompt)
        if not self.only_grows:
            self._decode(step)
        busy = False  # a prompt that no step takes a part of (fewer tokens than its alignment) waits for ever
        for number in list(self._prefilling):
            taken = self._compute(number, step, budget)
            busy = busy or taken > 0
            budget -= taken
            if not budget:
                break
        while budget and len(self.starts) < self.most and not self.spent:
            number = len(self.starts)
            chunk = self.chunk(0, budget)
            if not chunk or (not self.steps.chunked and budget < self.prompt):
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
            budget -= self._compute(number, step, chunk)
            self._waited = 0
            busy = True
        self._waited = 0 if busy or self._young else self._waited + 1
        if self._waited > self.period + self.steps.depth or (
            self.usable is not None and self._peak > self.usable
        ):
            self.stuck = True

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
            if step - end < self.steps.depth:
                self._young.append(number)
            else:
                self._plan_change(number, step - end)

    def _plan_change(self, number: int, age: int) -> None:
        coming, change = self.next_change(age)
        end = self.ends[number]
        assert end is not None
        if coming <= self.last_age:
            self._calendar[end + coming].append((number, coming, change))

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
            if not self.only_grows:
                self._young.append(number)
            self._decoding += 1
            self._leaving[step + self.last_age + 1] += 1
        if tokens and not self.only_grows:
            self._now(number, step)
        return tokens

    # --------------------------------------------------------------------------------------- what is needed

    def need(self, count: int) -> int:
        """Blocks without which a burst of ``count`` waits or has a request preempted.

        Two stretches decide beside the course itself: the steps after the last prompt, until windows have
        settled, and those before the first request ends, when all are as long as they ever are together. One
        that would end before the last prompt is computed counts as if it stayed.
        """
        found = self._needs.get(count)
        if found is None:
            found = self._needs[count] = self._needed(count)
        return found

    def _needed(self, count: int) -> int:
        ends = self._ends_of(count)
        last, over = max(ends), self._over(ends)
        if self.only_grows:
            longest = max(self.last_age, 0)
            return sum(self.settled(min(over - end, longest)) for end in ends)
        begin, asked = self.starts[count - 1], self.let_in[count - 1]
        if count < len(self.starts) and self.starts[count] <= over:
            begin, asked = self.starts[count], self.asked[count]
        early = min(over, last + self.steps.depth + self.period)
        asked = max(asked, self._stretch(ends, begin, early))
        if over > early:
            asked = max(asked, self._stretch(ends, max(early, over - self.period), over))
        return asked

    def together(self, count: int) -> int:
        """Blocks of a burst of ``count`` before the first of them ends."""
        ends = self._ends_of(count)
        over = self._over(ends)
        settled = min(over, max(ends) + self.steps.depth)
        return self._stretch(ends, max(settled, over - self.period), over)

    def _ends_of(self, count: int) -> list[int]:
        return [end for end in self.ends[:count] if end is not None]

    def _over(self, ends: list[int]) -> int:
        """The last step in which all are there."""
        return max(ends[0] + max(self.last_age, 0) + self.steps.depth - 1, *ends)

    def may_wait(self, count: int, usable: int) -> bool:
        """Whether one request more than ``count`` might run if it waited for its neighbours' prompts: it was
        its admission that asked for too much, and would not if they had settled."""
        if count >= len(self.let_in) or self.let_in[count] <= usable:
            return False
        least = min(self.settled(age) for age in self.first_ages)
        return least * count + self.gate <= usable

    def _stretch(self, ends: list[int], begin: int, end: int) -> int:
        """Most blocks in use in the steps begin … end."""
        depth, count = self.steps.depth, len(ends)
        longest, total = max(self.last_age, 0), 0
        events: list[tuple[int, int, int]] = []
        for number in range(count):
            ended = ends[number]
            age = begin - ended
            if age >= depth:
                total += self.settled(min(age, longest))
            else:
                held = self.holds(number, begin)
                total += held
                for step in range(begin + 1, min(end, ended + depth) + 1):
                    now = self.holds(number, step)
                    if now != held:
                        events.append((step, number, now - held))
                        held = now
                age = depth
            last = min(self.last_age, end - ended)
            while age < last:
                age, change = self.next_change(age)
                if age <= last:
                    events.append((ended + age, number, change))
        most = total
        events.sort()
        for _, _, change in events:
            total += change
            most = max(most, total)
        return most
