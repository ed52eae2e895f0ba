"""TensorRT-LLM in virtual time: batches are scheduled and end, nothing is computed.

NVIDIA/TensorRT-LLM around 1.2 tensorrt_llm/_torch/pyexecutor/py_executor.py (_executor_loop,
_executor_loop_overlap). Read, not asked.
"""

from __future__ import annotations

from kvplan.plans.arrival import Arrival
from kvplan.simulation.time.batched import Batched
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.timeline import Trace
from kvplan.simulation.trtllm.request import Batch, Request
from kvplan.simulation.trtllm.scheduler import Scheduler
from kvplan.simulation.trtllm.settings import TrtllmEngine


class TrtllmReplica(Batched[Batch]):
    def __init__(self, trace: Trace, engine: TrtllmEngine, time: Clock, *, jump: bool, rows: bool) -> None:
        self.engine, self.scheduler = engine, Scheduler(engine)
        super().__init__(trace, engine, time, self.scheduler, jump=jump, rows=rows, overlap=engine.overlap)
        self.names = trace.names(1, 1) if engine.caching else None

    @property
    def free(self) -> int:
        return self.scheduler.memory.free

    def begun(self) -> list[tuple[int, int]]:
        return [(one.position, one.prompt) for one in self.scheduler.prompts if one.begun]

    def come(self, number: int, row: Arrival) -> None:
        self.scheduler.add(self.request(number, row))

    def request(self, number: int, row: Arrival) -> Request:
        place = self.place(number)
        chain = Chain(() if self.names is None else self.names.paths[place], place)
        return Request(number, row.at_ns, row.prompt, self.engine.answered(row.prompt, row.answer), chain)

    def end(self, batch: Batch) -> None:
        if batch.answers:
            self.fruitless = 0
        super().end(batch)

    def fast_forward(self) -> bool:
        scheduler, answers = self.scheduler, self.scheduler.answers
        if not scheduler.steady or len(self.queue) != self.overlap or not answers:
            return False
        if scheduler.queue and not scheduler.full:  # somebody has come
            return False
        steps = answers.until_end() - 1
        if steps < 2:
            return False
        line = self.time.line(len(answers), answers.written)
        steps = self.in_time(steps, line, full=scheduler.full)
        while steps >= 2 and answers.needed(steps) > scheduler.memory.free:
            steps //= 2
        if steps < 2:
            return False
        answers.step(steps)
        self.taken(steps, len(answers), line)
        return True
