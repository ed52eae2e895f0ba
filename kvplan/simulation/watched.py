"""A replica that is watched: how many blocks are in use over time."""

from __future__ import annotations

from kvplan.simulate.clock import Clock
from kvplan.simulate.offload.replica import Offloaded
from kvplan.simulate.pool import ApartError
from kvplan.simulate.replica import Replica, Trace
from kvplan.simulate.results import Answer
from kvplan.simulate.settings import Engine
from kvplan.simulation.outcome import Point

_MOST_POINTS = 100_000


class Watched(Replica):
    """A replica that notes how many blocks are in use, at every step that is scheduled by itself."""

    def __init__(self, trace: Trace, engine: Engine, time: Clock, *, merged: bool = True) -> None:
        super().__init__(trace, engine, time, jump=True, rows=False, merged=merged)
        self.used: list[Point] = [(0, 0)]
        self.every = 1
        self.seen = 0

    def arrive(self) -> None:
        """Called before each step: also the moment to look at the pool."""
        self.seen += 1
        if self.seen % self.every == 0:
            count = self.engine.blocks - self.scheduler.memory.pool.free
            if count != self.used[-1][1]:
                self.used.append((self.now, count))
                if len(self.used) > _MOST_POINTS:
                    self.used = self.used[::2]
                    self.every *= 2
        super().arrive()

    def series(self) -> list[Point]:
        return [*self.used, (self.now, 0)]


class WatchedOffloaded(Watched, Offloaded):
    """One that offloads."""


def watched(trace: Trace, engine: Engine, clock: Clock) -> tuple[Answer, list[Point]]:
    """`kvplan.simulate.simulate`, and the blocks in use over time."""
    kind = Watched if engine.offload is None else WatchedOffloaded
    try:
        replica = kind(trace, engine, clock)
        return replica.run(), replica.series()
    except ApartError:
        replica = Watched(trace, engine, clock, merged=False)
        return replica.run(), replica.series()
