"""vLLM's scheduler, one step at a time: who computes how many tokens, who is preempted, who leaves.

vllm-project/vllm 0.32, 0.33 vllm/v1/core/sched/scheduler.py (schedule, _preempt_request,
update_from_output) and async_scheduler.py. Running requests come first, in the order in which they were
admitted; what is left of the budget goes to waiting ones, unless one was preempted.

With ``jump``, requests that only decode are in `DecodeOnly` and not visited; the others are ``loose``.
Without it all are loose, which is the plain reading of vLLM's rules: both must give the same.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from operator import attrgetter

from kvplan.simulation.vllm.admission import Admission
from kvplan.simulation.vllm.drafts import Drafts
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.running import Running
from kvplan.simulation.vllm.settings import Engine
from kvplan.simulation.vllm.step import Step


class Scheduler(Running):
    folds = True
    """Whether requests that end in steps taken together are settled there."""

    def __init__(self, engine: Engine, jump: bool) -> None:
        super().__init__(engine, jump)
        self.admission = Admission(self)
        self.unfinished = 0
        self.gone = False  # a request has left since the last step was scheduled
        self.freeing = (
            False  # the steps of the last `horizon` give blocks back: `fast_forward` takes them one by one
        )
        self.stepped = (
            False  # requests that only decode have had their turn in the step that is scheduled next
        )

    @property
    def busy(self) -> bool:
        """Whether a step is to be scheduled."""
        return self.unfinished > 0 or self.gone

    def add(self, request: Request) -> None:
        self.waiting.add(request)
        self.unfinished += 1

    def schedule(self) -> Step:
        step, engine, decode_only = Step(), self.engine, self.decode_only
        self.gone = decode_only.stepping = False
        self.memory.fresh.clear()
        threshold = self.threshold()
        budget = engine.batch
        served = False
        if self.stepped:
            self.stepped = False
            step.count, step.tokens, step.context = decode_only.count, decode_only.count, decode_only.context
            budget -= decode_only.count
        elif decode_only.count:
            way = self._interleaved(threshold) if self.loose else 0
            if way == 2:
                self._visit_all()
            elif way:
                self._take_turns(step, self.loose, threshold)
                self._stepped(step)
                served = True
                budget -= sum(part[1] for part in step.parts)
            else:
                served = self._decode_step(step)
            budget -= decode_only.count
        decode_only.stepping = True
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
            if self.drafts is not None:
                self._draft(step, self.drafts)
            step.tokens += taken
            step.context += context
            step.count += len(readies)
        step.clock = decode_only.clock
        if decode_only.count and decode_only.ends[0][0] <= decode_only.clock:
            if self.overlap:
                self.late(decode_only.ended(), step, self.last.clock)
            else:
                step.late = decode_only.ended()
        self.last = step
        return step

    # --- requests that only make answers ---

    def _decode_step(self, step: Step) -> bool:
        """One token for each of them; whether nobody else is served, as in `_take_turns`."""
        decode_only, over = self.decode_only, False
        needed = decode_only.needed(1)
        if needed > self.memory.pool.free:
            over = self._take_turns(step, [], 0)
        else:
            decode_only.serve(needed)
        self._stepped(step)
        return over

    def _stepped(self, step: Step) -> None:
        decode_only = self.decode_only
        decode_only.clock += 1
        decode_only.fresh = None
        step.count, step.tokens, step.context = decode_only.count, decode_only.count, decode_only.context

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

    def _serve(self, step: Step, budget: int, threshold: int) -> int:
        """Tokens for the loose requests; what is left of the budget."""
        loose, running, memory, place = self.loose, self.running, self.memory, 0
        taken = self.admission.taken
        while place < len(loose) and budget > taken:
            request = loose[place]
            place += 1
            tokens = self._share(request, budget - taken, threshold)
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
                            budget += given + taken
                            del step.parts[number]
                            break
                self._preempt(victim, step)
                if victim is request:
                    fits = False
                    break
            if fits:
                step.parts.append((request, tokens))
                budget -= tokens + taken
            elif self.ranked and self.goes_on:
                place -= 1  # it has left the list: the next stands in its place
            else:
                break
        return budget

    def update(self, step: Step) -> list[tuple[Request, bool]]:
        """The step has ended: visited requests that made a token, and whether they leave with it."""
        made: list[tuple[Request, bool]] = []
        ended: list[Request] = []
        overlap, memory, decode_only = self.overlap, self.memory, self.decode_only
        parts: Iterable[tuple[tuple[Request, int], bool]] = zip(step.parts, step.ready)
        if step.late and overlap:
            parts = _with_late(step)
        elif step.late:
            ended = step.late
        for (request, tokens), ready in parts:
            if request.decode_only:
                continue
            request.flight -= tokens
            stale = request.stale > 0
            if stale:
                request.stale -= tokens
            if not ready or request.tokens >= request.end:
                continue
            new = 1
            if self.drafts is not None:
                new = self._verified(step, request, self.drafts, stale)
            request.tokens += new
            done = request.tokens >= request.end
            if overlap and not stale:
                request.ahead -= new
                if request.running and memory.caching:
                    memory.store_looked(request, request.computed - request.ahead)
            if not done:
                made.append((request, False))
                if self.jump and decode_only.may_join(request):
                    decode_only.join(request)
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
            ended.sort(key=_order)
            made += self.settle(ended)
        return made

    def _draft(self, step: Step, drafts: Drafts) -> None:
        """Which of a step's tokens are drafted ones, and what the next step is to verify: with async
        scheduling that is known now, by number."""
        for (request, _), ready in zip(step.parts, step.ready):
            request.prompting, last = not ready, ready and self.overlap
            if request.drafted:
                drafted = request.computed - request.tokens - request.ahead + last
                if drafted > 0:
                    step.drafted[request] = min(request.drafted, drafted)
                request.drafted = 0
            if last:
                request.ahead += step.drafted.get(request, 0)
                request.drafted = drafts.tokens

    def _verified(self, step: Step, request: Request, drafts: Drafts, stale: bool) -> int:
        """Tokens that the step makes: its own and those of its draft that are right; the others are taken
        back, unless a preemption has done so (``stale``)."""
        drafted = step.drafted.get(request, 0)
        accepted = drafts.accepted(request.number, request.tokens, drafted) if drafted else 0
        if not stale:
            if request.computed:
                request.computed -= drafted - accepted
            if request.ahead:
                request.ahead -= drafted - accepted
        if not self.overlap:
            request.drafted = drafts.tokens
        new = min(1 + accepted, request.end - request.tokens)
        if self.verified and self.memory.caching:
            self.memory.store_looked(request, min(request.computed, request.tokens + new))
        return new

    def leave(self, request: Request) -> None:
        """It has made its last token: its blocks are free."""
        self.memory.let_go(request)


def _with_late(step: Step) -> list[tuple[tuple[Request, int], bool]]:
    """The step's parts, and those of its late requests among them in the requests' order."""
    late = [((request, 1), True) for request in step.late]
    return sorted([*zip(step.parts, step.ready), *late], key=lambda each: each[0][0].order)


_order = attrgetter("order")
