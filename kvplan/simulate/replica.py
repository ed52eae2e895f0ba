"""One engine in virtual time: requests arrive, steps are scheduled and end, nothing is computed.

A clock says how long a step takes (`kvplan.simulate.clock`); a step's context sums, over the requests that it
computes for, the tokens that are computed once it is done. Requests that have arrived by the start
of a step's scheduling are added before it. With async scheduling the next step is scheduled while one runs
(vllm-project/vllm 0.32 vllm/v1/engine/core.py, step_with_batch_queue with a queue of two).
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Sequence

from kvplan.simulate.clock import Clock, StepTime
from kvplan.simulate.leap import leap
from kvplan.simulate.names import Arrival, Names, name
from kvplan.simulate.pool import ApartError, Run
from kvplan.simulate.refusals import check_arrivals, never_fits
from kvplan.simulate.request import Request
from kvplan.simulate.results import Answer
from kvplan.simulate.scheduler import Scheduler
from kvplan.simulate.settings import Engine, check
from kvplan.simulate.step import Step

_BEYOND = 1 << 62
FRUITLESS = 200
"""Preemptions for each request at work, without one token, after which nobody will come further: requests
that preempt each other in turn do so for ever."""

__all__ = ["Replica", "StepTime", "Trace", "simulate"]


class Trace:
    """Requests in order of arrival; ``wide``: tokens that one of their ids stands for. Names are worked
    out once for blocks of a size and kept, so that a sweep over engines pays once."""

    def __init__(self, arrivals: Sequence[Arrival], wide: int) -> None:
        self.arrivals, self.wide = tuple(arrivals), wide
        self._names: dict[tuple[int, int], Names] = {}
        self._checked = False

    def check(self) -> None:
        """Raise KvplanError where a row is no request; once."""
        if not self._checked:
            check_arrivals(self.arrivals, self.wide)
            self._checked = True

    def names(self, hashed: int, block: int) -> Names:
        found = self._names.get((hashed, block))
        if found is None:
            found = self._names[hashed, block] = name(self.arrivals, self.wide, hashed, block)
        return found


def simulate(trace: Trace, engine: Engine, time: Clock, *, jump: bool = True, rows: bool = False) -> Answer:
    """Serve a trace. jump: take uniform steps together (the answer is the same); rows: keep every step's row.

    Raises KvplanError for rows that are no requests, and where a request can never be served: vLLM would
    wait for ever.
    """
    check(engine)
    trace.check()
    if engine.offload is not None:
        from kvplan.simulate.offload.replica import Offloaded

        return Offloaded(trace, engine, time, jump=jump, rows=rows).run()
    try:
        return Replica(trace, engine, time, jump=jump, rows=rows).run()
    except ApartError:
        return Replica(trace, engine, time, jump=jump, rows=rows, merged=False).run()


class Replica:
    """merged: groups of equal rules share a table; raises ApartError where they come to differ."""

    def __init__(
        self, trace: Trace, engine: Engine, time: Clock, *, jump: bool, rows: bool, merged: bool = True
    ) -> None:
        self.trace, self.engine, self.time = trace, engine, time
        self.arrivals: Sequence[Arrival] = trace.arrivals
        self.scheduler = Scheduler(engine, jump, merged and jump)
        self.answer = Answer(len(self.arrivals), rows)
        self.coming = self.now = self.free_at = 0
        self.fruitless = 0  # preemptions since the last token that any request was given
        self.until = _BEYOND
        self.queue: deque[Step] = deque()
        self.blocks = sorted({group.block for group in engine.groups})
        self.names: dict[int, Names] = {}
        self.runs: dict[int, list[Run | None]] = {}
        if engine.caching:
            for block in self.blocks:
                self.names[block] = trace.names(engine.hashed, block)
                self.runs[block] = [None] * self.names[block].runs

    def run(self) -> Answer:
        """Serve everything. The collector of cycles is off meanwhile: it would look again and again at what
        is in use, and what is not is freed without it."""
        collects = gc.isenabled()
        gc.disable()
        try:
            self.advance()
        finally:
            if collects:
                gc.enable()
        return self.answer

    def advance(self, until: int = _BEYOND) -> None:
        """Serve what has arrived. until: when a further request may come: no step is scheduled at or after
        that time, so that it is in time for the next one."""
        answer, scheduler = self.answer, self.scheduler
        steady = scheduler.steady
        idle, depth, self.until = 0, self.engine.depth, until
        while self.now < until:
            self.arrive()
            if not scheduler.unfinished and not scheduler.gone and not self.queue:
                if self.coming >= len(self.arrivals):
                    break
                self.now = max(self.now, self.arrivals[self.coming].at_ns)
                continue
            if len(self.queue) == depth - 1:
                while steady.count and not scheduler.loose and leap(self):
                    if self.now >= until:
                        break
                    self.arrive()
                if self.now >= until:
                    break
            if scheduler.unfinished or scheduler.gone:
                step = scheduler.schedule()
                self.note(step)
                if not step.tokens and depth == 1:
                    if not step.preempted and scheduler.unfinished:
                        self.wait()
                    continue
                idle = 0 if step.tokens or any(other.tokens for other in self.queue) else idle + 1
                if idle > 3 and scheduler.unfinished:
                    self.wait()
                    idle = 0
                self.queue.append(step)
                if len(self.queue) < depth and (step.tokens or scheduler.unfinished or scheduler.gone):
                    continue
            self.end(self.queue.popleft())
        answer.end_ns = self.now

    def next_ns(self) -> int:
        """When the next request may come."""
        coming = self.coming
        return self.arrivals[coming].at_ns if coming < len(self.arrivals) else self.until

    def arrive(self) -> None:
        arrivals = self.arrivals
        while self.coming < len(arrivals) and arrivals[self.coming].at_ns <= self.now:
            row = arrivals[self.coming]
            if row.prompt >= self.engine.length:
                self.answer.columns["refused"][self.coming] = 1
            else:
                self.scheduler.add(self.request(self.coming, row))
            self.coming += 1

    def request(self, number: int, row: Arrival) -> Request:
        made = Request(number, row.at_ns, row.prompt, row.answer, self.engine.length, row.priority)
        groups = len(self.scheduler.memory.tables)
        for block, names in self.names.items():
            runs, path = self.runs[block], []
            place = 0
            for start, stop, run in names.paths[number]:
                found = runs[run]
                if found is None:
                    found = runs[run] = Run(groups)
                path.append((start, stop, found))
                place = stop
            path.append((place, _BEYOND, Run(groups)))
            made.path = made.paths[block] = path
            made.own = place
            made.known = max(made.known, place * block)
        return made

    def wait(self) -> None:
        """Nothing can be scheduled: until the next request comes."""
        if self.next_ns() == _BEYOND:
            head = self.scheduler.waiting.head() if self.scheduler.waiting else self.scheduler.running[0]
            raise never_fits(head.number, head.tokens, self.engine.blocks)
        self.now = max(self.now, self.next_ns())

    def note(self, step: Step) -> None:
        """A step was scheduled: its columns, its row, when it ends."""
        answer, time, scheduler = self.answer, self.time, self.scheduler
        columns = answer.columns
        starts = max(self.now, self.free_at)
        for request, hit in step.admitted:
            number = request.number
            if columns["admitted_step"][number] < 0:
                columns["admitted_step"][number] = answer.steps
                columns["admitted_ns"][number] = starts
                columns["cached_tokens"][number] = hit
            else:
                columns["cached_again_tokens"][number] += hit
        for request in step.preempted:
            columns["preemptions"][request.number] += 1
        if step.preempted:
            answer.preemptions += len(step.preempted)
            self.fruitless += len(step.preempted)
            if self.fruitless > FRUITLESS * (scheduler.unfinished + 1):
                worst = max(step.preempted, key=lambda request: request.tokens)
                raise never_fits(worst.number, worst.tokens, self.engine.blocks)
        if not step.tokens:
            answer.empty += 1
            step.ends_ns = starts
            return
        lasts = time.lasts(step)
        step.ends_ns = self.free_at = starts + lasts
        answer.tokens += step.tokens
        answer.busy_ns += lasts
        answer.steps += 1
        if answer.rows is not None:
            answer.rows.append((
                starts, step.tokens, step.context, step.count, len(scheduler.running), len(scheduler.waiting),
                scheduler.memory.pool.free, len(step.preempted),
            ))  # fmt: skip

    def end(self, step: Step) -> None:
        if step.tokens:
            self.now = step.ends_ns
        self.made(self.scheduler.update(step))

    def made(self, made: list[tuple[Request, bool]]) -> None:
        """Requests that have made a token now, and whether it was their last."""
        first, finished = self.answer.columns["first_token_ns"], self.answer.columns["finished_ns"]
        for request, done in made:
            self.fruitless = 0
            if first[request.number] < 0:
                first[request.number] = self.now
            if done:
                finished[request.number] = self.now
