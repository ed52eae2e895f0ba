"""The Pareto front: plans that none beats in GPUs (cost under that objective), requests, length and TPOT."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kvplan.engines.budget.law import Rejection
from kvplan.named import NamedTuple
from kvplan.planning.ask import COST, REQUESTS, TENSOR_WAYS, Ask
from kvplan.planning.confirm import settings_of
from kvplan.planning.found import Found
from kvplan.planning.search import search
from kvplan.record import replace

FRONT_GPUS = 8
"""As many GPUs a Pareto front looks at where nobody says how many there are."""
TIMED_KINDS = 4
"""With more classes of GPUs than this it is without TPOT: an estimate for each point would take long."""
_MICROSECONDS = 10**6


class Point(NamedTuple):
    """price: GPUs or their cost. tpot: microseconds at the full load, by the estimate; 0 where not known."""

    ask: Ask
    found: Found
    price: Fraction | int
    tpot: int

    def beats(self, other: Point) -> bool:
        """At least as good in everything."""
        return (
            self.price <= other.price
            and self.found.requests >= other.found.requests
            and self.found.max_model_len >= other.found.max_model_len
            and self.tpot <= other.tpot
        )


def pareto_front(ask: Ask) -> list[Point]:
    """The most requests of 1, 2, 4 … GPUs, as long as in the ask, and half, twice and four times as long;
    where TPOT counts, of every tensor parallel size, as more ranks are faster though they hold less."""
    limits = [limit for offer in ask.offers if (limit := ask.limit(offer)) is not None]
    most = max(limits, default=FRONT_GPUS)
    timed = is_timed(ask)
    points: list[Point] = []
    for stretched in _stretched(ask):
        count = 1
        while count <= most:
            asked = replace(stretched, objective=REQUESTS, requests=1, max_gpus=count)
            ways = [way for way in ask.tp or TENSOR_WAYS if way <= count] if timed else [None]
            for way in ways:
                one = asked if way is None else replace(asked, tp=(way,))
                points += _points(ask, one, timed=timed)
            count *= 2
    points.sort(
        key=lambda one: (one.price, -one.found.requests, -one.found.max_model_len, one.tpot, one.found.key)
    )
    kept: list[Point] = []
    for point in points:
        if not any(other.beats(point) for other in kept):
            kept.append(point)
    return kept


def is_timed(ask: Ask) -> bool:
    """Whether TPOT counts."""
    return ask.speed is not None and len(ask.offers) <= TIMED_KINDS


def measures(ask: Ask) -> tuple[str, ...]:
    """The measures of a Pareto front."""
    first = "cost_per_hour" if ask.objective == COST else "gpus"
    return (first, "requests", "max_model_len", *(("tpot",) if is_timed(ask) else ()))


def _points(ask: Ask, asked: Ask, *, timed: bool) -> Iterator[Point]:
    """The most that the GPUs hold, a kind without pipelines where something does without."""
    plain = search(replace(asked, pp=(1,)) if ask.pp is None else asked, wanted=0).found
    kinds = {found.offer.kind for found in plain}
    staged = tuple(offer for offer in asked.offers if offer.kind not in kinds) if ask.pp is None else ()
    others = search(replace(asked, offers=staged), wanted=0).found if staged else ()
    for found in (*plain, *others):
        price = (found.cost or 0) if ask.objective == COST else found.gpus
        full = found._replace(per_engine=found.capacity)
        tpot = _tpot(asked, full) if timed else 0
        if tpot is not None:
            yield Point(asked, full, price, tpot)


def _tpot(ask: Ask, found: Found) -> int | None:
    """Of the likely estimate; None where there is none: it cannot be compared."""
    assert ask.speed is not None
    model, gpu = found.one.variant.model, found.offer.gpu
    speed = ask.speed(
        model, gpu, settings_of(ask, found), ask.running(found.offer, max(1, found.capacity), 0)
    )
    return None if isinstance(speed, Rejection) else round(speed.tpot[1] * _MICROSECONDS)


def _stretched(ask: Ask) -> list[Ask]:
    """The ask with requests half, just, twice and four times as long, as far as the model goes."""
    own = ask.variants[0].model.max_model_len
    asks = []
    for up, down in ((1, 2), (1, 1), (2, 1), (4, 1)):
        changed = replace(ask, also=()).scaled(up, down)
        if up == down or own is None or changed.longest <= own:
            asks.append(changed)
    return asks
