"""Requests whose cache comes from elsewhere: the scheduler's rules for a KV connector.

vllm-project/vllm 0.32, 0.33 vllm/v1/core/sched/scheduler.py (schedule, _update_waiting_for_remote_kv,
_inflight_prefill_reserved_blocks). A waiting request of which a connector has more than the prefix cache
takes its blocks and waits for them between steps (WAITING_FOR_REMOTE_KVS); others behind it are looked at
meanwhile. Only first come, first served, and one group of full attention.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from kvplan.simulation.vllm.admission import Admission
from kvplan.simulation.vllm.block_table import BlockTable
from kvplan.simulation.vllm.decode_only import DecodeOnly
from kvplan.simulation.vllm.memory import NOTHING, Hit, Memory
from kvplan.simulation.vllm.request import Fifo, Request
from kvplan.simulation.vllm.scheduler import Scheduler
from kvplan.simulation.vllm.settings import Engine
from kvplan.simulation.vllm.step import Step
from kvplan.units import ceil_div

_NEVER = 1 << 62


class Connector(Protocol):
    """version counts what changed; within: whether loads are part of the step that begins them."""

    version: int
    within: bool

    def matched(self, request: Request, local: int) -> int | None:
        """Tokens beyond ``local`` that it has; None: not known yet."""

    def begin(self, request: Request, local: int, tokens: int) -> None:
        """The request has blocks for ``tokens`` tokens beyond ``local``, and they are to be loaded."""

    def owes(self, request: Request) -> bool:
        """Whether it must look at the request in every step."""

    def preempted(self, request: Request) -> None: ...

    def left(self, request: Request) -> None:
        """The request has ended; its blocks are given back."""


class Lines(Fifo):
    """Two queues: requests that hold blocks, which come first, and the others."""

    __slots__ = ("holding",)

    def __init__(self) -> None:
        super().__init__()
        self.holding: deque[Request] = deque()

    def __bool__(self) -> bool:
        return bool(len(self) or self.holding)


class _DecodeOnly(DecodeOnly):
    """Requests that a connector has to look at are visited."""

    def __init__(self, memory: Memory, connector: Connector) -> None:
        super().__init__(memory)
        self.connector = connector

    def may_join(self, request: Request) -> bool:
        return super().may_join(request) and not self.connector.owes(request)


class RemoteScheduler(Scheduler):
    folds = False  # a connector hears of each end with the step after it

    def __init__(self, engine: Engine, jump: bool, connector: Connector) -> None:
        super().__init__(engine, jump)
        self.connector, self.lines = connector, Lines()
        self.waiting = self.lines
        self.memory.decode_only = self.decode_only = _DecodeOnly(self.memory, connector)
        self.remote = RemoteAdmission(self)
        self.admission = self.remote

    def threshold(self) -> int:
        lines = self.lines
        alone = len(self.running) + len(lines) + len(lines.holding) < 2 and not self.threshold_alone
        return 0 if alone else self.engine.threshold

    def schedule(self) -> Step:
        if self.overlap and self.decode_only.count and self._presses():
            self.decode_only.stepping = False
            self._visit_all()
        step = super().schedule()
        prefills = self.remote.prefills
        if prefills:
            for (request, _), ready in zip(step.parts, step.ready):
                if ready:
                    prefills.pop(request, None)
        return step

    def _presses(self) -> bool:
        """Whether blocks might not suffice for all that run."""
        threshold, block = self.threshold(), self.engine.block
        more = sum(1 + max(0, self._wants(request, threshold)) // block for request in self.loose)
        return self.decode_only.needed(1) + more > self.memory.pool.free

    def _serve(self, step: Step, budget: int, threshold: int) -> int:
        """With async scheduling a request that a step under way still writes is not preempted, for its blocks
        would not be free at once: then nobody else is served (_request_blocks_can_be_freed)."""
        if not self.overlap:
            return super()._serve(step, budget, threshold)
        place = 0
        while place < len(self.loose) and budget:
            request = self.loose[place]
            place += 1
            tokens = self._share(request, budget, threshold)
            if not tokens:
                continue
            while not self.memory.extend(request, request.computed + tokens):
                if self.running[-1].flight or self._preempt_one(step, request.order) is request:
                    return budget
            step.parts.append((request, tokens))
            budget -= tokens
        return budget

    def update(self, step: Step) -> list[tuple[Request, bool]]:
        made = super().update(step)
        for request, done in made:
            if done:
                self.connector.left(request)
        return made

    def _preempt(self, request: Request, step: Step) -> None:
        self.remote.prefills.pop(request, None)
        self.connector.preempted(request)
        super()._preempt(request, step)


class RemoteAdmission(Admission):
    """loading: requests that wait for their blocks; there: of these, whose blocks are there; prefills:
    requests whose prompt is not done, in order of admission, those that load among them."""

    def __init__(self, scheduler: RemoteScheduler) -> None:
        super().__init__(scheduler)
        self.lines, self.connector = scheduler.lines, scheduler.connector
        self.loading: set[Request] = set()
        self.there: set[Request] = set()
        self.prefills: dict[Request, None] = {}
        self.quiet: tuple[int, ...] | None = None

    def admit(self, step: Step, budget: int, threshold: int) -> None:
        lines, running, engine = self.lines, self.scheduler.running, self.engine
        holding, line = lines.holding, lines
        held: list[Request] = []
        skipped: list[Request] = []
        self.blocked = self.quiet = None
        while budget and lines and len(running) < engine.sequences:
            queue: deque[Request] = holding if holding else line
            request = queue[0]
            if request in self.loading:
                if request not in self.there:
                    held.append(queue.popleft())
                    continue
                self._promote(request)
            if request.stale:
                (held if queue is holding else skipped).append(queue.popleft())
                continue
            tokens = self._fresh(step, request, budget, threshold) if not request.computed else None
            if tokens is None and request.computed:
                tokens = self._resumed(request, budget, threshold)
            elif tokens is None:
                skipped.append(queue.popleft())
                continue
            if request in self.loading:
                held.append(queue.popleft())
                continue
            if not tokens:
                break
            queue.popleft()
            request.running = True
            self.order += 1
            request.order = self.order
            running.append(request)
            self.scheduler.loose.append(request)
            step.parts.append((request, tokens))
            budget -= tokens
            if request.computed + tokens < request.tokens:
                self.prefills[request] = None
        holding.extendleft(reversed(held))
        lines.put_back_all(skipped)
        if budget and engine.chunked and not self.memory.pool.watched:
            self.quiet = self._state()

    def _fresh(self, step: Step, request: Request, budget: int, threshold: int) -> int | None:
        """Tokens for a request that has none computed; 0: it stays; None: it is passed over. It may be
        loading afterwards."""
        memory, connector, engine = self.memory, self.connector, self.engine
        hit = memory.hit(request)
        more = connector.matched(request, hit.tokens)
        if more is None:
            return None
        spare = self.spare if self.scheduler.running else 0
        computed = hit.tokens + more
        if more and not connector.within:
            bar = memory.needs(computed, hit, False) + self.reserved()
            if engine.reserve:
                bar = max(bar, memory.needs(request.tokens, hit, True))
            if bar + spare > memory.pool.free:
                self._note(request, budget, True, threshold, bar + spare, hit)
                return 0
            _adopt(memory, request, hit, computed)
            request.computed = computed
            connector.begin(request, hit.tokens, more)
            self.loading.add(request)
            self.prefills[request] = None
            step.admitted.append((request, hit.tokens))
            return 0
        tokens = self._share(request, computed, budget, threshold)
        if not tokens:
            return 0
        bar = memory.needs(computed + tokens, hit, False)
        if engine.reserve:
            bar = max(bar, memory.needs(request.tokens, hit, True))
        if bar + spare > memory.pool.free:
            self._note(request, budget, True, threshold, bar + spare, hit)
            return 0
        memory.admit(request, hit, computed + tokens)
        request.computed = computed
        if more:
            connector.begin(request, hit.tokens, more)
        step.admitted.append((request, hit.tokens))
        return tokens

    def _resumed(self, request: Request, budget: int, threshold: int) -> int:
        """Tokens for a request whose blocks are there; 0: it stays."""
        memory, engine = self.memory, self.engine
        tokens = self._share(request, request.computed, budget, threshold)
        if not tokens:
            return 0
        whole = request.tokens if engine.reserve else request.computed + tokens
        bar = self.lacks(request, whole) + (self.spare if self.scheduler.running else 0)
        if bar > memory.pool.free:
            self._note(request, budget, True, threshold, bar, NOTHING)
            return 0
        fits = memory.extend(request, request.computed + tokens)
        assert fits, "fewer blocks are needed than are free"
        return tokens

    def _share(self, request: Request, computed: int, budget: int, threshold: int) -> int:
        tokens = request.tokens - computed
        if 0 < threshold < tokens:
            tokens = threshold
        if tokens > budget and not self.engine.chunked:
            return 0
        return min(tokens, budget)

    def _promote(self, request: Request) -> None:
        """Its blocks are there: they go into the prefix cache, and of a prompt that is there as a whole the
        last token is computed again."""
        self.loading.discard(request)
        self.there.discard(request)
        self.memory.offer(request, request.computed)
        if request.computed == request.tokens:
            request.computed -= 1

    def lacks(self, request: Request, tokens: int) -> int:
        """Blocks that it needs for so many tokens and has not."""
        return sum(max(0, ceil_div(tokens, one.table.block) - one.count) for one in request.held)

    def reserved(self) -> int:
        """Blocks that prompts under way still need, for which one that loads leaves room."""
        return sum(self.lacks(request, request.tokens) for request in self.prefills)

    def _state(self) -> tuple[int, ...]:
        return (
            self.scheduler.unfinished, len(self.lines), len(self.lines.holding), len(self.there),
            self.connector.version,
        )  # fmt: skip

    def stays_blocked(self) -> int:
        """For how many steps nobody can be admitted while nothing comes, ends or arrives."""
        scheduler, engine = self.scheduler, self.engine
        decode_only = scheduler.decode_only
        if not self.lines or len(scheduler.running) >= engine.sequences or decode_only.count >= engine.batch:
            return _NEVER
        if self.quiet is None or self.quiet != self._state():
            return 0
        was = self.blocked
        if was is None:  # all were passed over, and wait for what the connector says
            return _NEVER
        if was.request.stale or not self.still(
            was.request, engine.batch - decode_only.count, scheduler.threshold()
        ):
            return 0
        return was.until - 1 - decode_only.clock


def _adopt(memory: Memory, request: Request, hit: Hit, tokens: int) -> None:
    """Blocks up to ``tokens`` tokens, of which the cache's own are known and the others not yet."""
    request.held = held = [BlockTable(table) for table in memory.tables]
    for one, parts in zip(held, hit.parts):
        if hit.tokens:
            one.adopt(memory.pool, parts, hit.tokens // one.table.block, 0)
    for one in held:
        one.grow(memory.pool, ceil_div(tokens, one.table.block))
