"""Replicas of a fleet side by side in one virtual time, for routers that look at what is under way.

At each arrival every replica has served what came before; the router sees how many of the requests that it
sent to each are not finished at that time (a step that is under way then has finished none), and the request
goes to the replica that it picks at once. Without a router that looks, this is the same as serving each
replica's requests alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from kvplan.plans.arrival import Arrival
from kvplan.simulation.fleet.scored import State
from kvplan.simulation.fleet.watched import Watched
from kvplan.simulation.outcome import Misses
from kvplan.simulation.schedulers import viewed
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.results import COLUMNS, Answer
from kvplan.simulation.time.timeline import LOOKS_EVERY, AnyEngine, Numbered, Trace

Pick = Callable[[int, int, "Sequence[Joined]"], int]
"""Which replica serves a request, by its place in the trace, its time and the replicas."""
_BEYOND = 1 << 62


class Seen(Protocol):
    """A replica as a router sees it."""

    def load(self, at_ns: int) -> int: ...

    def state(self) -> State: ...


class Joined(Watched):
    """A replica whose requests are handed to it one by one. places: theirs in the whole trace."""

    def __init__(self, trace: Trace, engine: AnyEngine, time: Clock) -> None:
        super().__init__(trace, engine, time)
        self.given: list[Arrival] = []
        self.arrivals = self.given
        self.answer = Answer(0, False)
        self.places: list[int] = []
        self.under_way = 0
        self.unmade: deque[tuple[int, int]] = deque()
        self.prompts = 0
        self.ended: deque[tuple[int, int]] = deque()

    def give(self, place: int) -> None:
        """It is this replica's."""
        row = self.trace.arrivals[place]
        self.given.append(row)
        self.places.append(place)
        if self.limits.takes(row.prompt):  # others are refused at once
            self.under_way += 1
            self.unmade.append((len(self.places) - 1, row.prompt))
            self.prompts += row.prompt
        for number, name in enumerate(COLUMNS):
            self.answer.columns[name].append(-1 if number < 5 else 0)

    def load(self, at_ns: int) -> int:
        """Requests under way at a time, which does not fall from call to call."""
        while self.ended and self.ended[0][0] <= at_ns:
            self.under_way -= self.ended.popleft()[1]
        return self.under_way

    def state(self) -> State:
        """The replica's state as a router sees it now."""
        made, unmade = self.answer.columns["first_token_ns"], self.unmade
        while unmade and made[unmade[0][0]] >= 0:
            self.prompts -= unmade.popleft()[1]
        begun, limits = self.begun(), self.limits
        prefill = max(0, self.prompts - sum(computed for computed, _ in begun))
        queued = max(0, self.prompts - sum(prompt for _, prompt in begun))
        block, used = limits.block, limits.blocks - self.free
        waiting = self.queued + len(self.given) - self.coming
        return State(waiting, used, limits.blocks, prefill, queued // block, block)

    def place(self, number: int) -> int:
        return self.places[number]

    def made(self, made: Sequence[tuple[Numbered, bool]]) -> None:
        super().made(made)
        ended = sum(done for _, done in made)
        if ended:
            self.ended.append((self.now, ended))


def side_by_side(
    trace: Trace, replicas: int, engine: AnyEngine, clock: Clock, pick: Pick, misses: Misses | None = None
) -> list[Joined] | None:
    """The replicas once all is served; None as soon as more requests miss the target than ``misses`` allows.
    Raises KvplanError where a request can never be admitted."""
    kind = viewed(Joined, engine)
    fleet = [kind(trace, engine, clock) for _ in range(replicas)]
    counts = [] if misses is None else [misses.alike() for _ in fleet]

    def hopeless() -> bool:
        return misses is not None and sum(map(Misses.look, counts, fleet)) > misses.most

    for place, row in enumerate(trace.arrivals):
        for one in fleet:
            one.advance(row.at_ns)
        if place % LOOKS_EVERY == 0 and hopeless():
            return None
        fleet[pick(place, row.at_ns, fleet)].give(place)
    for one in fleet:
        one.advance(_BEYOND)
        if hopeless():
            return None
    return fleet
