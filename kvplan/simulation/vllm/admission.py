"""Waiting requests: which are admitted to a step, and with how many tokens.

vllm-project/vllm 0.32, 0.33 vllm/v1/core/sched/scheduler.py (schedule).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.record import record
from kvplan.simulation.vllm.memory import Hit
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.state_cuts import Cuts

if TYPE_CHECKING:
    from kvplan.simulation.vllm.scheduler import Scheduler
from kvplan.simulation.vllm.step import Step

NEVER = 1 << 62


@record(eq=False)
class Blocked:
    """Why the first that waits was not admitted: it is not until so many blocks came back as it lacked
    (``out``: of the pool), unless something else has changed.
    """

    request: Request
    budget: int
    """the step's, cut: whether it cut the prompt (else any that is as large does the same)"""
    cut: bool
    alone: bool
    threshold: int
    stamp: int
    """of what was stored in the runs that it has names in"""
    until: int
    """`DecodeOnly`'s clock at which somebody who writes them fills a block"""
    out: int
    hit: Hit
    """what it found"""


class Admission:
    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.engine, self.memory = scheduler, scheduler.engine, scheduler.memory
        self.cuts = Cuts(self.engine, self.memory.saving)
        self.spare = self.engine.watermark_blocks
        self.whole = self.engine.chunked and not self.memory.pool.watched  # the step's budget is no matter
        self.drafts = self.engine.drafts
        self.taken = self.drafts.slots if self.drafts is not None else 0  # of the budget, by each request
        self.order = 0
        self.blocked: Blocked | None = None

    def admit(self, step: Step, budget: int, threshold: int) -> None:
        skipped: list[Request] = []
        scheduler, engine, memory = self.scheduler, self.engine, self.memory
        waiting, running = scheduler.waiting, scheduler.running
        taken = self.taken
        uniform, running_parts = self._uniform(step), bool(step.parts)
        while budget > taken and waiting and len(running) < engine.sequences:
            request = waiting.head()
            if request.stale:
                skipped.append(waiting.take())
                continue
            if self.still(request, budget, threshold):
                break
            hit = self._look(request)
            request.junction = hit.junction
            tokens = request.tokens - hit.tokens
            drafted = self._padding(tokens, hit.tokens, running_parts) if uniform else 0
            tokens += drafted
            if 0 < threshold < tokens:
                tokens = threshold
            bar, least, cut = 0, tokens, tokens > budget - taken
            if cut and not (engine.chunked and not drafted):
                bar = NEVER
            else:
                least = tokens = min(tokens, budget - taken)
                if self.cuts.any:
                    tokens = self.cuts.tokens(request, hit.tokens, tokens)
                if tokens:
                    whole = request.tokens if engine.reserve else 0
                    bar = memory.bar(hit.tokens + tokens, whole, hit, memory.prefill_end(request))
                    bar += self.spare if running else 0
                else:
                    bar = NEVER
            if bar > memory.pool.free:
                self._note(request, budget if cut else least, cut, threshold, bar, hit)
                break
            self.blocked = None
            memory.admit(request, hit, hit.tokens + tokens)
            waiting.take()
            request.computed, request.running = hit.tokens, True
            self.order += 1
            request.order = self.order
            running.append(request)
            scheduler.loose.append(request)
            step.admitted.append((request, hit.tokens))
            step.parts.append((request, tokens))
            if drafted:
                step.drafted[request] = drafted
            budget -= tokens + taken
        if skipped:
            waiting.put_back_all(skipped)

    def _uniform(self, step: Step) -> bool:
        """Whether drafts are made, and no running request of the step computes its prompt."""
        return self.drafts is not None and not any(part[0].prompting for part in step.parts)

    def _padding(self, tokens: int, computed: int, running_parts: bool) -> int:
        """Tokens that stand for a draft of a request whose prompt lacks its last token alone, so that the
        step has one size for all; 0 where they would reach beyond max_model_len."""
        drafts = self.drafts
        if drafts is None or tokens > 1 or not (running_parts or computed):
            return 0
        if computed + 2 + drafts.tokens > self.engine.length:
            return 0
        return drafts.tokens

    def _note(self, request: Request, budget: int, cut: bool, threshold: int, bar: int, hit: Hit) -> None:
        self.blocked = None
        if not self.memory.fresh and self.drafts is None:  # of a hit that drops blocks others matter as well
            scheduler, pool = self.scheduler, self.memory.pool
            wanted = [[part[0] for part in parts] for parts in hit.parts]
            pool.want(wanted, self.memory.whole, self.cuts.any and hit.junction > 0)
            until = scheduler.decode_only.next_fill(request) if scheduler.decode_only.shared else NEVER
            self.blocked = Blocked(
                request, budget, cut, not scheduler.running, threshold, self._stamp(request), until,
                pool.out + pool.free - bar, hit,
            )  # fmt: skip

    def _look(self, request: Request) -> Hit:
        """The cache's hit for a request; of one that has looked before, the earlier hit, where nothing was
        stored or evicted of it."""
        was, memory = self.blocked, self.memory
        if (
            was is not None
            and was.request is request
            and memory.caching
            and not memory.pool.changed
            and not memory.pool.dead
            and not (memory.resumes and was.hit.junction)  # what others have beyond the hit may be evicted
            and was.until > self.scheduler.decode_only.clock
            and was.stamp == self._stamp(request)
        ):
            return memory.found_again(was.hit)
        return memory.hit(request)

    def still(self, request: Request, budget: int, threshold: int) -> bool:
        """Whether the head is blocked as it was: while the same blocks have names, a block that is given back
        brings it at most one nearer (where it is of its hit, none: the hit takes it from the free ones), one
        that is found and held none, and one that is taken puts it one further off (`Pool.want`). So it does
        where it has a name, if the whole prompt must fit and all groups keep what they have: the head needs
        one more."""
        was, pool = self.blocked, self.memory.pool
        return (
            was is not None
            and was.request is request
            and was.out < pool.out
            and not pool.hurt
            and (
                self.whole
                or (
                    was.threshold == threshold and (budget == was.budget if was.cut else budget >= was.budget)
                )
            )
            and was.alone == (not self.scheduler.running)
            and was.until > self.scheduler.decode_only.clock
            and was.stamp == self._stamp(request)
        )

    def stays_blocked(self) -> int:
        """For how many steps nobody can be admitted while steps only take blocks (`spared`)."""
        scheduler, engine = self.scheduler, self.engine
        waiting, decode_only = scheduler.waiting, scheduler.decode_only
        if not waiting or len(scheduler.running) >= engine.sequences or decode_only.count >= engine.batch:
            return NEVER
        request = waiting.head()
        if request.stale:
            return 0
        if not self.still(request, engine.batch - decode_only.count, scheduler.threshold()):
            return 0
        assert self.blocked is not None
        return self.blocked.until - 1 - decode_only.clock

    @staticmethod
    def _stamp(request: Request) -> int:
        """The count of blocks stored in its runs so far."""
        found = 0
        for path in request.paths.values():
            for _, _, run in path:
                found += run.stamp
        return found
