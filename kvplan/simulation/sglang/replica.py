"""SGLang in virtual time: batches are scheduled and end, nothing is computed.

sgl-project/sglang 0.5.23 python/sglang/srt/managers/scheduler.py (event_loop_normal, event_loop_overlap).
"""

from __future__ import annotations

from kvplan.plans.arrival import Arrival
from kvplan.simulation.sglang.request import Batch, Request
from kvplan.simulation.sglang.scheduler import Scheduler
from kvplan.simulation.sglang.settings import LPM, SglangEngine
from kvplan.simulation.time.batched import Batched
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.timeline import Trace


class SglangReplica(Batched[Batch]):
    def __init__(self, trace: Trace, engine: SglangEngine, time: Clock, *, jump: bool, rows: bool) -> None:
        self.engine, self.scheduler = engine, Scheduler(engine)
        super().__init__(trace, engine, time, self.scheduler, jump=jump, rows=rows, overlap=engine.overlap)
        page = engine.block
        self.names = trace.names(page, page) if engine.caching else None
        self.words = trace.names(1, 1) if engine.caching and page > 1 and engine.policy == LPM else None

    @property
    def free(self) -> int:
        memory = self.scheduler.memory
        return memory.free + memory.tree.idle

    @property
    def least(self) -> int:
        return self.scheduler.memory.least

    def begun(self) -> list[tuple[int, int]]:
        cut = self.scheduler.cut
        return [] if cut is None else [(cut.prefix, cut.prompt)]

    def come(self, number: int, row: Arrival) -> None:
        self.scheduler.add(self.request(number, row))

    def request(self, number: int, row: Arrival) -> Request:
        place = self.place(number)
        chain = Chain(() if self.names is None else self.names.paths[place], place)
        words = None if self.words is None else Chain(self.words.paths[place], place)
        answer = self.engine.answered(row.prompt, row.answer)
        return Request(number, row.at_ns, row.prompt, answer, chain, words)

    def fast_forward(self) -> bool:
        scheduler = self.scheduler
        running, last = scheduler.running, scheduler.last
        if not running or last is None or last.prompts or scheduler.cut is not None:
            return False
        if len(self.queue) != self.overlap or not scheduler.alone:
            return False
        steps = min(request.answer - request.made for request in running) - 1
        if steps < 2:
            return False
        full = scheduler.joined_by_none
        line = self.time.line(len(running), sum(request.written for request in running))
        steps = self.in_time(steps, line, full=full)
        steps, pages, last_pages = scheduler.memory.lasting(running, steps)
        if steps < 2:
            return False
        scheduler.full = full
        scheduler.memory.take(running, steps, pages, last_pages)
        scheduler.decay_ratio(steps)
        for request in running:
            request.made += steps
        self.taken(steps, len(running), line)
        return True
