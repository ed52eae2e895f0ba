"""Data-parallel ranks of one replica: a scheduler each, to whom the server's front ends deal requests.

vllm-project/vllm 0.24 to 0.33 v1/engine/core_client.py (DPLBAsyncMPClient), v1/engine/coordinator.py and
entrypoints/cli/serve.py (as many front ends as ranks); sgl-project/sglang 0.5.23
managers/data_parallel_controller.py (round_robin_scheduler). Ranks of a mixture of experts, and of attention
that is data-parallel, step together (`lockstep`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kvplan.engines.scheduling import BY_COUNTS
from kvplan.record import record
from kvplan.simulation.fleet.lockstep import Lockstep, RankClock
from kvplan.simulation.fleet.scored import State
from kvplan.simulation.fleet.together import Joined
from kvplan.simulation.schedulers import viewed
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.timeline import BEYOND, AnyEngine, Numbered, Trace
from kvplan.simulation.vllm.releases import Rules

TOLD_EVERY_NS = 100_000_000
"""The coordinator tells front ends the ranks' counts so often (min_stats_update_interval_ms)."""
FEARED = 6.0
"""By so many a waiting request counts at most, for a cache that is more than half full, times the excess."""


@record()
class Ranks:
    """count: ranks of a replica; lockstep: they step together; dealt: how requests are dealt to them."""

    count: int
    lockstep: bool = False
    dealt: str = ""


class Rank(Joined):
    """A rank. left: places of requests that have ended, with when."""

    def __init__(self, trace: Trace, engine: AnyEngine, time: Clock) -> None:
        super().__init__(trace, engine, time)
        self.left: deque[tuple[int, int]] = deque()

    def made(self, made: Sequence[tuple[Numbered, bool]]) -> None:
        super().made(made)
        self.left += [(self.now, self.places[request.number]) for request, done in made if done]


class _InTurn:
    """One rank after another."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self.ranks, self.next = ranks, 0

    def tell(self) -> None:
        """It looks at nothing."""

    def pick(self, place: int, at_ns: int) -> int:
        found, self.next = self.next, (self.next + 1) % len(self.ranks)
        return found


class _ByCounts:
    """vLLM's front ends, one for each rank, which take requests in turn. told: of each front end what it
    knows of each rank: waiting, running, share of the cache in use; sent: requests of a front end on a rank
    that have not ended; by: of each request, by its place, the front end that sent it."""

    def __init__(self, ranks: Sequence[Rank], rules: Rules, lockstep: bool) -> None:
        count = len(ranks)
        self.ranks, self.rules, self.fronts = ranks, rules, count
        self.reports = lockstep or rules.dense_counts
        self.told: list[list[tuple[int, int, float]]] = [[(0, 0, 0.0)] * count for _ in range(count)]
        self.sent = [[0] * count for _ in range(count)]
        self.start = list(range(count))
        self.by: dict[int, int] = {}
        self.next = 0

    def tell(self) -> None:
        """Every front end learns the counts of now."""
        if not self.reports:
            return
        now = []
        for rank in self.ranks:
            waiting = rank.queued
            now.append((waiting, rank.at_work - waiting, 1 - rank.free / rank.limits.blocks))
        self.told = [list(now) for _ in range(self.fronts)]

    def pick(self, place: int, at_ns: int) -> int:
        front, count = self.next, len(self.ranks)
        self.next = (front + 1) % self.fronts
        for number, rank in enumerate(self.ranks):
            while rank.left and rank.left[0][0] <= at_ns:
                self.sent[self.by.pop(rank.left.popleft()[1])][number] -= 1
        told, start = self.told[front], self.start[front]
        chosen = min(
            ((start + more) % count for more in range(count)), key=lambda one: self._load(front, one)
        )
        waiting, running, used = told[chosen]
        told[chosen] = waiting + self.fronts, running, used
        if self.rules.rotates:
            self.start[front] = (start + 1) % count
        self.sent[front][chosen] += 1
        self.by[place] = front
        return chosen

    def _load(self, front: int, rank: int) -> float:
        waiting, running, used = self.told[front][rank]
        if not self.rules.own_counts:
            return 4 * waiting + running
        load = max(self.fronts * self.sent[front][rank], waiting + running)
        return load + waiting * FEARED * max(0.0, used - 0.5)


class RankedReplica:
    """One server of several ranks, as a router sees a replica."""

    def __init__(self, trace: Trace, engine: AnyEngine, clock: Clock, ranks: Ranks) -> None:
        kind = viewed(Rank, engine)
        each = RankClock() if ranks.lockstep else clock
        self.ranks: list[Rank] = [kind(trace, engine, each) for _ in range(ranks.count)]
        self.lockstep = Lockstep(self.ranks, clock, engine.depth) if ranks.lockstep else None
        self.trace, self.limits, self.told_ns = trace, engine, 0
        self.deals: _InTurn | _ByCounts = _InTurn(self.ranks)
        if ranks.dealt == BY_COUNTS:
            self.deals = _ByCounts(self.ranks, Rules.of(engine.release), ranks.lockstep)

    def advance(self, until: int) -> None:
        """Serve what has come; on the way the front ends learn how busy the ranks are."""
        told = until - until % TOLD_EVERY_NS
        if self.told_ns < told and until < BEYOND:
            self._advance(told)
            self.deals.tell()
            self.told_ns = told
        self._advance(until)

    def _advance(self, until: int) -> None:
        if self.lockstep is not None:
            self.lockstep.advance(until)
            return
        for rank in self.ranks:
            rank.advance(until)

    def give(self, place: int) -> None:
        """A request is this replica's. One that is refused is no rank's: its place does not matter."""
        row = self.trace.arrivals[place]
        taken = self.limits.takes(row.prompt)
        self.ranks[self.deals.pick(place, row.at_ns) if taken else 0].give(place)

    def load(self, at_ns: int) -> int:
        """Requests under way."""
        return sum(rank.load(at_ns) for rank in self.ranks)

    def state(self) -> State:
        """All ranks together."""
        states = [rank.state() for rank in self.ranks]
        return State(
            sum(one.waiting for one in states), sum(one.used for one in states),
            sum(one.blocks for one in states), sum(one.prefill for one in states),
            sum(one.queued for one in states), states[0].block,
        )  # fmt: skip
