"""A budget is a list of lines; an estimated line carries an interval and says where it comes from."""

from __future__ import annotations

from kvplan.results import Budget, BudgetLine


def exact(name: str, amount: int, source: str) -> BudgetLine:
    """A line that is known to the byte."""
    return BudgetLine(name, amount, amount, amount, source)


def about(name: str, amount: int, margin: int, source: str) -> BudgetLine:
    """An estimate: amount ± margin, never below zero."""
    return BudgetLine(name, amount, max(0, amount - margin), amount + margin, source)


def left_over(
    gpu: str, total: int, usable: int, lines: tuple[BudgetLine, ...], *, calibrated: bool
) -> Budget:
    """usable minus every line: the pool. Its low figure takes every line at its high end.

    Never below zero, neither the likely figure nor the interval's.
    """
    return Budget(
        gpu=gpu,
        total_bytes=total,
        lines=lines,
        kv_pool_bytes=max(0, usable - sum(line.bytes for line in lines)),
        kv_pool_low_bytes=max(0, usable - sum(line.high_bytes for line in lines)),
        kv_pool_high_bytes=max(0, usable - sum(line.low_bytes for line in lines)),
        unused_bytes=total - usable,
        calibrated=calibrated,
    )
