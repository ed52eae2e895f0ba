"""SGLang's scheduler, one batch at a time: prompts first, else one token for each running request.

sgl-project/sglang 0.5.23 python/sglang/srt/managers/scheduler.py (get_next_batch_to_run,
_get_new_batch_prefill_raw, update_running_batch), schedule_batch.py (retract_decode, mix_with_running),
scheduler_components/batch_result_processor.py and new_token_ratio_tracker.py.

What one step of SGLang computes: prompts, or one token for each running request, or (mixed) both.
"""

from __future__ import annotations

from kvplan.simulation.sglang.memory import Memory
from kvplan.simulation.sglang.prefill import FULL, GOES_ON, OTHER, Adder
from kvplan.simulation.sglang.queue import Queue
from kvplan.simulation.sglang.request import Batch, Request
from kvplan.simulation.sglang.settings import DECAY_STEPS, INITIAL_RATIO, LEAST_SHARE, SglangEngine
from kvplan.simulation.sglang.state_memory import StateMemory
from kvplan.simulation.sglang.window_memory import WindowMemory
from kvplan.simulation.sglang.window_prefill import WindowAdder

AHEAD = 20
"""Steps for which a retraction makes room (SGLANG_RETRACT_DECODE_STEPS)."""


def memory_of(engine: SglangEngine) -> Memory:
    """Its pages, with a second pool for windows or states where the model has one."""
    if engine.window:
        return WindowMemory(engine)
    return StateMemory(engine) if engine.state_slots else Memory(engine)


class Scheduler:
    """running: who makes answers; full: nobody may join until one leaves (batch_is_full); last: the batch of
    the last turn; cut: whose prompt is cut; ratio: of their answers, what running requests are expected to
    make; aborted: requests that did not fit even alone, of the last turn."""

    def __init__(self, engine: SglangEngine) -> None:
        self.engine = engine
        self.memory = memory_of(engine)
        self.queue = Queue(engine, self.memory)
        self.running: list[Request] = []
        self.full = False
        self.last: Batch | None = None
        self.cut: Request | None = None
        self.unfinished = 0
        initial = min(INITIAL_RATIO * engine.conservativeness, 1.0)
        self.initial, self.least = initial, min(initial * LEAST_SHARE, 1.0)
        self.decay = (self.initial - self.least) / DECAY_STEPS
        self.ratio = self.initial
        self.aborted: list[Request] = []

    @property
    def waiting(self) -> list[Request]:
        return self.queue.waiting

    @property
    def stuck(self) -> bool:
        return bool(self.unfinished) and not self.running and self.cut is None

    @property
    def joined_by_none(self) -> bool:
        """Whether nobody that waits may join until somebody leaves. With windows that is asked anew with each
        step, and sure where there is no place for one."""
        return bool(self.waiting) and self._allowed() <= 0 if self.engine.window else self.full

    @property
    def alone(self) -> bool:
        """Whether the next step is one of those that run already."""
        return not self.waiting or self.joined_by_none

    def add(self, request: Request) -> None:
        self.queue.waiting.append(request)
        self.unfinished += 1

    def idle(self) -> None:
        """Nothing is left to do."""
        self.ratio = self.initial

    def schedule(self, queued: Batch | None) -> Batch | None:
        """The next batch; queued: the one whose results are not known yet."""
        self.aborted.clear()
        if self.cut is not None and self.cut.end > self.cut.prefix:
            self.memory.checkpoint(self.cut, self.cut.end)
            self.cut.prefix = self.cut.end
        last = self.last
        if last is not None and last.prompts:
            staying = [one for one in last.requests if not (one.done or one is self.cut or one is last.cut)]
            if len(staying) < len(last.requests):
                self.full = False
            if staying and not self.running:
                self.full = False
            self.running = self.running + staying
        before = len(self.running)
        self.running = [request for request in self.running if not request.done]
        if len(self.running) < before:
            self.full = False
        batch = self._prefill(queued)
        if batch is None and self.running:
            batch = self._decode(queued)
        self.last = batch
        return batch

    # --- prompts ---

    def _allowed(self, going_on: int = 0) -> int:
        """Requests that may join (get_num_allocatable_reqs)."""
        return min(self.engine.sequences - len(self.running), max(self.memory.rows + going_on, 0))

    def _prefill(self, queued: Batch | None) -> Batch | None:
        if not self.running or self.engine.window:
            self.full = False
        if (self.full or not self.waiting) and self.cut is None:
            return None
        if self._allowed() <= 0 and self.cut is None:
            self.full = True
            return None
        self.queue.sort()
        mixed = self.engine.mixed and self.engine.chunk is not None
        running = self.running
        kind = WindowAdder if self.engine.window else Adder
        adder = kind(self.engine, self.memory, running, self.ratio, len(running) if mixed else 0)
        if self.cut is not None:
            self.cut.filled = self.cut.tokens
            self.cut = adder.go_on(self.cut)
        self._join(adder)
        if not adder.chosen:
            return None
        if adder.cut is not None:
            assert self.cut is None
            self.cut = adder.cut
        if self.cut is not None:
            self.cut.chunks += 1
        batch = Batch(adder.chosen, prompts=True)
        batch.cut, batch.admitted = self.cut, adder.admitted
        self._compute(batch, adder.chosen)
        if mixed and running:
            self._mix(batch, queued)
        return batch

    def _join(self, adder: Adder) -> None:
        """Waiting requests join in their order until one may not."""
        waiting = self.waiting
        for request in waiting:
            if adder.verdict() is OTHER:
                break
            if len(adder.chosen) >= self._allowed(sum(one.rows for one in adder.chosen)):
                self.full = True
            if self.full:
                break
            request.filled = request.tokens
            self.memory.meet(request, request.filled - 1)
            said = adder.add(request)
            if said is FULL:
                self.full = bool(adder.chosen or self.running)
            if said is not GOES_ON:
                if not adder.chosen or adder.chosen[-1] is not request:
                    self.memory.part(request)
                break
        joined = {request for request, _ in adder.admitted}
        waiting[:] = [request for request in waiting if request not in joined]

    def _compute(self, batch: Batch, chosen: list[Request]) -> None:
        self.memory.extend(chosen)
        for request in chosen:
            request.retracted = False
            request.computed = request.end
            batch.parts.append((request, request.end - request.prefix))
            batch.tokens += request.end - request.prefix
            batch.context += request.end
        batch.count = len(chosen)

    def _mix(self, batch: Batch, queued: Batch | None) -> None:
        """Running requests make a token beside the prompts, if those have left room."""
        self._leave_out_ending(queued)
        if not self.running or not self.memory.suffices(self.running):
            return
        self.memory.decode(self.running)
        for request in self.running:
            request.filled = request.tokens
            request.end = request.written
            batch.context += request.written
        batch.requests = batch.requests + self.running
        batch.beside = set(self.running)
        batch.count += len(self.running)
        batch.tokens += len(self.running)
        self.running = []

    # --- answers ---

    def _leave_out_ending(self, queued: Batch | None) -> bool:
        """Without those whose last token is under way; whether there are any."""
        if queued is None:
            return False
        known = set(queued.requests)
        staying = [one for one in self.running if not (one in known and one.made + 1 >= one.answer)]
        ending = len(staying) < len(self.running)
        if ending:
            self.running, self.full = staying, False
        return ending

    def _decode(self, queued: Batch | None) -> Batch | None:
        before = len(self.running)
        ending = self._leave_out_ending(queued)
        if not self.running:
            self.full = False
            return None
        retracted: list[Request] = []
        if self.memory.suffices(self.running):
            self.decay_ratio(1)
        elif ending:  # what they hold is free in the next turn
            self.full = False
            return None
        else:
            retracted = self._retract()
        if len(self.running) < before:
            self.full = False
        if not self.running:
            return None
        self.memory.decode(self.running)
        batch = Batch(list(self.running), prompts=False)
        batch.preempted = retracted
        batch.count = batch.tokens = len(batch.requests)
        batch.context = sum(request.written for request in batch.requests)
        return batch

    def decay_ratio(self, steps: int) -> None:
        for _ in range(steps):
            if self.ratio == self.least:
                break
            self.ratio = max(self.ratio - self.decay, self.least)

    def _retract(self) -> list[Request]:
        """Take back requests with the shortest answers until the others fit."""
        order = sorted(self.running, key=lambda one: (one.made, -one.prompt), reverse=True)
        retracted: list[Request] = []
        while not retracted or not self.memory.suffices(order):
            if len(order) == 1:
                break
            request = order.pop()
            self._release(request, len(order))
            retracted.append(request)
        if len(order) == 1 and not self.memory.suffices(order):
            request = order.pop()
            self._release(request, 0)
            self.aborted.append(request)
            request.done = True
            self.unfinished -= 1
        self.running = order
        made, asked = sum(one.made for one in order), sum(one.answer for one in order)
        self.ratio = min(1.0, (made + AHEAD * len(order)) / (asked + 1))
        self.queue.waiting.extend(retracted)
        return retracted

    def _release(self, request: Request, others: int) -> None:
        self.memory.leave(request, store=False)
        self.memory.make_room(-(-others * AHEAD // self.engine.block))
        request.prefix = request.kept = request.stored = request.end = request.chunks = 0
        request.node = None
        request.retracted = True

    # --- results ---

    def update(self, batch: Batch) -> list[tuple[Request, bool]]:
        """The batch has ended: who has made a token, and whether it was the last."""
        made: list[tuple[Request, bool]] = []
        for request in batch.requests:
            if request.done or request.retracted:
                continue
            if batch.prompts and request.chunks > 0:
                request.chunks -= 1
                continue
            if not batch.prompts:
                self.memory.passed(request, request.tokens)
            request.made += 1
            if request.made >= request.answer:
                request.done = True
                self.memory.leave(request, store=True)
                self.unfinished -= 1
            elif batch.prompts and request not in batch.beside:
                self.memory.checkpoint(request, request.end)
                request.prefix = request.end
            made.append((request, request.done))
        return made
