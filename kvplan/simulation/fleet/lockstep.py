"""Ranks that step together: each schedules by itself, and all wait for the slowest.

vllm-project/vllm v1/engine/core.py (DPEngineCoreProc: a rank with nothing to do runs a dummy batch);
sgl-project/sglang managers/scheduler_components (prepare_mlp_sync_batch: it runs an idle batch). Which tokens
go to which expert is not known here: they are taken to be spread evenly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kvplan.simulation.time.clock import Clock, Computed
from kvplan.simulation.time.timeline import BEYOND, Launched, Timeline

_TRIES = 8
"""Steps without a token, one after the other, after which nothing happens before the next request comes."""


class RankClock:
    """The clock of a rank: how long its step takes is known once all ranks have one."""

    def lasts(self, step: Computed) -> int:
        return 0

    def line(self, count: int, context: int) -> tuple[int, int, int]:
        raise AssertionError("ranks step together, one step after another")

    def stages(self, step: Computed, count: int) -> Sequence[int]:
        raise AssertionError("ranks that step together have no pipeline")

    def together(self, steps: Sequence[Computed]) -> int:
        return 0


Slot = list[tuple[Timeline, Launched]]


class Lockstep:
    """ranks: their `RankClock` says nothing; clock: of a step of all; depth: steps that are under way at
    once; queue: those."""

    def __init__(self, ranks: Sequence[Timeline], clock: Clock, depth: int) -> None:
        self.ranks, self.clock, self.depth = ranks, clock, depth
        self.now = self.free_at = self.idle = 0
        self.queue: deque[Slot] = deque()

    def advance(self, until: int = BEYOND) -> None:
        """Serve what has arrived; no step is scheduled at or after ``until``."""
        self.idle = 0
        for rank in self.ranks:
            rank.until = until
        while self.now < until:
            for rank in self.ranks:
                rank.now = self.now
                rank.arrive()
            if not self.queue and not any(rank.busy for rank in self.ranks):
                due = min(rank.due_ns() for rank in self.ranks)
                if due == BEYOND:
                    break
                self.now = max(self.now, due)
            elif not any(rank.busy for rank in self.ranks) or self._launch():
                self._end()
        for rank in self.ranks:
            rank.now = rank.answer.end_ns = self.now

    def _launch(self) -> bool:
        """Let all ranks schedule a step; whether one is to end before the next."""
        slot: Slot = []
        for place, rank in enumerate(self.ranks):
            step = rank.launch(self._under_way(place))
            if step is not None:
                slot.append((rank, step))
        computing = [step for _, step in slot if step.tokens]
        if computing:
            self._run(slot, computing)
        elif not any(step.tokens for under_way in self.queue for _, step in under_way):
            self.idle += 1
            if self.idle > _TRIES and any(rank.at_work for rank in self.ranks):
                self._wait()
        if self.depth == 1 and not computing:
            return False
        self.idle = 0 if computing else self.idle
        self.queue.append(slot)
        return len(self.queue) == self.depth or not (computing or any(rank.busy for rank in self.ranks))

    def _under_way(self, place: int) -> Launched | None:
        """The step of a rank that was scheduled last and has not ended."""
        rank = self.ranks[place]
        return next((step for one, step in self.queue[-1] if one is rank), None) if self.queue else None

    def _run(self, slot: Slot, computing: Sequence[Launched]) -> None:
        """All ranks' steps begin when the last can, and end together."""
        starts = max(self.now, self.free_at, *(rank.free_at for rank, _ in slot))
        lasts = self.clock.together(computing)
        self.free_at = starts + lasts
        for rank, step in slot:
            if step.tokens:
                step.ends_ns = self.free_at
                rank.answer.busy_ns += lasts
        for rank in self.ranks:
            rank.free_at = self.free_at

    def _end(self) -> None:
        slot = self.queue.popleft()
        ends = [step.ends_ns for _, step in slot if step.tokens]
        self.now = max([self.now, *ends])
        for rank, step in slot:
            rank.now = self.now
            rank.end(step)

    def _wait(self) -> None:
        """Until the next request comes. Raises KvplanError where none does: a request never fits."""
        due = min(rank.next_ns() for rank in self.ranks)
        if due == BEYOND:
            next(rank for rank in self.ranks if rank.at_work).wait()
        self.now, self.idle = max(self.now, due), 0
