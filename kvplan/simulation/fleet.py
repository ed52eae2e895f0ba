"""A fleet on a load: requests are dealt over its pools, each pool is one simulated engine."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import KvplanError, did_you_mean
from kvplan.simulate.clock import Clock
from kvplan.simulate.names import Arrival
from kvplan.simulate.pool import ApartError
from kvplan.simulate.replica import Replica, Trace
from kvplan.simulate.results import Answer
from kvplan.simulate.settings import Engine, check
from kvplan.simulation.load import Load
from kvplan.simulation.outcome import Outcome, Point, Target, counted

ROUND_ROBIN = "round-robin"
ROUTERS = (ROUND_ROBIN, "prefix-hash")
"""prefix-hash: requests with the same first `HEAD` tokens go to one pool."""
HEAD = 1024
_MOST_POINTS = 100_000
MOST_POOLS = 4096


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


def watched(trace: Trace, engine: Engine, clock: Clock) -> tuple[Answer, list[Point]]:
    """`kvplan.simulate.simulate`, and the blocks in use over time."""
    try:
        replica = Watched(trace, engine, clock)
        return replica.run(), replica.series()
    except ApartError:
        replica = Watched(trace, engine, clock, merged=False)
        return replica.run(), replica.series()


class Dealt:
    """A load dealt over so many pools, so that several runs share the names of its prefixes."""

    def __init__(self, load: Load, pools: int, router: str = ROUND_ROBIN) -> None:
        if not 1 <= pools <= MOST_POOLS:
            raise KvplanError("bad-replicas", f"{pools} pools of requests", help=f"1 to {MOST_POOLS}")
        self.load, self.pools = load, pools
        self.places = deal(load.arrivals, pools, router, load.wide)
        self.traces = [
            load.trace() if pools == 1 else Trace([load.arrivals[place] for place in places], load.wide)
            for places in self.places
        ]

    def run(self, engine: Engine, clock: Clock, target: Target, frontend_ns: int = 0) -> Outcome:
        """One run. Raises KvplanError where a request can never be admitted."""
        check(engine)
        answers: list[tuple[Answer, Sequence[int]]] = []
        used = []
        for trace, places in zip(self.traces, self.places):
            try:
                answer, series = watched(trace, engine, clock)
            except KvplanError as error:
                raise self._never(error, places) from None
            answers.append((answer, places))
            used.append(series)
        return counted(
            self.load.arrivals, answers, engine.blocks * self.pools, engine.length, target, frontend_ns, used
        )

    def _never(self, error: KvplanError, places: Sequence[int]) -> KvplanError:
        if error.code != "request-never-fits" or not places:
            return error
        return KvplanError(
            error.code,
            f"{self.load.name}: {error.message}",
            help=("--max-model-len 32k refuses longer requests", *error.help),
        )


def deal(arrivals: Sequence[Arrival], pools: int, router: str, wide: int = 1) -> list[list[int]]:
    """The places of the requests that each pool gets. Raises KvplanError(unknown-router)."""
    if router not in ROUTERS:
        near = did_you_mean(router, ROUTERS)
        raise KvplanError(
            "unknown-router", f"there is no router {router!r}",
            help=f"did you mean {near}?" if near else "routers: " + ", ".join(ROUTERS),
        )  # fmt: skip
    found: list[list[int]] = [[] for _ in range(pools)]
    head = max(1, HEAD // wide)
    for place, one in enumerate(arrivals):
        if router == ROUND_ROBIN or not one.ids:
            found[place % pools].append(place)
        else:
            found[_mixed(one.ids[:head]) % pools].append(place)
    return found


def _mixed(ids: Sequence[int]) -> int:
    """A number that neighbouring identities do not share, the same on every machine."""
    state = 0xCBF29CE484222325
    for identity in ids:
        state = ((state ^ (identity & 0xFFFFFFFFFFFFFFFF)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 29
    return state
