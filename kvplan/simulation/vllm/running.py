"""Who runs: whose turn it is when blocks do not suffice, who is preempted, how many tokens each may compute.

vllm-project/vllm 0.32, 0.33 vllm/v1/core/sched/scheduler.py (the first loop of schedule, _preempt_request).
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter

from kvplan.simulation.time.refusals import never_fits
from kvplan.simulation.vllm.admission import Admission
from kvplan.simulation.vllm.flat import FlatMemory
from kvplan.simulation.vllm.memory import Memory
from kvplan.simulation.vllm.request import Fifo, Ranked, Request
from kvplan.simulation.vllm.settings import FULL, PRIORITY, Engine
from kvplan.simulation.vllm.step import Step
from kvplan.simulation.vllm.tables import Table


def memory_of(engine: Engine, jump: bool) -> Memory:
    """jump: neighbouring groups of equal rules share a table, and one group of full attention is served by
    the rules written for it alone."""
    groups = engine.groups
    if jump and len(groups) == 1 and groups[0].kind == FULL:
        return FlatMemory(engine)
    return Memory(engine, merged=jump)


class Running:
    """Running requests in the order in which they were admitted, and the waiting ones that they may go back
    to. loose: those that are visited, the others are `DecodeOnly`."""

    admission: Admission

    def __init__(self, engine: Engine, jump: bool) -> None:
        self.engine, self.memory, self.jump = engine, memory_of(engine, jump), jump
        self.drafts, self.verified = engine.drafts, False
        if self.drafts is not None:
            self.verified = engine.rules.verified and not engine.overlap
            self.jump = False  # requests that make answers differ in how many tokens they make
        self.decode_only = self.memory.decode_only
        self.running: list[Request] = []
        self.loose: list[Request] = []
        self.waiting: Fifo | Ranked = Ranked() if engine.policy == PRIORITY else Fifo()
        self.ranked = engine.policy == PRIORITY
        self.overlap = engine.overlap
        self.threshold_alone, self.goes_on = engine.rules.threshold_alone, engine.rules.goes_on
        self.last = Step()

    def threshold(self) -> int:
        """The most tokens of a prompt in one step, 0: any; since 0.31 a request alone is not held back."""
        if not self.engine.threshold:
            return 0
        alone = len(self.running) + len(self.waiting) < 2 and not self.threshold_alone
        return 0 if alone else self.engine.threshold

    def _wants(self, request: Request, threshold: int) -> int:
        """Tokens that a running request may compute next."""
        if request.ahead and request.computed + 2 - request.ahead >= request.most:
            return 0
        tokens = request.tokens + request.drafted + request.ahead - request.computed
        if 0 < threshold < tokens:
            tokens = threshold
        return min(tokens, self.engine.length - request.computed - 1)

    def _share(self, request: Request, budget: int, threshold: int) -> int:
        """Tokens that it computes in this step."""
        tokens = min(self._wants(request, threshold), budget)
        if self.admission.cuts.any:
            tokens = self.admission.cuts.tokens(request, request.computed, tokens)
        return tokens

    def _take_turns(self, step: Step, loose: list[Request], threshold: int) -> bool:
        """Blocks do not suffice, or visited requests stand before others: in the requests' order, preempting
        where one lacks blocks. The budget suffices for all that only decode, whoever stands before them.
        Returns whether somebody has preempted itself and so ended the turns."""
        turns: list[tuple[Request, int, list[Table]]] = [(request, 0, []) for request in loose]
        turns += self.decode_only.turns()
        if loose:
            turns.sort(key=lambda turn: turn[0].order)
        for request, needed, groups in turns:
            if not request.running:
                if self.ranked:
                    continue
                return True  # it was the last, and was preempted
            if request.decode_only:
                fits = self._decode_turn(step, request, needed, groups)
            else:
                fits = self._loose_turn(step, request, threshold)
            if not fits and not (self.ranked and self.goes_on):
                for other in self.running:  # it was not the last: those behind it have no turn
                    if other.decode_only and other.order > request.order:
                        self._visit(other)
                        insort(self.loose, other, key=_order)
                return True
        return False

    def _decode_turn(self, step: Step, request: Request, needed: int, groups: list[Table]) -> bool:
        """The blocks of its next token; whether it has them and was not preempted itself."""
        pool = self.memory.pool
        for table in groups:
            self.decode_only.let_go(request, [table])
        while needed > pool.free:
            if self._preempt_one(step, request.order) is request:
                return False
        pool.take(needed)
        return True

    def _loose_turn(self, step: Step, request: Request, threshold: int) -> bool:
        """Give it the tokens that it may compute; whether it was not preempted itself."""
        decode_only = self.decode_only
        left = self.engine.batch - decode_only.count - sum(part[1] for part in step.parts)
        tokens = self._share(request, left, threshold)
        while tokens:
            decode_only.clock += 1  # who stands before it has had its turn
            decode_only.stepping = True
            extended = self.memory.extend(request, request.computed + tokens)
            decode_only.clock -= 1
            decode_only.stepping = False
            if extended:
                step.parts.append((request, tokens))
                break
            if self._preempt_one(step, request.order) is request:
                return False
        return True

    def _preempt_one(self, step: Step, turn: int) -> Request:
        """Preempt whom the policy says, though it may have had its turn in this step: who is of an order
        before ``turn`` has."""
        victim = self._victim()
        self.running.remove(victim)
        if victim.decode_only:
            if victim.order < turn:
                self.decode_only.served(victim, turn)
            self._visit(victim)
        else:
            self.loose.remove(victim)
            step.parts[:] = [part for part in step.parts if part[0] is not victim]
        self._preempt(victim, step)
        return victim

    def _interleaved(self, threshold: int) -> int:
        """Whether requests that only decode must be visited, as others could take their tokens first (2),
        or only have their turns in order with these, for their blocks (1)."""
        for last in reversed(self.running):
            if last.decode_only:
                break
        if not self.ranked and self.loose[0].order > last.order:
            return 0
        wants = [(request, self._wants(request, threshold)) for request in self.loose]
        wants = [(request, tokens) for request, tokens in wants if tokens > 0]
        decode_only = self.decode_only
        before = bool(wants) and wants[0][0].order < last.order
        if not before and not self.ranked:
            return 0
        if before and decode_only.count + sum(want[1] for want in wants) > self.engine.batch:
            return 2
        if before and decode_only.sliding:
            return 1
        needed = decode_only.needed(1)
        for request, tokens in wants:
            for one in request.held:
                more = -(-(request.computed + tokens) // one.table.block) - one.count
                needed += max(0, more) * one.table.times
        return int(needed > self.memory.pool.free)

    def _visit_all(self) -> None:
        for request in self.running:
            if request.decode_only:
                self._visit(request)
        self.loose = list(self.running)

    def _visit(self, request: Request) -> None:
        """A decode_only request before its turn in a step, with its numbers as they are."""
        self.decode_only.leave(request)
        request.tokens, request.flight, request.ahead = request.computed + 1, 0, 0
        if self.engine.overlap:
            request.tokens, request.flight, request.ahead = request.computed, 1, 1
            if request.joined < self.last.clock:
                self.last.late.append(request)

    def _victim(self) -> Request:
        if self.ranked:
            return max(self.running, key=lambda request: (request.priority, request.at_ns))
        return self.running[-1]

    def _preempt(self, request: Request, step: Step) -> None:
        self.memory.let_go(request)
        request.running = False
        request.computed = request.ahead = request.drafted = 0
        request.stale = request.flight
        self.waiting.put_back(request)
        step.preempted.append(request)
        if not self.running:  # it had the pool for itself
            request.stuck = request.stuck + 1 if request.tokens == request.reached else 0
            request.reached = request.tokens
            if request.stuck > 2:
                raise never_fits(request.number, request.tokens, self.engine.blocks)


_order = attrgetter("order")
