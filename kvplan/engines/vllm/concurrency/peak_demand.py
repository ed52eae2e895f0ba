"""A burst's demand on the pool: the most blocks in use at once, for bursts of every length.

A request that decodes changes what it holds at ages that follow from b alone. Where only chunks give blocks
back (once in a whole chunk), the blocks in use fall at those steps alone, so only they are looked at; what
all requests have taken by a step follows from how many of them have each remainder by b:

    sum over requests of ceil((c + t) / b) = sum of (c + b - 1) // b + n * (t // b) + (those that carry at t)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from itertools import accumulate

from kvplan.engines.vllm.cache_layout.specs import Steps
from kvplan.engines.vllm.concurrency.blocks_over_time import CHUNK, FIXED, Table
from kvplan.engines.vllm.concurrency.burst import MOST_WORK, Burst
from kvplan.named import NamedTuple


class Run(Burst):
    """The burst's first requests, and what each burst of so many needs.

    searched: changes looked at for the question asked last; sparse: whether only chunks give blocks back.
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
        super().__init__(tables, steps, prompt, answer, usable, watermark, most)
        self.searched = 0
        self._needs: dict[int, int] = {}

    def need(self, count: int) -> int:
        """Blocks without which a burst of ``count`` waits or has a request preempted.

        Two stretches decide beside the run itself: the steps after the last prompt, until windows have
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
            return sum(self.settled(self._age(over, end)) * so_many for end, so_many in Counter(ends).items())
        begin, asked = self.starts[count - 1], self.let_in[count - 1]
        if count < len(self.starts) and self.starts[count] <= over:
            begin, asked = self.starts[count], self.asked[count]
        period = self.period * self.steps.stride
        early = min(over, last + self.ripe + period)
        asked = max(asked, self._stretch(ends, begin, early))
        if over > early:
            asked = max(asked, self._stretch(ends, max(early, over - period), over))
        return asked

    def together(self, count: int) -> int:
        """Blocks of a burst of ``count`` before the first of them ends."""
        ends = self._ends_of(count)
        over = self._over(ends)
        settled = min(over, max(ends) + self.ripe)
        return self._stretch(ends, max(settled, over - self.period * self.steps.stride), over)

    def _ends_of(self, count: int) -> list[int]:
        return [end for end in self.ends[:count] if end is not None]

    def _over(self, ends: list[int]) -> int:
        """The last step in which all are there."""
        return max(ends[0] + max(self.last_age, 0) * self.steps.stride + self.steps.depth - 1, *ends)

    def may_wait(self, count: int, usable: int) -> bool:
        """Whether one request more than ``count`` might run if it waited for its neighbours' prompts: it was
        its admission that asked for too much, and would not if they had settled."""
        if count >= len(self.let_in) or self.let_in[count] <= usable:
            return False
        least = min(self.settled(age) for age in self.first_ages)
        return least * count + self.gate <= usable

    def _stretch(self, ends: list[int], begin: int, end: int) -> int:
        """Most blocks in use in the steps begin … end."""
        first, last = max(begin, max(ends) + self.ripe), min(end, ends[0] + self.last_age)
        if not self.sparse or first >= last:
            return self._walked(ends, begin, end)
        most = _Taken(self, ends).most(first, last)
        if begin < first:
            most = max(most, self._walked(ends, begin, first))
        return max(most, self._walked(ends, last, end)) if last < end else most

    def _walked(self, ends: list[int], begin: int, end: int) -> int:
        """The same, change by change."""
        stride, ripe, count, total = self.steps.stride, self.ripe, len(ends), 0
        events: list[tuple[int, int, int]] = []
        for number in range(count):
            ended = ends[number]
            age = self._age(begin, ended) if begin >= ended else -1
            if age >= self.lag:
                total += self.settled(age)
            else:
                held = self.holds(number, begin)
                total += held
                for step in range(begin + 1, min(end, ended + ripe) + 1):
                    now = self.holds(number, step)
                    if now != held:
                        events.append((step, number, now - held))
                        held = now
                age = self.lag
            last = min(self.last_age, (end - ended) // stride)
            while age < last:
                age, change = self.next_change(age)
                if age <= last:
                    events.append((ended + age * stride, number, change))
        most = total
        events.sort()
        for _, _, change in events:
            total += change
            most = max(most, total)
        return most


class _Taken:
    """A burst whose prompts are all processed, of groups that give nothing back but whole chunks.

    ends: the last steps of the prompts, in order. Blocks taken by a step t: of every table and request,
    (t + v) // block, where v follows from the request.
    """

    def __init__(self, run: Run, ends: list[int]) -> None:
        self.run, self.counts = run, Counter(ends)
        self.fixed = sum(t.span * t.groups for t in run.tables if t.rule == FIXED) * len(ends)
        self.rows = [self._row(table) for table in run.tables if table.rule != FIXED]

    def _row(self, table: Table) -> _Row:
        steps, block = self.run.steps, table.block
        start = self.run.prompt + steps.drafts * steps.flight + steps.ahead + block - 1
        whole, carries = 0, [0] * (block + 1)
        places: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], [0]))
        for ended, number in self.counts.items():
            rounds, rest = divmod(start - ended, block)
            whole += rounds * number
            carries[rest] += number
            steps_of, so_many = places[rest]
            steps_of.append(ended)
            so_many.append(so_many[-1] + number)
        # carries[r]: requests whose remainder is r or more
        carries = list(accumulate(reversed(carries)))[::-1]
        return _Row(table, whole, carries, dict(places))

    def taken(self, step: int) -> int:
        """Blocks that have been taken once a step is scheduled, whatever was given back."""
        number = self.counts.total()
        return self.fixed + sum(row.taken(step, number) for row in self.rows)

    def _gives(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """(step, prompt's last step, blocks) of what is given back after step begin."""
        run, found = self.run, []
        for ended, number in self.counts.items():
            for table in run.tables:
                if table.rule != CHUNK:
                    continue
                seen, span, block = run.prompt - run.lag, table.span, table.block
                chunk = (seen + begin - ended) // span + 1
                while (step := ended + chunk * span - seen) <= end:
                    blocks = chunk * span // block - (chunk - 1) * span // block
                    found.append((step, ended, blocks * table.groups * number))
                    chunk += 1
        return sorted(found)

    def _given(self, step: int) -> int:
        """Blocks that have been given back once a step is scheduled."""
        run = self.run
        return sum(
            (run.prompt - run.lag + step - ended) // table.span * table.span // table.block
            * table.groups * number
            for ended, number in self.counts.items() for table in run.tables if table.rule == CHUNK
        )  # fmt: skip

    def most(self, begin: int, end: int) -> int:
        """Most blocks in use in the steps begin … end."""
        given = self._given(begin)
        most = self.taken(begin) - given
        for step, ended, blocks in self._gives(begin, end):
            # those whose prompts ended earlier are scheduled before it in the same step
            early = sum(row.takes(step, ended) for row in self.rows)
            most = max(most, self.taken(step - 1) + early - given)
            given += blocks
        return max(most, self.taken(end) - given)


class _Row(NamedTuple):
    """Blocks that one table's requests have taken. carries[r]: requests whose v leaves r or more by the
    block; places: of each remainder, the prompts' last steps and how many requests end before each."""

    table: Table
    whole: int
    carries: list[int]
    places: dict[int, tuple[list[int], list[int]]]

    def taken(self, step: int, number: int) -> int:
        rounds, rest = divmod(step, self.table.block)
        return (self.whole + number * rounds + self.carries[self.table.block - rest]) * self.table.groups

    def takes(self, step: int, before: int) -> int:
        """Blocks that requests take in a step whose prompts ended before that one."""
        steps_of, so_many = self.places.get(-step % self.table.block, ([], [0]))
        return so_many[bisect_left(steps_of, before)] * self.table.groups


MOST_SEARCHED = 2 * MOST_WORK
"""Changes that the bursts tried may have together; a search that needs more ends at what it knows to fit."""


def fitting(run: Run, usable: int, limit: int) -> int:
    """The largest burst, of ``limit`` requests at most, that needs no more than ``usable`` blocks."""
    limit = min(limit, run.most)
    if run.only_grows:  # a request never holds less than when its prompt has just been computed
        limit = min(limit, usable // max(1, run.settled(0)))
    count = min(16, limit)
    while True:
        done = run.extend(count, usable)
        if done < count or count == limit or run.let_in[count - 1] > usable:
            break
        count = min(limit, count * 2)
    high = min(done, bisect_right(run.let_in, usable))
    # Were all at their full length at once, so many would run; that is seldom far off.
    low = min(high, usable // max(1, run.settled(max(run.last_age, 0))))
    run.searched = 0
    if low and _need(run, low) > usable:
        low, high = 0, low - 1
    step = 1
    while low < high and run.searched <= MOST_SEARCHED and _need(run, min(high, low + step)) <= usable:
        low, step = min(high, low + step), step * 2
    high = min(high, low + step - 1)
    while low < high and run.searched <= MOST_SEARCHED:
        middle = (low + high + 1) // 2
        if _need(run, middle) <= usable:
            low = middle
        else:
            high = middle - 1
    return low


def _need(run: Run, count: int) -> int:
    run.searched += count * (1 if run.only_grows else run.changes)
    return run.need(count)


def most_running(run: Run, usable: int, limit: int) -> int:
    """The largest burst of which all run, where requests may wait for their neighbours' prompts to settle.

    run: one in which nobody waits. Waiting changes who is how long when, so it is replayed for this very
    pool; a burst that would not fit if nobody waited, when all are at their longest, is not counted: it would
    fit one pool and not a larger one.
    """
    found = fitting(run, usable, limit)
    if found >= min(limit, run.reach) or not run.may_wait(found, usable):
        return found
    patient = Run(run.tables, run.steps, run.prompt, run.answer, usable, run.watermark, run.most)
    most = fitting(patient, usable, limit)
    most = min(most, run.extend(most))
    while most > found and run.together(most) > usable:
        run.searched += most * run.changes
        most = most - 1 if run.searched <= MOST_SEARCHED else found
    return max(found, most)
