"""vLLM with pipeline stages: several batches are under way, each in a stage of its own.

vllm-project/vllm 0.32, 0.33: vllm/config/vllm.py (max_concurrent_batches), v1/engine/core.py
(step_with_batch_queue), v1/core/sched/scheduler.py and async_scheduler.py (next_decode_eligible_step). A
request whose token is under way has nothing to compute, so batches of a pipeline hold different requests;
with async scheduling, which knows no tokens, it has its next turn as many steps later as there are stages.
"""

from __future__ import annotations

from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.timeline import Trace
from kvplan.simulation.vllm.replica import Replica
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.scheduler import Scheduler
from kvplan.simulation.vllm.settings import Engine
from kvplan.simulation.vllm.step import Step


class PipelineScheduler(Scheduler):
    """number: steps scheduled so far, empty ones as well; eligible: by request the step of its next token."""

    def __init__(self, engine: Engine, jump: bool) -> None:
        super().__init__(engine, jump)
        self.jump = False  # requests that make answers are not in every step
        self.number = 0
        self.eligible: dict[Request, int] = {}

    def schedule(self) -> Step:
        self.number += 1
        step = super().schedule()
        if self.overlap:
            after = self.number + self.engine.stages
            for (request, _), ready in zip(step.parts, step.ready):
                if ready:
                    self.eligible[request] = after
        return step

    def leave(self, request: Request) -> None:
        self.eligible.pop(request, None)
        super().leave(request)

    def _wants(self, request: Request, threshold: int) -> int:
        if self.number < self.eligible.get(request, 0):
            return 0
        return super()._wants(request, threshold)


class Pipelined(Replica):
    """free_ns: when each stage is free. A step enters a stage once it has left the one before and the stage
    is free; its tokens are known when it has left the last."""

    def __init__(self, trace: Trace, engine: Engine, time: Clock, *, jump: bool, rows: bool) -> None:
        super().__init__(trace, engine, time, jump=jump, rows=rows)
        self.scheduler = PipelineScheduler(engine, jump)
        self.free_ns = [0] * engine.stages

    def run_step(self, step: Step, starts: int) -> int:
        at, lasts = starts, self.time.stages(step, self.engine.stages)
        for place, each in enumerate(lasts):
            at = self.free_ns[place] = max(at, self.free_ns[place]) + each
        self.free_at, step.ends_ns = self.free_ns[0], at
        return sum(lasts) // len(lasts)
