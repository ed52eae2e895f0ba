"""A load on replicas of several data-parallel ranks: the router picks a replica, its front ends a rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kvplan.errors import KvplanError
from kvplan.simulation.fleet.ranks import RankedReplica, Ranks
from kvplan.simulation.fleet.run import LOOKING, MOST_POOLS, Dealt, Picks, deal, router_of
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Misses, Outcome, Target, counted
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.timeline import BEYOND, LOOKS_EVERY, AnyEngine, uncollected

Hopeless = Callable[[Sequence[RankedReplica]], bool]


class DealtOverRanks(Dealt):
    """Replicas that are dealt to without a look at them are served one after another, others side by side."""

    def __init__(self, load: Load, replicas: int, ranks: Ranks, router: str) -> None:
        if not 1 <= replicas * ranks.count <= MOST_POOLS:
            raise KvplanError(
                "bad-replicas", f"{replicas} replicas of {ranks.count} data-parallel ranks",
                help=f"1 to {MOST_POOLS} ranks in all",
            )  # fmt: skip
        router_of(router, replicas)
        self.load, self.pools, self.router = load, replicas * ranks.count, router
        self.replicas, self.ranks = replicas, ranks
        self.looks = router.partition(":")[0] in LOOKING and replicas > 1
        self.whole = load.trace()

    def _run(
        self, engine: AnyEngine, clock: Clock, target: Target, frontend_ns: int, misses: Misses | None
    ) -> Outcome | None:
        engine.check()
        self.whole.check()
        late = None if misses is None else _Late(misses, self.pools)
        served: list[RankedReplica] = []
        try:
            with uncollected():
                for some, places in self._groups(engine, clock):
                    served += some
                    if not self._serve(some, places, served, late):
                        return None
        except KvplanError as error:
            raise self._never(error) from None
        ranks = [rank for replica in served for rank in replica.ranks]
        return counted(
            self.load.arrivals, [(rank.answer, rank.places) for rank in ranks], engine, self.pools, target,
            frontend_ns, [rank.series() for rank in ranks],
        )  # fmt: skip

    def _groups(self, engine: AnyEngine, clock: Clock) -> Iterator[tuple[list[RankedReplica], Sequence[int]]]:
        """Replicas that are served side by side, with the places of their requests."""

        def made() -> RankedReplica:
            return RankedReplica(self.whole, engine, clock, self.ranks)

        if self.looks:
            yield [made() for _ in range(self.replicas)], range(len(self.load.arrivals))
            return
        for places in deal(self.load.arrivals, self.replicas, self.router, self.load.wide):
            yield [made()], places

    def _serve(
        self,
        some: list[RankedReplica],
        places: Sequence[int],
        served: list[RankedReplica],
        late: _Late | None,
    ) -> bool:
        """Serve their requests; False where the target is certain to be missed before the end."""
        picks = Picks(self.load, self.router, len(some)) if len(some) > 1 else None
        for number, place in enumerate(places):
            at_ns = self.load.arrivals[place].at_ns
            for replica in some:
                replica.advance(at_ns)
            if late is not None and number % LOOKS_EVERY == 0 and late.too_many(served):
                return False
            some[0 if picks is None else picks(place, at_ns, some)].give(place)
        for replica in some:
            replica.advance(BEYOND)
        return late is None or not late.too_many(served)


class _Late:
    """Requests of all ranks that are certain to miss the target."""

    def __init__(self, misses: Misses, ranks: int) -> None:
        self.most = misses.most
        self.each = [misses.alike() for _ in range(ranks)]

    def too_many(self, served: Sequence[RankedReplica]) -> bool:
        ranks = (rank for replica in served for rank in replica.ranks)
        return sum(map(Misses.look, self.each, ranks)) > self.most
