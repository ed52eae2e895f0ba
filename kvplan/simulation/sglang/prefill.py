"""Which waiting requests join a prefill, and how far: SGLang's PrefillAdder.

sgl-project/sglang 0.5.23 python/sglang/srt/managers/schedule_policy.py (PrefillAdder) and
mem_cache/prefill_budget.py (PrefillBudget). Answers that running requests may still make count with the ratio
of new tokens that the scheduler expects, those of the joining ones as a whole; sums are made in SGLang's
order, for they are floating-point numbers.
"""

from __future__ import annotations

from kvplan.simulation.sglang.memory import Memory
from kvplan.simulation.sglang.request import Request
from kvplan.simulation.sglang.settings import SglangEngine

CLIP = 4096
"""SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION."""
GOES_ON, FULL, OTHER = "continue", "no token", "other"


class Adder:
    """chosen: who computes a chunk; cut: of these, whose prompt goes on; promised, taken: tokens that are
    spoken for, with and without answers (total_offset, current_offset); chunk, inputs: tokens left."""

    def __init__(
        self, engine: SglangEngine, memory: Memory, running: list[Request], ratio: float, mixed: int
    ) -> None:
        self.engine, self.memory, self.running, self.ratio = engine, memory, running, ratio
        self.page = engine.block
        self.inputs = engine.batch - mixed
        self.chunk = None if engine.chunk is None else engine.chunk - mixed
        self.promised: float = mixed
        self.taken = mixed
        self.chosen: list[Request] = []
        self.admitted: list[tuple[Request, int]] = []
        self.cut: Request | None = None
        self.states: list[tuple[float, int]] | None = None
        share = 1.0 if engine.fixed else ratio
        self.promised += sum([min(each.answer - each.made, CLIP) * share for each in running])

    def verdict(self) -> str:
        """Whether another may join (budget_state)."""
        reachable = self.memory.reachable
        if not (reachable - self.promised > 0 and reachable - self.taken > 0):
            return FULL
        if self.inputs <= 0 or (self.chunk is not None and self.chunk <= 0):
            return OTHER
        return GOES_ON

    def _whole(self, tokens: int) -> int:
        return -(-tokens // self.page) * self.page

    def _charge(self, tokens: int, answer: int) -> None:
        tokens = self._whole(tokens)
        self.promised += tokens + self.page + answer
        self.taken += tokens + self.page
        self.inputs -= tokens
        if self.chunk is not None:
            self.chunk -= tokens

    def go_on(self, request: Request) -> Request | None:
        """The next chunk of a prompt that was cut; None where it is the last."""
        assert self.chunk is not None
        most = self._room(self.chunk)
        if most <= 0:
            return request
        left = request.filled - request.prefix
        cut = left > most
        request.end = request.prefix + min(left, most)
        self.chosen.append(request)
        self._charge(request.end - request.prefix, 0 if cut else min(request.answer, CLIP))
        return request if cut else None

    def _room(self, chunk: int) -> int:
        """Tokens that the next chunk may have: with one pool it goes on, so that the prompt ends some day."""
        free = min(chunk, int(self.memory.reachable - self.promised))
        return free if free > 0 else chunk

    def _limit(self, request: Request, tokens: int) -> int | None:
        """Tokens at which its chunk is cut, None: nowhere; 0: it does not fit."""
        return self.chunk

    def add(self, request: Request) -> str:
        """Let one join, or say why it does not (add_one_req)."""
        if self.engine.fixed and not self.engine.caching:
            return self._add_fixed(request)
        memory, page = self.memory, self.page
        left = request.filled - request.prefix
        total = left + min(max(request.answer - request.made, 0), CLIP) + page
        free = memory.reachable - memory.unheld(request.node) - self.promised
        if not total < free:
            return FULL
        tokens = self._whole(left)
        limit = self._limit(request, tokens)
        if limit == 0 and self.chunk != 0:
            return FULL
        if limit is None and self.chosen and tokens >= self.inputs:
            return OTHER
        answer = min(request.answer, CLIP)
        if limit is not None and tokens > limit:
            left = limit // page * page
            left = (request.prefix + left) // page * page - request.prefix
            if left <= 0:
                return OTHER
            answer, self.cut = 0, request
        self._join(request, left, answer)
        return self.verdict()

    def _join(self, request: Request, tokens: int, answer: int) -> None:
        request.end = request.prefix + tokens
        request.kept = request.prefix
        self.memory.hold(request)
        self.chosen.append(request)
        self.admitted.append((request, request.prefix))
        self._charge(tokens, answer)

    # --- answers whose length is known, and no tree (add_one_req_ignore_eos) ---

    def _add_fixed(self, request: Request) -> str:
        """It joins if all answers find room to their ends, those that end first giving back theirs."""
        left = request.filled - request.prefix
        tokens = self._whole(left) + self.page
        reachable = self.memory.reachable
        now = reachable - self.taken
        if tokens > min(now, reachable - self.promised):
            return FULL
        self._states(request)
        assert self.states is not None
        now -= tokens
        given = 0
        for place, (to_come, held) in enumerate(self.states):
            count = len(self.states) - place
            if now + given - to_come * count <= count:
                return FULL
            given += held
        if self.chunk is None or left <= self.chunk:
            self._join(request, left, min(request.answer, CLIP))
        elif self.chunk <= 0:
            return OTHER
        else:
            self.cut = request
            self._join(request, self.chunk, 0)
        return self.verdict()

    def _states(self, request: Request) -> None:
        """Tokens that each has still to make, and blocks that it holds, sorted by the former."""
        if self.states is None:
            known = [request, *self.running, *self.chosen]
            self.states = [(one.answer - one.made, one.tokens) for one in known if one.answer > one.made]
            self.states.sort(key=lambda state: state[0])
            return
        to_come = request.answer - request.made
        if to_come <= 0:
            return
        place = 0
        for place in range(len(self.states)):
            if to_come <= self.states[place][0]:
                break
        self.states.insert(place, (to_come, request.tokens))
