"""One engine in virtual time: requests arrive, steps are scheduled and end, nothing is computed.

A clock says how long a step takes (`time.clock`); a step's context sums, over the requests that it
computes for, the tokens that are computed once it is done. Requests that have arrived by the start
of a step's scheduling are added before it. With async scheduling the next step is scheduled while one runs
(vllm-project/vllm 0.32 vllm/v1/engine/core.py, step_with_batch_queue with a queue of two).
"""

from __future__ import annotations

from collections import deque

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.time.clock import Clock, StepTime
from kvplan.simulation.time.names import Names
from kvplan.simulation.time.refusals import never_fits
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import BEYOND, Timeline, Trace
from kvplan.simulation.vllm.fast_forward import fast_forward
from kvplan.simulation.vllm.pool import Run
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.scheduler import Scheduler
from kvplan.simulation.vllm.settings import RING, Engine, check
from kvplan.simulation.vllm.step import Step

__all__ = ["Replica", "StepTime", "Trace", "simulate"]


def simulate(trace: Trace, engine: Engine, time: Clock, *, jump: bool = True, rows: bool = False) -> Answer:
    """Serve a trace. jump: take uniform steps together (the answer is the same); rows: keep every step's row.

    Raises KvplanError for rows that are no requests, and where a request can never be served: vLLM would
    wait for ever.
    """
    check(engine)
    trace.check()
    if engine.stages > 1:
        raise KvplanError(
            "bad-simulation", "a pipeline's batches are served elsewhere", help="schedulers.simulate_any"
        )
    if engine.offload is not None:
        from kvplan.simulation.vllm.offload.replica import Offloaded

        return Offloaded(trace, engine, time, jump=jump, rows=rows).run()
    return Replica(trace, engine, time, jump=jump, rows=rows).run()


class Replica(Timeline):
    def __init__(self, trace: Trace, engine: Engine, time: Clock, *, jump: bool, rows: bool) -> None:
        super().__init__(trace, engine, time, jump=jump, rows=rows)
        self.engine = engine
        self.scheduler = Scheduler(engine, jump)
        self.queue: deque[Step] = deque()
        self.idle = 0  # steps without a token, one after the other
        self.blocks = sorted({group.block for group in engine.groups if group.kind != RING})
        self.names: dict[int, Names] = {}
        self.runs: dict[int, list[Run | None]] = {}
        if engine.caching:
            for block in self.blocks:
                self.names[block] = trace.names(engine.hashed, block)
                self.runs[block] = [None] * self.names[block].runs

    def advance(self, until: int = BEYOND) -> None:
        """Serve what has arrived. until: when a further request may come: no step is scheduled at or after
        that time, so that it is in time for the next one."""
        scheduler, decode_only = self.scheduler, self.scheduler.decode_only
        self.idle, self.until = 0, until
        while self.now < until:
            self.arrive()
            if not scheduler.busy and not self.queue:
                if self.coming >= len(self.arrivals):
                    break
                self.now = max(self.now, self.arrivals[self.coming].at_ns)
                continue
            if len(self.queue) == self.engine.depth - 1:
                while decode_only.count and not scheduler.loose and fast_forward(self) and self.now < until:
                    self.arrive()
                if self.now >= until:
                    break
            if not scheduler.busy or self._schedule():
                self.end(self.queue.popleft())
        self.answer.end_ns = self.now

    def _schedule(self) -> bool:
        """Schedule a step; whether one is to end before the next is scheduled."""
        scheduler, queue, depth = self.scheduler, self.queue, self.engine.depth
        step = scheduler.schedule()
        self.note(step)
        if not step.tokens and depth == 1:
            if not step.preempted and scheduler.unfinished:
                self.wait()
            return False
        self.idle = 0 if step.tokens or any(other.tokens for other in queue) else self.idle + 1
        if self.idle > 3 and scheduler.unfinished:
            self.wait()
            self.idle = 0
        queue.append(step)
        return len(queue) == depth or not (step.tokens or scheduler.busy)

    def come(self, number: int, row: Arrival) -> None:
        self.scheduler.add(self.request(number, row))

    @property
    def free(self) -> int:
        return self.scheduler.memory.pool.free

    @property
    def at_work(self) -> int:
        return self.scheduler.unfinished

    @property
    def busy(self) -> bool:
        return self.scheduler.busy

    def launch(self, under_way: Step | None) -> Step | None:
        if not self.scheduler.busy:
            return None
        step = self.scheduler.schedule()
        self.note(step)
        return step

    @property
    def queued(self) -> int:
        return len(self.scheduler.waiting)

    def begun(self) -> list[tuple[int, int]]:
        return [(one.computed, one.prompt) for one in self.scheduler.loose if one.computed < one.prompt]

    def request(self, number: int, row: Arrival) -> Request:
        made = Request(number, row.at_ns, row.prompt, row.answer, self.engine.length, row.priority)
        groups, whose = len(self.scheduler.memory.tables), self.place(number)
        for block, names in self.names.items():
            runs, path = self.runs[block], []
            place = 0
            for start, stop, run in names.paths[whose]:
                found = runs[run]
                if found is None:
                    found = runs[run] = Run(groups)
                path.append((start, stop, found))
                place = stop
            path.append((place, BEYOND, Run(groups)))
            made.path = made.paths[block] = path
            made.own = place
            made.known = max(made.known, place * block)
        return made

    def wait(self) -> None:
        """Nothing can be scheduled: until the next request comes."""
        if self.next_ns() == BEYOND:
            head = self.scheduler.waiting.head() if self.scheduler.waiting else self.scheduler.running[0]
            raise never_fits(head.number, head.tokens, self.engine.blocks)
        self.now = max(self.now, self.next_ns())

    def note(self, step: Step) -> None:
        """A step was scheduled: its columns, its row, when it ends."""
        answer, scheduler = self.answer, self.scheduler
        starts = max(self.now, self.free_at)
        if step.admitted:
            self.admitted(step.admitted, starts)
        if step.preempted:
            self.preempted(step.preempted)
        if not step.tokens:
            answer.empty += 1
            step.ends_ns = starts
            return
        answer.tokens += step.tokens
        answer.busy_ns += self.run_step(step, starts)
        answer.steps += 1
        if answer.rows is not None:
            answer.rows.append((
                starts, step.tokens, step.context, step.count, len(scheduler.running), len(scheduler.waiting),
                scheduler.memory.pool.free, len(step.preempted),
            ))  # fmt: skip

    def run_step(self, step: Step, starts: int) -> int:
        """Set when a step ends and when the next may start; how long it keeps the GPUs busy."""
        lasts = self.time.lasts(step)
        step.ends_ns = self.free_at = starts + lasts
        return lasts

    def end(self, step: Step) -> None:
        if step.tokens:
            self.now = step.ends_ns
        self.made(self.scheduler.update(step))
