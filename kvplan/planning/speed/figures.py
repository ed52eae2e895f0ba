"""One estimated number: a value, the interval that it lies in, and what it was computed from."""

from __future__ import annotations

from kvplan.assumption import Assumption
from kvplan.record import record, replace


@record()
class Figure:
    """low ≤ value ≤ high; about nine published measurements in ten lie in such an interval (docs/speed.md).

    An estimate, never a benchmark. unit: ``s``, ``tokens/s``, ``requests/s``, ``share``, ``B/s`` or the
    caller's currency.
    """

    value: float
    low: float
    high: float
    unit: str
    assumptions: tuple[Assumption, ...]

    def no_less_than(self, limit: float) -> Figure:
        """The interval cut at what no machine can be below; the value stays."""
        return replace(self, low=max(self.low, min(limit, self.value)))

    def no_more_than(self, limit: float) -> Figure:
        return replace(self, high=min(self.high, max(limit, self.value)))


@record()
class Spread:
    """An interval as shares of the value: measured / estimated of the rows that were looked at."""

    low: float
    high: float
    assumptions: tuple[Assumption, ...]

    def around(self, value: float, unit: str) -> Figure:
        """[value · low, value · high]."""
        return Figure(value, value * self.low, value * self.high, unit, self.assumptions)

    def around_rate(self, value: float, unit: str) -> Figure:
        """The same interval for a rate, which is the inverse of a time: [value / high, value / low]."""
        return Figure(value, value / self.high, value / self.low, unit, self.assumptions)
