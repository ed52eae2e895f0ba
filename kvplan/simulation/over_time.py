"""Blocks in use over a run's time, and requests that arrive, wait and are answered."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from kvplan.record import record

STRETCHES = 96
"""Equal parts of a run's time in which its requests are counted."""
Point = tuple[int, int]
"""(ns, blocks in use)."""


@record(eq=False)
class LoadOverTime:
    """Requests in equal stretches of a run's time; empty where the run took none."""

    arrived: tuple[int, ...]
    answered: tuple[int, ...]
    """by their last token"""
    waiting: tuple[float, ...]
    """the mean number not yet admitted for the first time"""
    most_waiting: int

    def by(self, stretches: int) -> LoadOverTime:
        """The same in fewer stretches, which must divide `STRETCHES`."""
        wide = STRETCHES // stretches
        starts = range(0, len(self.arrived), wide)
        return LoadOverTime(
            tuple(sum(self.arrived[at : at + wide]) for at in starts),
            tuple(sum(self.answered[at : at + wide]) for at in starts),
            tuple(sum(self.waiting[at : at + wide]) / wide for at in starts),
            self.most_waiting,
        )


def load_over_time(
    came: Sequence[int], admitted: Sequence[int], finished: Sequence[int], end_ns: int
) -> LoadOverTime:
    """Counted from time 0 to the end. The three: times in ns, each sorted by itself."""
    if not came or not end_ns:
        return LoadOverTime((), (), (), 0)
    edges = [end_ns * place // STRETCHES for place in range(STRETCHES + 1)]
    waited = [one - other for one, other in zip(_elapsed(came, edges), _elapsed(admitted, edges))]
    return LoadOverTime(
        _counts(came, edges),
        _counts(finished, edges),
        tuple(
            (after - before) / (high - low) if high > low else 0.0
            for (before, after), (low, high) in zip(pairwise(waited), pairwise(edges))
        ),
        max(place - bisect_right(admitted, at) for place, at in enumerate(came, 1)),
    )


def _counts(times: Sequence[int], edges: Sequence[int]) -> tuple[int, ...]:
    """How many times lie in each stretch; the last one has its end too."""
    below = [0, *(bisect_left(times, edge) for edge in edges[1:-1]), len(times)]
    return tuple(after - before for before, after in pairwise(below))


def _elapsed(times: Sequence[int], edges: Sequence[int]) -> list[int]:
    """The time that has passed since each of the times, summed, at each edge."""
    sums = [0, *accumulate(times)]
    before = (bisect_right(times, edge) for edge in edges)
    return [count * edge - sums[count] for count, edge in zip(before, edges)]


def together(series: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """The sum of several series, each constant between its points."""
    if len(series) == 1:
        return tuple(series[0])
    changes: dict[int, int] = {}
    for one in series:
        last = 0
        for at, count in one:
            changes[at] = changes.get(at, 0) + count - last
            last = count
    total, found = 0, []
    for at in sorted(changes):
        total += changes[at]
        found.append((at, total))
    return tuple(found)


def means(series: Sequence[Point], bins: int) -> list[float]:
    """The mean of a series in so many equal stretches of time."""
    if not series or series[-1][0] <= series[0][0]:
        return []
    start, end = series[0][0], series[-1][0]
    times = [at for at, _ in series]
    found = []
    for number in range(bins):
        low, high = (start + (end - start) * (number + part) // bins for part in (0, 1))
        place, total, at = max(0, bisect_right(times, low) - 1), 0, low
        while at < high:
            following = times[place + 1] if place + 1 < len(times) else high
            stop = min(high, following)
            total += (stop - at) * series[place][1]
            at, place = stop, place + 1
        found.append(total / (high - low) if high > low else float(series[place][1]))
    return found
