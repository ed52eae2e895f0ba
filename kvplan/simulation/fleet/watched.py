"""A replica that is watched: how many blocks are in use over time."""

from __future__ import annotations

from kvplan.simulation.over_time import Point
from kvplan.simulation.schedulers import viewed
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import AnyEngine, Hopeless, Timeline, Trace

_MOST_POINTS = 100_000


class Watched(Timeline):
    """A replica that notes how many blocks are in use, at every step that is scheduled by itself."""

    def __init__(self, trace: Trace, engine: AnyEngine, time: Clock) -> None:
        super().__init__(trace, engine, time, jump=True, rows=False)
        self.used: list[Point] = [(0, 0)]
        self.every = 1
        self.seen = 0

    def arrive(self) -> None:
        """Called before each step: also the moment to look at the pool."""
        self.seen += 1
        if self.seen % self.every == 0:
            count = self.limits.blocks - self.free
            if count != self.used[-1][1]:
                self.used.append((self.now, count))
                if len(self.used) > _MOST_POINTS:
                    self.used = self.used[::2]
                    self.every *= 2
        super().arrive()

    def series(self) -> list[Point]:
        return [*self.used, (self.now, 0)]


def watched(
    trace: Trace, engine: AnyEngine, clock: Clock, hopeless: Hopeless | None = None
) -> tuple[Answer, list[Point]] | None:
    """`kvplan.simulation.vllm.replica.simulate`, and the blocks in use over time; None where ``hopeless``
    ended it."""
    replica = viewed(Watched, engine)(trace, engine, clock)
    if hopeless is None:
        replica.run()
    elif not replica.run_unless(hopeless):
        return None
    return replica.answer, replica.series()
