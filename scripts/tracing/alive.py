"""What is alive during each operation of a recorded pass, as Inductor and vLLM's split graph would have it.

Pointwise chains are one kernel: a result that pointwise work alone reads, before the next kernel with a
result in memory, is never stored. Between two operations at which vLLM splits the graph lies one compiled
piece: what a piece is given lives until the piece ends, what it makes for itself until its last use. A
pointwise kernel writes over an input of the same size that it is the last to read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from scripts.tracing.operations import Operation


def alive(operations: list[Operation], sizes: dict[int, int], given: Iterable[int]) -> list[int]:
    """Bytes alive during each operation. given: storages of weights and inputs, which are not counted."""
    outside = set(given)
    kinds = [operation.kind for operation in operations]
    made: dict[int, int] = {}
    last: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for index, operation in enumerate(operations):
        for key in operation.gives:
            if key not in outside and key not in operation.reads:
                made.setdefault(key, index)
        for key in operation.reads:
            if key in made:
                last[key] = index
                readers.setdefault(key, []).append(index)
    if operations:
        for key in operations[-1].gives:
            last[key] = len(operations) - 1
    ends = [index for index, operation in enumerate(operations) if operation.splits] + [len(operations) - 1]
    heavy = [index for index, kind in enumerate(kinds) if kind == "heavy"]
    change = [0] * (len(operations) + 2)
    over: dict[tuple[int, int], int] = {}
    for key, start in made.items():
        stop = last.get(key, start)
        if _never_stored(kinds, start, stop, readers.get(key, ()), heavy):
            continue
        piece, until = bisect_left(ends, start), bisect_left(ends, stop)
        if until > piece:
            stop = max(stop, ends[min(until, len(ends) - 1)] - (0 if operations[stop].splits else 1))
        elif kinds[stop] == "point" and stop > start:
            over[stop, sizes[key]] = over.get((stop, sizes[key]), 0) + 1
        if kinds[start] == "point" and over.get((start, sizes[key]), 0):
            over[start, sizes[key]] -= 1
            change[start + 1] += sizes[key]  # in the place of an input, which is counted until here
        else:
            change[start] += sizes[key]
        change[stop + 1] -= sizes[key]
    now, found = 0, []
    for step in change[: len(operations)]:
        now += step
        found.append(now)
    return found


def _never_stored(kinds: list[str], start: int, stop: int, readers: Iterable[int], heavy: list[int]) -> bool:
    """Whether a pointwise result is used up inside the kernel that makes it."""
    if kinds[start] != "point" or not readers or any(kinds[one] == "heavy" for one in readers):
        return False
    later = bisect_left(heavy, start + 1)
    return stop < (heavy[later] if later < len(heavy) else len(kinds))
