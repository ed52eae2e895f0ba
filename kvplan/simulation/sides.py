"""How many replicas that prefill and how many that decode keep the times: by runs of both kinds together."""

from __future__ import annotations

from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.simulation.fleet.disaggregated import Disaggregated, Late
from kvplan.simulation.fleet.run import ROUND_ROBIN
from kvplan.simulation.load.drawn import SIDE
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Target
from kvplan.simulation.search import MOST_REPLICAS, least_of
from kvplan.simulation.served import Served

_TRIED = 24
"""Times that replicas are added before none is said to keep the times."""
_PATIENCE = 4
"""After so many it is asked whether requests keep their times one at a time."""
_GUIDE = 500
"""Requests of the load by which it is guessed where the search over all of them begins."""
_APART = 10_000
"""Seconds between requests that come one at a time."""


class Sides(NamedTuple):
    """Replicas that prefill and that decode."""

    prefill: int
    decode: int


class _Runs:
    """Runs of a load on numbers of replicas of both kinds, each once."""

    def __init__(self, served: Served, load: Load, target: Target, case: tuple[str, str]) -> None:
        self.served, self.load, self.target, self.case = served, load, target, case
        self.known: dict[Sides, Late | None] = {}

    def late(self, sides: Sides) -> Late | None:
        """Who makes requests late on so many; None where enough keep the target."""
        if sides not in self.known:
            self.known[sides] = self._late(sides, self.load)
        return self.known[sides]

    def keeps_alone(self) -> bool:
        """Whether enough requests keep the target one at a time."""
        return self._late(Sides(1, 1), self.load.apart(_APART)) is None

    def _late(self, sides: Sides, load: Load) -> Late | None:
        served, (pool, speed) = self.served, self.case
        assert served.split is not None
        split = replace(served.split, prefill=sides.prefill, decode=sides.decode)
        found = Disaggregated(load, split, ROUND_ROBIN, served.ranks).kept_or_late(
            served.engine(pool), served.speeds.clock(speed), self.target, served.speeds.frontend(speed)
        )
        return found if isinstance(found, Late) else None


def least_sides(
    served: Served, load: Load, first: Sides, target: Target, case: tuple[str, str], most: int
) -> Sides | None:
    """As few replicas of both kinds as keep the target, ``most`` together, looked for from ``first`` on: none
    less of either kind would. None where no number that was tried does. case: pool and speed."""
    whole = load.over(SIDE, dealt=False)
    part = whole.first(_GUIDE)
    if part is not whole:
        first = _least(_Runs(served, part, target, case), first, most) or first
    return _least(_Runs(served, whole, target, case), first, most)


def _least(runs: _Runs, first: Sides, most: int) -> Sides | None:
    """More of the kind that makes requests late until enough are in time, then fewer of each."""
    now, tried = first, 0
    while (late := runs.late(now)) is not None:
        tried += 1
        if tried > _TRIED or (tried == _PATIENCE and not runs.keeps_alone()):
            return None
        if late.prefill > late.decode:
            now = now._replace(prefill=now.prefill + max(1, now.prefill // 4))
        else:
            now = now._replace(decode=now.decode + max(1, now.decode // 4))
        if sum(now) > most or max(now) > MOST_REPLICAS:
            return None
    decode = now.decode
    now = now._replace(prefill=least_of(lambda n: runs.late(Sides(n, decode)) is None, now.prefill))
    prefill = now.prefill
    return now._replace(decode=least_of(lambda n: runs.late(Sides(prefill, n)) is None, now.decode))
