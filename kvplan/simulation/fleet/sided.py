"""Ranks of one kind of a disaggregated replica that step together, as one that is served beside others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvplan.simulation.fleet.lockstep import Lockstep, Slot
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.timeline import BEYOND, Launched, Timeline


class Side(Protocol):
    """One that is served by itself as far as nothing that the others do may reach it. stalled: nothing can be
    scheduled until something comes, or is there; first_end: when its first step under way ends."""

    stalled: bool
    now: int

    @property
    def active(self) -> bool: ...
    @property
    def at(self) -> int: ...
    @property
    def first_end(self) -> int | None: ...
    def advance(self, until: int = BEYOND) -> None: ...


class Known(Side, Protocol):
    """A rank; known: when the next thing happens to it that is known already."""

    def known(self) -> int: ...


class SidedLockstep(Lockstep):
    """sides: the ranks, of one kind."""

    stalled = False

    def __init__(self, ranks: Sequence[Timeline], sides: Sequence[Known], clock: Clock, depth: int) -> None:
        super().__init__(ranks, clock, depth)
        self.sides = sides

    @property
    def active(self) -> bool:
        return bool(self.queue) or any(side.active for side in self.sides)

    @property
    def at(self) -> int:
        """When it goes on."""
        if not self.stalled:
            return self.now
        return max(self.now, min(side.known() for side in self.sides))

    @property
    def first_end(self) -> int | None:
        if not self.queue:
            return None
        return max((step.ends_ns for _, step in self.queue[0] if step.tokens), default=self.now)

    def _run(self, slot: Slot, computing: Sequence[Launched]) -> None:
        self.stalled = False
        super()._run(slot, computing)

    def _wait(self) -> None:
        self.stalled = True
        self.now, self.idle = max(self.now, min(rank.next_ns() for rank in self.ranks)), 0
