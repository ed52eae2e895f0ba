"""How many requests are preempted and computed again when the load is larger than the pool.

Answered by the engine's own scheduler in virtual time (`kvplan.simulation.preemption`) under a closed load:
as soon as one request ends the next arrives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from kvplan.engines.traits import traits_of
from kvplan.planning.levers.results import Effect, Lever
from kvplan.planning.levers.situation import SEVERAL_POOLS, Situation
from kvplan.plans.workload import Shape
from kvplan.record import record
from kvplan.wings import wing

_GOLDEN = 2654435769
"""2**32 divided by the golden ratio."""
_WORD = 2**32
FINISHED = 600
"""Requests that are counted; those before them fill the pool, those after them keep it full."""


@record()
class Preempted:
    """share: of the counted requests, how many were preempted; again: of all computed tokens, how many were
    computed before."""

    share: float
    again: float


def preemption(seen: Situation) -> Lever:
    """The share of requests preempted at the plan's load, and with a tenth less and more."""
    never = traits_of(seen.choice.engine.name).never_preempts
    if never is not None:
        return Lever("preemption", f"none: {never}", applies=False)
    if seen.workload.samples > 1:
        return Lever("preemption", "not computed for several samples of a prompt", applies=False)
    if not seen.is_one_pool:
        return Lever("preemption", SEVERAL_POOLS, applies=False)
    wanted = min(seen.requests, seen.pool.max_num_seqs)
    loads = [max(1, wanted * part // 10) for part in (10, 9, 11)]
    found: list[Preempted] | str = wing("simulation.preemption").simulated(seen, loads)
    if isinstance(found, str):
        return Lever("preemption", f"not computed: {found}", applies=False)
    now, shares = found[0], sorted(one.share for one in found)
    again = sorted(one.again for one in found)
    effects = (
        Effect("requests preempted", now.share, "share", shares[0], shares[-1]),
        Effect("tokens computed again", now.again, "share", again[0], again[-1]),
    )
    what = "none" if not now.share else f"about {now.share:.0%}"
    summary = f"{what} of the requests {'is' if not now.share else 'are'} preempted with {wanted:,} in flight"
    if shares[-1] > now.share:
        summary += f"; about {shares[-1]:.0%} with a tenth more"
    return Lever("preemption", summary, effects, (_ASSUMED,), shares[-1] > 0)


_ASSUMED = (
    "a closed load on the engine's own scheduler, a step of 6 ms and 25 µs a token; no prompt but the shared"
    " prefix is found in the cache; ± 10 % of the load"
)


def arrivals(shapes: Sequence[Shape]) -> Iterator[Shape]:
    """Shapes in the proportions of their weights, spread evenly, for ever, without chance: the same plan
    gives the same answer."""
    bounds = list(accumulate(shape.weight for shape in shapes))
    place = 0
    while True:
        place = (place + _GOLDEN) % _WORD
        yield shapes[bisect_right(bounds, place * bounds[-1] // _WORD)]
