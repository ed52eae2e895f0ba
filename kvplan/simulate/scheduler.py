"""vLLM's scheduler, one step at a time: who computes how many tokens, who is preempted, who leaves.

vllm-project/vllm 0.32, 0.33 vllm/v1/core/sched/scheduler.py (schedule, _preempt_request,
update_from_output) and async_scheduler.py. Running requests come first, in the order in which they were
admitted; what is left of the budget goes to waiting ones, unless one was preempted.

With ``jump``, running requests that only make answers are `Steady` and not visited; the others are ``loose``.
Without it all are loose, which is the plain reading of vLLM's rules: both must give the same.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter

from kvplan.simulate.admission import Admission
from kvplan.simulate.flat import FlatMemory
from kvplan.simulate.memory import Memory
from kvplan.simulate.refusals import never_fits
from kvplan.simulate.request import Fifo, Ranked, Request
from kvplan.simulate.settings import FULL, PRIORITY, Engine
from kvplan.simulate.tables import Table


class Step:
    """What one step computes. parts: tokens of the requests that were visited; ready: whether they make a
    token; late: requests that were steady when it was scheduled and have left since; count, tokens,
    context: of all; clock: `Steady`'s once it is scheduled; admitted: with the tokens that the prefix
    cache had."""

    __slots__ = (
        "admitted", "clock", "context", "count", "ends_ns", "late", "parts", "preempted", "ready", "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.parts: list[tuple[Request, int]] = []
        self.ready: list[bool] = []
        self.late: list[Request] = []
        self.admitted: list[tuple[Request, int]] = []
        self.preempted: list[Request] = []
        self.tokens = self.count = self.context = self.clock = self.ends_ns = 0


def memory_of(engine: Engine, merged: bool, flat: bool) -> Memory:
    """flat: one table of full attention is served by the rules written for it alone."""
    made = Memory(engine, merged)
    if flat and len(made.tables) == 1 and made.table.kind == FULL and made.block % made.unit == 0:
        return FlatMemory(engine, merged)
    return made


class Scheduler:
    folds = True
    """Whether requests that end in a leap are settled by it."""

    def __init__(self, engine: Engine, jump: bool, merged: bool = True) -> None:
        self.engine, self.memory, self.jump = engine, memory_of(engine, jump and merged, jump), jump
        self.steady = self.memory.steady
        self.running: list[Request] = []
        self.loose: list[Request] = []
        self.waiting: Fifo | Ranked = Ranked() if engine.policy == PRIORITY else Fifo()
        self.ranked = engine.policy == PRIORITY
        self.overlap = engine.overlap
        self.threshold_alone, self.goes_on = engine.rules.threshold_alone, engine.rules.goes_on
        self.admission = Admission(self)
        self.last = Step()
        self.unfinished = 0
        self.gone = False  # a request has left since the last step was scheduled
        self.gliding = False  # the steps of the last `horizon` give blocks back: `leap` takes them one by one
        self.stepped = False  # steady requests have had their turn in the step that is scheduled next

    def add(self, request: Request) -> None:
        self.waiting.add(request)
        self.unfinished += 1

    def threshold(self) -> int:
        """The most tokens of a prompt in one step, 0: any; since 0.31 a request alone is not held back."""
        if not self.engine.threshold:
            return 0
        alone = len(self.running) + len(self.waiting) < 2 and not self.threshold_alone
        return 0 if alone else self.engine.threshold

    def schedule(self) -> Step:
        step, engine, steady = Step(), self.engine, self.steady
        self.gone = steady.stepping = False
        self.memory.fresh.clear()
        threshold = self.threshold()
        budget = engine.batch
        served = False
        if self.stepped:
            self.stepped = False
            step.count, step.tokens, step.context = steady.count, steady.count, steady.context
            budget -= steady.count
        elif steady.count:
            way = self._interleaved(threshold) if self.loose else 0
            if way == 2:
                self._visit_all()
            elif way:
                self._take_turns(step, self.loose, threshold)
                self._stepped(step)
                served = True
                budget -= sum(part[1] for part in step.parts)
            else:
                served = self._steady_step(step)
            budget -= steady.count
        steady.stepping = True
        if self.loose and not served:
            budget = self._serve(step, budget, threshold)
        if budget and self.waiting and not step.preempted:
            self.admission.admit(step, budget, threshold)
        if step.parts:
            taken = context = 0
            readies, overlap = step.ready, self.overlap
            for request, tokens in step.parts:
                computed = request.computed = request.computed + tokens
                request.flight += tokens
                ready = computed >= request.tokens + request.ahead
                readies.append(ready)
                taken += tokens
                context += computed
                if ready and overlap:
                    request.ahead += 1
            step.tokens += taken
            step.context += context
            step.count += len(readies)
        step.clock = steady.clock
        if steady.count and steady.ends[0][0] <= steady.clock:
            if self.overlap:
                self.late(steady.ended(), step, self.last.clock)
            else:
                step.late = steady.ended()
        self.last = step
        return step

    # --- requests that only make answers ---

    def _steady_step(self, step: Step) -> bool:
        """One token for each of them; whether nobody else is served, as in `_take_turns`."""
        steady, over = self.steady, False
        needed = steady.needed(1)
        if needed > self.memory.pool.free:
            over = self._take_turns(step, [], 0)
        else:
            steady.serve(needed)
        self._stepped(step)
        return over

    def _stepped(self, step: Step) -> None:
        steady = self.steady
        steady.clock += 1
        steady.fresh = None
        step.count, step.tokens, step.context = steady.count, steady.count, steady.context

    def _take_turns(self, step: Step, loose: list[Request], threshold: int) -> bool:
        """Blocks do not suffice, or visited requests stand before others: in the requests' order, preempting
        where one lacks blocks. The budget suffices for all steady ones, whoever stands before them. Returns
        whether somebody has preempted itself and so ended the turns."""
        steady, pool, memory = self.steady, self.memory.pool, self.memory
        turns: list[tuple[Request, int, list[Table]]] = [(request, 0, []) for request in loose]
        turns += steady.turns()
        if loose:
            turns.sort(key=lambda turn: turn[0].order)
        for request, needed, groups in turns:
            if not request.running:
                if self.ranked:
                    continue
                return True  # it was the last, and was preempted
            fits = True
            if request.steady:
                for table in groups:
                    steady.let_go(request, [table])
                while fits and needed > pool.free:
                    fits = self._preempt_one(step, request.order) is not request
                if fits:
                    pool.take(needed)
            else:
                left = self.engine.batch - steady.count - sum(part[1] for part in step.parts)
                tokens = self._share(request, left, threshold)
                while tokens and fits:
                    steady.clock += 1  # who stands before it has had its turn
                    steady.stepping = True
                    extended = memory.extend(request, request.computed + tokens)
                    steady.clock -= 1
                    steady.stepping = False
                    if extended:
                        step.parts.append((request, tokens))
                        break
                    fits = self._preempt_one(step, request.order) is not request
            if not fits and not (self.ranked and self.goes_on):
                for other in self.running:  # it was not the last: those behind it have no turn
                    if other.steady and other.order > request.order:
                        self._visit(other)
                        insort(self.loose, other, key=_order)
                return True
        return False

    def _preempt_one(self, step: Step, turn: int) -> Request:
        """Preempt whom the policy says, though it may have had its turn in this step: who is of an order
        before ``turn`` has."""
        victim = self._victim()
        self.running.remove(victim)
        if victim.steady:
            if victim.order < turn:
                self.steady.served(victim, turn)
            self._visit(victim)
        else:
            self.loose.remove(victim)
            step.parts[:] = [part for part in step.parts if part[0] is not victim]
        self._preempt(victim, step)
        return victim

    def _interleaved(self, threshold: int) -> int:
        """Whether steady requests must be visited, for others before them could take their tokens (2), or
        only have their turns in order with these, for their blocks (1)."""
        for last in reversed(self.running):
            if last.steady:
                break
        if not self.ranked and self.loose[0].order > last.order:
            return 0
        wants = [(request, self._wants(request, threshold)) for request in self.loose]
        wants = [(request, tokens) for request, tokens in wants if tokens > 0]
        steady = self.steady
        before = bool(wants) and wants[0][0].order < last.order
        if not before and not self.ranked:
            return 0
        if before and steady.count + sum(want[1] for want in wants) > self.engine.batch:
            return 2
        if before and steady.sliding:
            return 1
        needed = steady.needed(1)
        for request, tokens in wants:
            for one in request.held:
                more = -(-(request.computed + tokens) // one.table.block) - one.count
                needed += max(0, more) * one.table.times
        return int(needed > self.memory.pool.free)

    def _visit_all(self) -> None:
        for request in self.running:
            if request.steady:
                self._visit(request)
        self.loose = list(self.running)

    def _visit(self, request: Request) -> None:
        """A steady request before its turn in a step, with its numbers as they are."""
        self.steady.leave(request)
        request.tokens, request.flight, request.ahead = request.computed + 1, 0, 0
        if self.engine.overlap:
            request.tokens, request.flight, request.ahead = request.computed, 1, 1
            if request.joined < self.last.clock:
                self.last.late.append(request)

    def late(self, ended: list[Request], step: Step, before: int) -> None:
        """Requests whose last token this step makes while the next is scheduled. before: the clock of the
        step before."""
        for request in ended:
            request.tokens, request.flight, request.ahead = request.computed, 1, 1
            if request.joined >= before:  # the step before knows of it by itself
                request.tokens, request.flight, request.ahead = request.computed - 1, 2, 2
            step.late.append(request)
            insort(self.loose, request, key=_order)

    def settle(self, requests: list[Request]) -> list[tuple[Request, bool]]:
        """Requests that have made their last token, as `update` says it."""
        for request in requests:
            request.tokens = request.end
            self.leave(request)
            self.running.remove(request)
        self.unfinished -= len(requests)
        self.gone = True
        return [(request, True) for request in requests]

    # --- the others ---

    def _wants(self, request: Request, threshold: int) -> int:
        """Tokens that a running request may compute next."""
        if request.ahead and request.computed + 2 - request.ahead >= request.most:
            return 0
        tokens = request.tokens + request.ahead - request.computed
        if 0 < threshold < tokens:
            tokens = threshold
        return min(tokens, self.engine.length - request.computed - 1)

    def _share(self, request: Request, budget: int, threshold: int) -> int:
        """Tokens that it computes in this step."""
        tokens = min(self._wants(request, threshold), budget)
        if self.admission.splits:
            tokens = self.admission.split(request, request.computed, tokens)
        return tokens

    def _serve(self, step: Step, budget: int, threshold: int) -> int:
        """Tokens for the loose requests; what is left of the budget."""
        loose, running, memory, place = self.loose, self.running, self.memory, 0
        while place < len(loose) and budget:
            request = loose[place]
            place += 1
            tokens = self._share(request, budget, threshold)
            if not tokens:
                continue
            fits = True
            while not memory.extend(request, request.computed + tokens):
                victim = self._victim()
                before = loose.index(victim)
                del loose[before]
                running.remove(victim)
                if before < place - 1:
                    place -= 1
                    for number, (other, given) in enumerate(step.parts):
                        if other is victim:
                            budget += given
                            del step.parts[number]
                            break
                self._preempt(victim, step)
                if victim is request:
                    fits = False
                    break
            if fits:
                step.parts.append((request, tokens))
                budget -= tokens
            elif self.ranked and self.goes_on:
                place -= 1  # it has left the list: the next stands in its place
            else:
                break
        return budget

    def _victim(self) -> Request:
        if self.ranked:
            return max(self.running, key=lambda request: (request.priority, request.at_ns))
        return self.running[-1]

    def _preempt(self, request: Request, step: Step) -> None:
        self.memory.let_go(request)
        request.running = False
        request.computed = request.ahead = 0
        request.stale = request.flight
        self.waiting.put_back(request)
        step.preempted.append(request)
        if not self.running:  # it had the pool for itself
            request.stuck = request.stuck + 1 if request.tokens == request.reached else 0
            request.reached = request.tokens
            if request.stuck > 2:
                raise never_fits(request.number, request.tokens, self.engine.blocks)

    def update(self, step: Step) -> list[tuple[Request, bool]]:
        """The step has ended: visited requests that made a token, and whether they leave with it."""
        made: list[tuple[Request, bool]] = []
        ended: list[Request] = []
        overlap, memory, steady = self.overlap, self.memory, self.steady
        parts, readies = step.parts, step.ready
        if step.late:
            if not overlap:
                ended = step.late
            elif parts:
                merged = [*zip(parts, readies), *(((request, 1), True) for request in step.late)]
                merged.sort(key=_of_part)
                parts, readies = [part for part, _ in merged], [ready for _, ready in merged]
            else:
                parts = [(request, 1) for request in sorted(step.late, key=_order)]
                readies = [True] * len(parts)
        for (request, tokens), ready in zip(parts, readies):
            if request.steady:
                continue
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
                if request.running and memory.caching:
                    memory.store_looked(request, request.computed - request.ahead)
            if not done:
                made.append((request, False))
                if self.jump and steady.may_join(request):
                    steady.join(request)
                    self.loose.remove(request)
            elif request.running:
                self.loose.remove(request)
                if overlap:
                    made += self.settle([request])
                else:
                    ended.append(request)
            else:
                self.waiting.remove(request)
                self.leave(request)
                self.unfinished -= 1
                self.gone = True
                made.append((request, True))
        if ended:
            if len(ended) > 1:
                ended.sort(key=_order)
            made += self.settle(ended)
        return made

    def leave(self, request: Request) -> None:
        """It has made its last token: its blocks are free."""
        self.memory.let_go(request)


_order = attrgetter("order")


def _of_part(merged: tuple[tuple[Request, int], bool]) -> int:
    return merged[0][0].order
