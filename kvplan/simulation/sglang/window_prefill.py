"""Which waiting requests join a prefill where windows have a pool of their own.

sgl-project/sglang 0.5.23 python/sglang/srt/mem_cache/prefill_budget.py (SWAPrefillBudget): a request counts
with a window, and with what its chunk takes beyond one until it is given back.
"""

from __future__ import annotations

from kvplan.simulation.sglang.memory import Memory
from kvplan.simulation.sglang.prefill import CLIP, FULL, Adder
from kvplan.simulation.sglang.request import Request
from kvplan.simulation.sglang.settings import SglangEngine
from kvplan.simulation.sglang.window_memory import WindowMemory


class WindowAdder(Adder):
    """reserved: tokens of windows that are spoken for."""

    def __init__(
        self, engine: SglangEngine, memory: Memory, running: list[Request], ratio: float, mixed: int
    ) -> None:
        assert isinstance(memory, WindowMemory)
        self.pool, self.span, self.reserved = memory, engine.window, 0
        super().__init__(engine, memory, running, ratio, mixed)

    @property
    def left(self) -> int:
        """Tokens of windows that may still be promised."""
        return self.pool.windows_reachable - self.reserved

    def _takes(self, tokens: int, answer: int, limit: int | None) -> int:
        """Tokens of windows at the most, for a chunk of so many of ``tokens`` (estimate_swa_kv_tokens)."""
        chunk = tokens if limit is None else min(tokens, limit)
        return max(chunk - self.span, 0) + min(tokens + answer, self.span) + self.page

    def verdict(self) -> str:
        reachable = self.memory.reachable
        if reachable - self.promised > 0 and reachable - self.taken > 0 and self.left <= 0:
            return FULL
        return super().verdict()

    def _charge(self, tokens: int, answer: int) -> None:
        self.reserved += self._takes(self._whole(tokens), answer, self.chunk)
        super()._charge(tokens, answer)

    def _room(self, chunk: int) -> int:
        """None, where windows do not suffice: the prompt waits."""
        return min(chunk, int(self.memory.reachable - self.promised), self.left - self.page)

    def _limit(self, request: Request, tokens: int) -> int | None:
        """A prompt that never fits at once is cut smaller; another waits until windows are given back."""
        answer = min(max(request.answer - request.made, 0), CLIP)
        needed = self._takes(tokens, answer, self.chunk)
        left = self.left - self.pool.unheld_windows(request.node)
        if needed < left:
            return self.chunk
        if self.chunk is None or needed < self.engine.window_blocks * self.page:
            return 0
        most = left - self._takes(0, answer, None)
        return min(self.chunk, max(0, most // self.page * self.page))
