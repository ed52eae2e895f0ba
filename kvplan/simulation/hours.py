"""The replicas that each hour of a trace needs: what a schedule or the bounds of an autoscaler follow."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.errors import KvplanError
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Target
from kvplan.simulation.results import HourNeeds
from kvplan.simulation.search import MOST_REPLICAS, Runs
from kvplan.simulation.served import LIKELY, SAFE, SLOW, Served
from kvplan.units import SECOND

HOUR = 3600 * SECOND


def hours_of(load: Load) -> Iterator[Load]:
    """The requests of each hour from the first request on, each at its time in that hour; of an hour without
    any a load of none."""
    parts: dict[int, list[int]] = {}
    first = load.arrivals[0].at_ns
    for place, one in enumerate(load.arrivals):
        parts.setdefault((one.at_ns - first) // HOUR, []).append(place)
    for hour in range(max(parts) + 1):
        rows = [load.arrivals[place] for place in parts.get(hour, ())]
        yield load.only(rows).later(-first - hour * HOUR)


def needs_of(
    served: Served, load: Load, target: Target, router: str, *, asked: bool = True
) -> tuple[HourNeeds, ...]:
    """The least replicas that keep each hour's target, the hour served alone: from an empty cache and queue;
    none where they are not asked for.

    Raises KvplanError(bad-usage) of a load that has no two hours, or of two kinds of replicas.
    """
    if not asked:
        return ()
    if served.split is not None:
        raise KvplanError(
            "bad-usage", "of two kinds of replicas no hours are searched", help="leave out --hours"
        )
    if load.drawn is not None or load.seconds * SECOND < HOUR:
        what = "is drawn at one rate" if load.drawn is not None else "lasts less than an hour"
        raise KvplanError(
            "bad-usage", f"{load.name} {what}: it has no hours that differ", help="leave out --hours"
        )
    before = {LIKELY: 1, SAFE: 1}
    found = []
    for hour, part in enumerate(hours_of(load), 1):
        needed: dict[str, int | None] = {}
        for pool, speed in ((LIKELY, LIKELY), (SAFE, SLOW)):
            if pool == SAFE and len(served.cases) == 1:
                needed[pool] = needed[LIKELY]
                continue
            most = min(MOST_REPLICAS, len(part.arrivals))
            runs = Runs(served, part, router, target, (pool, speed))
            needed[pool] = runs.least(min(before[pool], most), most) if most else 0
            before[pool] = needed[pool] or before[pool]
        found.append(HourNeeds(hour, len(part.arrivals), needed[LIKELY], needed[SAFE]))
    return tuple(found)
