"""A closed load: so many requests are always under way, as benchmarks with a concurrency send them.

Requests are dealt over the pools in turn, and each pool has its share of the concurrency: as soon as one of
its requests ends its next one comes. Ranks that step together are served together. Times of the trace do not
count.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.fleet.lockstep import Lockstep, RankClock
from kvplan.simulation.fleet.ranks import Ranks
from kvplan.simulation.fleet.watched import Watched
from kvplan.simulation.load.closed_loop import Closed
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Outcome, Target, counted
from kvplan.simulation.over_time import Point
from kvplan.simulation.schedulers import viewed
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import AnyEngine, Trace, uncollected

MOST = 1_000_000


class WatchedClosed(Watched, Closed):
    """A closed load on a replica that is watched."""


class ClosedDealt:
    """A load of which ``concurrency`` requests are always under way, over so many pools."""

    def __init__(self, load: Load, pools: int, concurrency: int, ranks: Ranks | None = None) -> None:
        if not pools <= concurrency <= MOST:
            raise KvplanError(
                "bad-usage", f"{concurrency} requests under way over {pools} pools",
                help=f"--concurrency {max(pools, min(concurrency, MOST))}",
            )  # fmt: skip
        self.load, self.pools = load, pools
        self.together = ranks.count if ranks is not None and ranks.lockstep else 1
        self.shares = [(concurrency + pools - 1 - pool) // pools for pool in range(pools)]
        rows = [Arrival(0, one.prompt, one.answer, one.ids, one.priority) for one in load.arrivals]
        self.places = [range(pool, len(rows), pools) for pool in range(pools)]
        self.traces = [
            Trace([rows[place] for place in places], load.wide, load.book.part(load.arrivals, places))
            for places in self.places
        ]

    def run(self, engine: AnyEngine, clock: Clock, target: Target, frontend_ns: int = 0) -> Outcome:
        """One run. Raises KvplanError where a request can never be admitted."""
        engine.check()
        arrivals = list(self.load.arrivals)
        answers: list[tuple[Answer, Sequence[int]]] = []
        used: list[list[Point]] = []
        for first in range(0, self.pools, self.together):
            for pool, replica in enumerate(self._served(engine, clock, first), first):
                for number, place in enumerate(self.places[pool]):
                    arrivals[place] = replica.rows_due[number]
                answers.append((replica.answer, self.places[pool]))
                used.append(replica.series())
        return counted(
            arrivals, answers, engine, self.pools, target, frontend_ns, used,
        )  # fmt: skip

    def _served(self, engine: AnyEngine, clock: Clock, first: int) -> list[WatchedClosed]:
        """The pools that step together, from one on."""
        kind, alone = viewed(WatchedClosed, engine), self.together == 1
        found = []
        for pool in range(first, first + self.together):
            self.traces[pool].check()
            replica = kind(self.traces[pool], engine, clock if alone else RankClock())
            replica.start(self.shares[pool])
            found.append(replica)
        if alone:
            found[0].run()
        else:
            with uncollected():
                Lockstep(found, clock, engine.depth).advance()
        return found
