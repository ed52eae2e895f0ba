"""An engine in virtual time that offloads: its scheduler with a connector, and transfers between steps."""

from __future__ import annotations

from kvplan.plans.arrival import Arrival
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.refusals import never_fits
from kvplan.simulation.vllm.offload.connector import Offloading
from kvplan.simulation.vllm.remote import RemoteScheduler
from kvplan.simulation.vllm.replica import Replica, Trace
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.settings import Engine
from kvplan.simulation.vllm.step import Step

_BEYOND = 1 << 62


class Offloaded(Replica):
    """A replica whose engine has ``offload``. loaded: of each request the tokens that it loaded when it was
    first admitted."""

    def __init__(self, trace: Trace, engine: Engine, time: Clock, *, jump: bool, rows: bool) -> None:
        super().__init__(trace, engine, time, jump=jump, rows=rows)
        offload = engine.offload
        assert offload is not None
        self.offloading = Offloading(offload, engine.block, engine.rules)
        self.remote = RemoteScheduler(engine, jump, self.offloading)
        self.scheduler = self.remote
        self.chunks = trace.names(engine.hashed, offload.chunk)

    def advance(self, until: int = _BEYOND) -> None:
        super().advance(until)
        self.answer.offloaded = self.offloading.counts

    def request(self, number: int, row: Arrival) -> Request:
        made, place = super().request(number, row), self.place(number)
        self.offloading.add(made, self.chunks.paths[place], place)
        return made

    def arrive(self) -> None:
        self.offloading.arrived(self.now, self.remote.remote.there)
        super().arrive()

    def next_ns(self) -> int:
        coming, moving = super().next_ns(), self.offloading.next_ns()
        return coming if moving is None or moving > coming else moving

    def wait(self) -> None:
        following = self.next_ns()
        if following == _BEYOND:
            lines = self.remote.lines
            head = [*lines.holding, *lines, *self.remote.running][0]
            raise never_fits(head.number, head.tokens, self.engine.blocks)
        self.now = max(self.now, following)

    def note(self, step: Step) -> None:
        offloading = self.offloading
        if offloading.moving:
            self.free_at = max(self.free_at, offloading.starts_after(step.admitted))
        starts = max(self.now, self.free_at)
        super().note(step)
        waits = offloading.scheduled(step.parts, starts, step.ends_ns)
        if waits and step.tokens:
            step.ends_ns += waits
            self.free_at = step.ends_ns
            self.answer.busy_ns += waits
