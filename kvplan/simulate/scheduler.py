"""vLLM's scheduler, one step at a time: who computes how many tokens, who is preempted, who leaves.

vllm-project/vllm 0.32 vllm/v1/core/sched/scheduler.py (schedule, _mamba_block_aligned_split,
_preempt_request, update_from_output) and async_scheduler.py. Running requests come first, in the order in
which they were admitted; what is left of the budget goes to waiting ones, unless one was preempted.
"""

from __future__ import annotations

from kvplan.simulate.memory import Memory
from kvplan.simulate.request import Fifo, Ranked, Request
from kvplan.simulate.settings import ALIGN, PRIORITY, STATE, Engine


class Step:
    """What one step computes. tokens: of each request; ready: requests that make a token; admitted: with the
    tokens that the prefix cache had."""

    __slots__ = ("admitted", "ends_ns", "parts", "preempted", "ready", "tokens")

    def __init__(self) -> None:
        self.parts: list[tuple[Request, int]] = []
        self.admitted: list[tuple[Request, int]] = []
        self.preempted: list[Request] = []
        self.ready: list[bool] = []
        self.tokens = self.ends_ns = 0


class Scheduler:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.memory = engine, Memory(engine)
        self.running: list[Request] = []
        self.waiting: Fifo | Ranked = Ranked() if engine.policy == PRIORITY else Fifo()
        self.ranked = engine.policy == PRIORITY
        self.splits = engine.states == ALIGN and any(group.kind == STATE for group in engine.groups)
        self.unfinished = 0
        self.order = 0
        self.gone = False  # a request has left since the last step was scheduled

    def add(self, request: Request) -> None:
        self.waiting.add(request)
        self.unfinished += 1

    def schedule(self) -> Step:
        step, engine = Step(), self.engine
        self.gone = False
        self.memory.fresh.clear()
        threshold = engine.threshold if len(self.running) + len(self.waiting) > 1 else 0
        budget = self.serve(step, engine.batch, threshold)
        if not step.preempted and budget:
            self.admit(step, budget, threshold)
        for request, tokens in step.parts:
            request.computed += tokens
            request.flight += tokens
            ready = request.computed >= request.tokens + request.ahead
            step.ready.append(ready)
            step.tokens += tokens
            if ready and engine.overlap:
                request.ahead += 1
        return step

    def serve(self, step: Step, budget: int, threshold: int) -> int:
        """Tokens for the running requests; what is left of the budget."""
        running, place = self.running, 0
        while place < len(running) and budget:
            request = running[place]
            place += 1
            if request.ahead and request.computed + 2 - request.ahead >= request.most:
                continue
            tokens = request.tokens + request.ahead - request.computed
            if 0 < threshold < tokens:
                tokens = threshold
            tokens = min(tokens, budget, self.engine.length - request.computed - 1)
            if self.splits:
                tokens = self.split(request, request.computed, tokens)
            if not tokens:
                continue
            fits = True
            while not self.memory.extend(request, request.computed + tokens):
                victim = self._victim()
                if self.ranked:
                    before = running.index(victim)
                    del running[before]
                    if before < place - 1:
                        place -= 1
                    for number, (other, given) in enumerate(step.parts):
                        if other is victim:
                            budget += given
                            del step.parts[number]
                            break
                else:
                    running.pop()
                self._preempt(victim)
                step.preempted.append(victim)
                if victim is request:
                    fits = False
                    break
            if not fits:
                break
            step.parts.append((request, tokens))
            budget -= tokens
        return budget

    def _victim(self) -> Request:
        if self.ranked:
            return max(self.running, key=lambda request: (request.priority, request.at_ns))
        return self.running[-1]

    def _preempt(self, request: Request) -> None:
        self.memory.let_go(request)
        request.running, request.preempted = False, True
        request.computed = request.ahead = 0
        request.stale = request.flight
        self.waiting.put_back(request)

    def admit(self, step: Step, budget: int, threshold: int) -> None:
        skipped: list[Request] = []
        waiting, engine, memory = self.waiting, self.engine, self.memory
        while budget and waiting and len(self.running) < engine.sequences:
            request = waiting.head()
            if request.stale:
                skipped.append(waiting.pop())
                continue
            hit = memory.hit(request)
            request.junction = hit.junction
            tokens = request.tokens - hit.tokens
            if 0 < threshold < tokens:
                tokens = threshold
            if not engine.chunked and tokens > budget:
                break
            tokens = min(tokens, budget)
            if self.splits:
                tokens = self.split(request, hit.tokens, tokens)
                if not tokens:
                    break
            spare = engine.watermark_blocks if self.running else 0
            if engine.reserve and memory.needs(request.tokens, hit, True) + spare > memory.pool.free:
                break
            if memory.needs(hit.tokens + tokens, hit, False) + spare > memory.pool.free:
                break
            memory.admit(request, hit, hit.tokens + tokens)
            waiting.pop()
            request.computed, request.running = hit.tokens, True
            self.order += 1
            request.order = self.order
            self.running.append(request)
            step.admitted.append((request, hit.tokens))
            step.parts.append((request, tokens))
            budget -= tokens
        if skipped:
            waiting.put_back_all(skipped)

    def split(self, request: Request, start: int, tokens: int) -> int:
        """Cut a prompt where states are kept: at the ends of blocks, and where other groups' hit ended."""
        prompt_end = max(request.prompt, request.tokens - 1)
        if start >= prompt_end:
            return tokens
        engine, block = self.engine, self.engine.block
        last = (request.tokens - 1) // block * block
        end = start + tokens
        if end < prompt_end:
            most = min(engine.batch, engine.threshold) if engine.threshold else engine.batch
            aligned = end // block * block
            if aligned > start or block <= most:
                end = aligned
        stops = [last]
        if start % block:
            stops.append((start // block + 1) * block)
        if start < request.junction < end:
            stops.append(start + (request.junction - start) // block * block)
        end = min((stop for stop in stops if start < stop < end), default=end)
        return max(0, end - start)

    def update(self, step: Step) -> list[tuple[Request, bool]]:
        """The step has ended: requests that made a token, and whether they leave with it."""
        made, left = [], []
        overlap = self.engine.overlap
        for (request, tokens), ready in zip(step.parts, step.ready):
            request.flight -= tokens
            stale = request.stale > 0
            if stale:
                request.stale -= tokens
            if not ready or request.tokens >= request.end:
                continue
            request.tokens += 1
            done = request.tokens >= request.end
            if overlap and not stale:
                request.ahead -= 1
                if request.running:
                    self.memory.offer(request, request.computed - request.ahead)
            made.append((request, done))
            if done:
                left.append(request)
                self.memory.let_go(request)
                self.unfinished -= 1
                self.gone = True
                if not request.running:
                    self.waiting.remove(request)
        if left:
            self.running = [request for request in self.running if request.tokens < request.end]
        return made
