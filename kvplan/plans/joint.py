"""A bounded number of request shapes in the place of many lengths; a length is only ever rounded up, and the
weights are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import gcd

from kvplan.plans.workload import Shape
from kvplan.units import ceil_div

MAX_SHAPES = 256
STEPS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100)
"""Ends of the steps, in hundredths of the requests."""
MAX_BINS = 16
"""Lengths of a histogram that is combined with another one."""

Pair = tuple[int, int]
Bin = tuple[int, int]


def joined(pairs: Mapping[Pair, int], most: int = MAX_SHAPES) -> tuple[Shape, ...]:
    """At most ``most`` shapes that stand for the pairs of (input, output), by input and output.

    All requests begin in one cell, whose shape is the longest prompt and the longest answer in it. The cell
    whose rounding adds the most tokens is divided, until there are ``most`` or no rounding is left.
    """
    heap: list[tuple[int, int, list[tuple[Pair, int]]]] = []
    serial = 0
    for cell in [sorted(pairs.items())]:
        heappush(heap, (-_added(cell), serial, cell))
    while len(heap) < most and heap[0][0] < 0:
        cell = heappop(heap)[2]
        for half in _halves(cell):
            serial += 1
            heappush(heap, (-_added(half), serial, half))
    cells = (entry[2] for entry in heap)
    found: dict[Pair, int] = {}
    for cell in cells:
        longest = (max(pair[0] for pair, _ in cell), max(pair[1] for pair, _ in cell))
        found[longest] = found.get(longest, 0) + sum(count for _, count in cell)
    return exactly(found)


def _added(cell: Sequence[tuple[Pair, int]]) -> int:
    """Tokens that rounding the cell up adds to its requests."""
    return sum(_added_to(cell, axis) for axis in (0, 1))


def _added_to(cell: Sequence[tuple[Pair, int]], axis: int) -> int:
    top = max(pair[axis] for pair, _ in cell)
    return sum((top - pair[axis]) * count for pair, count in cell)


def _halves(cell: list[tuple[Pair, int]]) -> tuple[list[tuple[Pair, int]], list[tuple[Pair, int]]]:
    """The cell divided at the median of the length that adds most; neither half is empty."""
    axis = 0 if _added_to(cell, 0) >= _added_to(cell, 1) else 1
    ordered = sorted(cell, key=lambda entry: (entry[0][axis], entry[0]))
    half, seen = sum(count for _, count in ordered), 0
    middle = ordered[-1][0][axis]
    for pair, count in ordered:
        seen += count
        if seen * 2 >= half:
            middle = pair[axis]
            break
    if middle == ordered[-1][0][axis]:  # then the longest ones are one half
        middle = max(pair[axis] for pair, _ in ordered if pair[axis] < middle)
    low = [entry for entry in ordered if entry[0][axis] <= middle]
    return low, ordered[len(low) :]


def from_percentiles(points: Sequence[tuple[int, int]]) -> list[Bin]:
    """(tokens, weight) of each step from (percentile, tokens) points, of which the last is (100, longest):
    the requests of a step all have the length at its end."""
    bins: dict[int, int] = {}
    begin = 0
    for end in STEPS:
        length = _quantile(points, end)
        bins[length] = bins.get(length, 0) + end - begin
        begin = end
    return sorted(bins.items())


def _quantile(points: Sequence[tuple[int, int]], percent: int) -> int:
    """The straight line between the points around it, rounded up; flat below the first."""
    if percent <= points[0][0]:
        return points[0][1]
    for (low, short), (high, long) in pairwise(points):
        if percent <= high:
            return short + ceil_div((long - short) * (percent - low), high - low)
    return points[-1][1]


def combined(inputs: Sequence[Bin], outputs: Sequence[Bin]) -> tuple[Shape, ...]:
    """Every input length with every output length, as if neither knew of the other.

    A list of more than `MAX_BINS` lengths that meets another is first rounded up to so many.
    """
    if len(inputs) > 1 and len(outputs) > 1:
        inputs, outputs = _fewer(inputs), _fewer(outputs)
    found: dict[Pair, int] = {}
    for tokens, weight in inputs:
        for more, other in outputs:
            found[tokens, more] = found.get((tokens, more), 0) + weight * other
    return exactly(found) if len(found) <= MAX_SHAPES else joined(found)


def _fewer(bins: Sequence[Bin]) -> list[Bin]:
    if len(bins) <= MAX_BINS:
        return list(bins)
    shapes = joined({(tokens, 0): weight for tokens, weight in bins}, MAX_BINS)
    return [(shape.input_tokens, shape.weight) for shape in shapes]


def exactly(found: Mapping[Pair, int]) -> tuple[Shape, ...]:
    """A shape for each pair of lengths, their weights in the smallest whole numbers."""
    divisor = gcd(*found.values())
    return tuple(Shape(*pair, count // divisor) for pair, count in sorted(found.items()))
