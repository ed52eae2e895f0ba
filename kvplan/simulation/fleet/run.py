"""A fleet on a load: requests are dealt over its pools, each pool is one simulated engine.

Routers are those of `routers`. Those that look at what is under way serve all pools side by
side; what the others do is known before anything is served.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kvplan.errors import KvplanError, did_you_mean
from kvplan.plans.arrival import Arrival
from kvplan.simulation.fleet import routers as fleet
from kvplan.simulation.fleet.scored import SCORED, scored
from kvplan.simulation.fleet.together import Seen, side_by_side
from kvplan.simulation.fleet.watched import watched
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Misses, Outcome, Target, counted, most_missed
from kvplan.simulation.over_time import Point
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import AnyEngine

ROUND_ROBIN, PREFIX_HASH = "round-robin", "prefix-hash"
ROUTERS = (*fleet.ROUTERS, *SCORED)
LOOKING = ("least-loaded", "power-of-two", "cache-aware", *SCORED)
"""Routers that look at what is under way."""
_BY_PREFIX = (PREFIX_HASH, "longest-match")
"""Requests of which no identity is known are dealt in turn by these: prompts are then taken to differ."""
HEAD = 1024
"""prefix-hash: requests with the same first so many tokens go to one pool."""
MOST_POOLS = 4096


class Dealt:
    """A load dealt over so many pools, so that several runs share the names of its prefixes."""

    def __init__(self, load: Load, pools: int, router: str = ROUND_ROBIN) -> None:
        if not 1 <= pools <= MOST_POOLS:
            raise KvplanError("bad-replicas", f"{pools} pools of requests", help=f"1 to {MOST_POOLS}")
        self.load, self.pools, self.router = load, pools, router
        router_of(router, pools)
        self.looks = router.partition(":")[0] in LOOKING and pools > 1
        if self.looks:
            self.whole = load.trace()
            return
        self.places = deal(load.arrivals, pools, router, load.wide)
        self.traces = [load.trace() if pools == 1 else load.trace(places) for places in self.places]

    def run(self, engine: AnyEngine, clock: Clock, target: Target, frontend_ns: int = 0) -> Outcome:
        """One run. Raises KvplanError where a request can never be admitted."""
        outcome = self._run(engine, clock, target, frontend_ns, None)
        assert outcome is not None
        return outcome

    def kept(self, engine: AnyEngine, clock: Clock, target: Target, frontend_ns: int = 0) -> Outcome | None:
        """The run, where it keeps the target; None as soon as it is known not to."""
        most = most_missed(target, len(self.load.arrivals))
        outcome = self.missing(most, engine, clock, target, frontend_ns)
        return outcome if outcome is not None and outcome.keeps(target) else None

    def missing(
        self, most: int, engine: AnyEngine, clock: Clock, target: Target, frontend_ns: int = 0
    ) -> Outcome | None:
        """The run, where at most so many requests miss the target; None as soon as more are known to."""
        misses = Misses(target, frontend_ns, most) if target.asked else None
        return self._run(engine, clock, target, frontend_ns, misses)

    def _run(
        self, engine: AnyEngine, clock: Clock, target: Target, frontend_ns: int, misses: Misses | None
    ) -> Outcome | None:
        engine.check()
        answers: list[tuple[Answer, Sequence[int]]] = []
        used: list[list[Point]] = []
        try:
            if self.looks:
                self.whole.check()
                pick = Picks(self.load, self.router, self.pools)
                fleet = side_by_side(self.whole, self.pools, engine, clock, pick, misses)
                if fleet is None:
                    return None
                for replica in fleet:
                    answers.append((replica.answer, replica.places))
                    used.append(replica.series())
            else:
                for trace, places in zip(self.traces, self.places):
                    served = watched(trace, engine, clock, misses)
                    if served is None:
                        return None
                    if misses is not None:
                        misses.next_engine()
                    answers.append((served[0], places))
                    used.append(served[1])
        except KvplanError as error:
            raise self._never(error) from None
        return counted(
            self.load.arrivals, answers, engine, self.pools, target, frontend_ns, used,
        )  # fmt: skip

    def _never(self, error: KvplanError) -> KvplanError:
        if error.code != "request-never-fits":
            return error
        return KvplanError(
            error.code,
            f"{self.load.name}: {error.message}",
            help=("--max-model-len 32k refuses longer requests", *error.help),
        )


class Picks:
    """A router's choices for the requests of a load."""

    def __init__(self, load: Load, router: str, pools: int) -> None:
        self.arrivals, self.wide = load.arrivals, load.wide
        self.scored = scored(router, pools)
        self.plain = None if self.scored is not None else fleet.router(router, pools)
        if isinstance(self.plain, fleet.PrefixHash):
            self.plain.first = max(1, HEAD // load.wide)
        talks = isinstance(self.plain, fleet.Session)
        self.keys: Sequence[Hashable] = sessions(load.arrivals, load.wide) if talks else ()

    def __call__(self, place: int, at_ns: int, replicas: Sequence[Seen]) -> int:
        row = self.arrivals[place]
        chain = prompt_of(row, self.wide)
        if self.scored is not None:
            return self.scored.choose(chain, row.prompt, self.wide, [one.state() for one in replicas])
        assert self.plain is not None
        key = self.keys[place] if self.keys else None
        return self.plain.pick(chain, [one.load(at_ns) for one in replicas], key)


def router_of(router: str, pools: int) -> None:
    """Raises KvplanError(bad-router) where there is no such router, or it has no such weight."""
    if scored(router, pools) is None:
        name = router.partition(":")[0]
        if name not in ROUTERS or name != router:
            near = did_you_mean(name, ROUTERS)
            raise KvplanError(
                "bad-router", f"router {router!r} is unknown",
                help=f"did you mean {near}?" if near else f"use one of {', '.join(ROUTERS)}",
            )  # fmt: skip
        fleet.router(router, pools)


def deal(arrivals: Sequence[Arrival], pools: int, router: str, wide: int = 1) -> list[list[int]]:
    """The places of the requests that each pool gets, by a router that does not look at what is under way.
    Raises KvplanError(bad-router)."""
    found: list[list[int]] = [[] for _ in range(pools)]
    if scored(router, pools) is not None:  # alone, or without time: nothing is to be weighed
        router = ROUND_ROBIN
    picks = fleet.router(router, pools)
    if isinstance(picks, fleet.PrefixHash):
        picks.first = max(1, HEAD // wide)
    keys: Sequence[Hashable] = sessions(arrivals, wide) if isinstance(picks, fleet.Session) else ()
    none = [0] * pools
    for place, one in enumerate(arrivals):
        if router in _BY_PREFIX and not one.ids:
            found[place % pools].append(place)
        else:
            chosen = picks.pick(prompt_of(one, wide), none, keys[place] if keys else None)
            found[chosen].append(place)
    return found


def prompt_of(arrival: Arrival, wide: int) -> Sequence[int]:
    """The identities that a router sees: the prompt's, not the answer's."""
    return arrival.ids[: -(-arrival.prompt // wide)]


def sessions(arrivals: Sequence[Arrival], wide: int) -> list[int]:
    """The conversation of each request, as the place of its first one: a prompt that begins with all whole
    blocks of an earlier prompt (of several the longest) is its next turn, if it is the first that does; any
    other begins a conversation. Traces name identities, not users, so this is read off the prompts."""
    ends: dict[int, int] = {}
    found = []
    for place, one in enumerate(arrivals):
        whole = one.ids[: one.prompt // wide]
        last = next((identity for identity in reversed(whole) if identity in ends), None)
        session = place if last is None else ends.pop(last)
        if whole:
            ends[whole[-1]] = session
        found.append(session)
    return found
