"""The last number that holds, and the first: looked for from a likely one."""

from __future__ import annotations

from collections.abc import Callable


def most_up_to(limit: int, holds: Callable[[int], bool], likely: int) -> int:
    """The largest number up to ``limit`` that holds, 0 where none does: what holds, holds with less too."""
    low, high, step = 0, min(max(1, likely), limit), 1
    while holds(high):
        if high == limit:
            return limit
        low, high, step = high, min(high + step, limit), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def least_from(holds: Callable[[int], bool], low: int, likely: int) -> int | None:
    """The least number from ``low`` on that holds; None where twice ``likely`` does not."""
    high, step = likely, 1
    while not holds(high):
        if high >= 2 * likely:
            return None
        low, high, step = high + 1, min(high + step, 2 * likely), 2 * step
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def least_below(holds: Callable[[int], bool], enough: int) -> int:
    """The least number that holds; ``enough`` does, and the least is seldom far below it."""
    high, step = enough, 1
    while high > 0 and holds(low := max(high - step, 0)):
        high, step = low, 2 * step
    low = max(high - step, -1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
