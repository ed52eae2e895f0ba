"""SGLang in virtual time: batches are scheduled and end, nothing is computed.

sgl-project/sglang 0.5.23 python/sglang/srt/managers/scheduler.py (event_loop_normal, event_loop_overlap).
With the overlap scheduler a batch is made up while the one before it runs, without its results. Requests that
have arrived by then are in time. While running requests only make answers and nobody can join, steps are
taken together; ``jump=False`` takes them one by one and gives the same.
"""

from __future__ import annotations

from collections import deque

from kvplan.simulate.clock import Clock
from kvplan.simulate.names import Arrival
from kvplan.simulate.refusals import never_fits
from kvplan.simulate.sglang.batch import Batch
from kvplan.simulate.sglang.chain import Chain
from kvplan.simulate.sglang.request import Request
from kvplan.simulate.sglang.scheduler import Scheduler
from kvplan.simulate.sglang.settings import LPM, SglangEngine
from kvplan.simulate.timeline import BEYOND, Timeline, Trace


class SglangReplica(Timeline):
    """queue: batches under way. Rows keep every step, so they are taken one by one."""

    def __init__(
        self, trace: Trace, engine: SglangEngine, time: Clock, *, jump: bool, rows: bool, merged: bool = True
    ) -> None:
        super().__init__(trace, engine, time, jump=jump, rows=rows, merged=merged)
        self.engine, self.jump = engine, jump and not rows
        self.scheduler = Scheduler(engine)
        self.queue: deque[Batch] = deque()
        page = engine.block
        self.names = trace.names(page, page) if engine.caching else None
        self.words = trace.names(1, 1) if engine.caching and page > 1 and engine.policy == LPM else None

    @property
    def free(self) -> int:
        memory = self.scheduler.memory
        return memory.free + memory.tree.idle

    @property
    def at_work(self) -> int:
        return self.scheduler.unfinished

    def come(self, number: int, row: Arrival) -> None:
        self.scheduler.add(self.request(number, row))

    @property
    def queued(self) -> int:
        return len(self.scheduler.waiting)

    def begun(self) -> list[tuple[int, int]]:
        cut = self.scheduler.cut
        return [] if cut is None else [(cut.prefix, cut.prompt)]

    def request(self, number: int, row: Arrival) -> Request:
        chain = Chain(() if self.names is None else self.names.paths[number], number)
        words = None if self.words is None else Chain(self.words.paths[number], number)
        answer = self.engine.answered(row.prompt, row.answer)
        return Request(number, row.at_ns, row.prompt, answer, chain, words)

    def advance(self, until: int = BEYOND) -> None:
        scheduler, queue, depth, self.until = self.scheduler, self.queue, self.engine.depth, until
        while self.now < until:
            self.arrive()
            if not scheduler.unfinished and not queue:
                scheduler.idle()
                if self.coming >= len(self.arrivals):
                    break
                self.now = max(self.now, self.arrivals[self.coming].at_ns)
                continue
            if self.jump and self._leap():
                continue
            batch = scheduler.schedule(queue[-1] if queue else None)
            if scheduler.aborted:
                self._abort()
            if batch is not None:
                self.note(batch)
                queue.append(batch)
                if len(queue) < depth:
                    continue
            elif not queue:
                if scheduler.unfinished and not scheduler.running and scheduler.cut is None:
                    self._wait()
                continue
            self.end(queue.popleft())
        self.answer.end_ns = self.now

    def _wait(self) -> None:
        """Nothing can be scheduled: until the next request comes."""
        following = self.next_ns()
        if following == BEYOND:
            head = self.scheduler.waiting[0]
            raise never_fits(head.number, head.tokens, self.engine.blocks)
        self.now = max(self.now, following)

    def _abort(self) -> None:
        """Requests that are ended with an error: alone they did not fit."""
        for request in self.scheduler.aborted:
            self.answer.columns["refused"][request.number] = 1
        self.scheduler.aborted.clear()

    def note(self, batch: Batch) -> None:
        """A batch was made up: its columns, its row, when it ends."""
        answer = self.answer
        starts = max(self.now, self.free_at)
        if batch.admitted:
            self.admitted(batch.admitted, starts)
        if batch.preempted:
            self.preempted(batch.preempted)
        lasts = self.time.lasts(batch)
        batch.ends_ns = self.free_at = starts + lasts
        answer.tokens += batch.tokens
        answer.busy_ns += lasts
        answer.steps += 1
        if answer.rows is not None:
            answer.rows.append((
                starts, batch.tokens, batch.context, batch.count, len(self.scheduler.running),
                len(self.scheduler.waiting), self.scheduler.memory.free, len(batch.preempted),
            ))  # fmt: skip

    def end(self, batch: Batch) -> None:
        self.now = batch.ends_ns
        self.made(self.scheduler.update(batch))

    # --- steps that are taken together ---

    def _leap(self) -> bool:
        """Take as many steps as nobody can join, ends or lacks a page in; whether there were any."""
        scheduler, overlap = self.scheduler, self.engine.overlap
        running, last = scheduler.running, scheduler.last
        if not running or last is None or last.prompts or scheduler.cut is not None:
            return False
        if len(self.queue) != overlap or (scheduler.waiting and not scheduler.full):
            return False
        steps = min(request.answer - request.made for request in running) - 1
        if steps < 2:
            return False
        count = len(running)
        first, more, most = self.time.line(count, sum(request.written for request in running))
        starts = max(self.now, self.free_at)
        limit = self.until if scheduler.full else min(self.next_ns(), self.until)
        steps = min(steps, most, self._in_time(limit - starts, first, more) + overlap)
        steps, pages, last_pages = scheduler.memory.lasting(running, steps)
        if steps < 2:
            return False
        scheduler.memory.take(running, steps, pages, last_pages)
        scheduler.decay_ratio(steps)
        for request in running:
            request.made += steps
        lasts = steps * first + more * (steps * (steps + 1) // 2)
        self.free_at = starts + lasts
        self.now = self.free_at
        if overlap:
            self.now -= first + more * steps
            self.queue[0].ends_ns = self.free_at
        self.answer.steps += steps
        self.answer.tokens += steps * count
        self.answer.busy_ns += lasts
        self.fruitless = 0
        return True

    @staticmethod
    def _in_time(span: int, first: int, more: int) -> int:
        """How many steps begin within so many ns."""
        if span <= 0 or span >= BEYOND >> 1:
            return BEYOND if span > 0 else 0
        low, high = 1, 2
        while (high - 1) * first + more * ((high - 1) * high // 2) < span:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if (middle - 1) * first + more * ((middle - 1) * middle // 2) < span:
                low = middle
            else:
                high = middle
        return low
