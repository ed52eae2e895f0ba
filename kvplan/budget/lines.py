"""A budget is a list of lines; an estimated line carries an interval and says where it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One use of the GPU's memory in bytes; low and high enclose it where it is estimated."""

    name: str
    bytes: int
    low_bytes: int
    high_bytes: int
    source: str

    @staticmethod
    def exact(name: str, amount: int, source: str) -> Line:
        return Line(name, amount, amount, amount, source)

    @staticmethod
    def about(name: str, amount: int, margin: int, source: str) -> Line:
        return Line(name, amount, max(0, amount - margin), amount + margin, source)


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory of one GPU: what is spent before the cache, the cache, and what stays unused.

    kv_pool_bytes is the likely figure; low takes every estimated line at its high end (the safe
    figure), high at its low end. calibrated: the coefficients were fitted on measured starts.
    """

    gpu: str
    total_bytes: int
    usable_bytes: int
    lines: tuple[Line, ...]
    kv_pool_bytes: int
    kv_pool_low_bytes: int
    kv_pool_high_bytes: int
    unused_bytes: int
    calibrated: bool
    warnings: tuple[str, ...] = ()


def left_over(
    gpu: str, total: int, usable: int, lines: tuple[Line, ...], *, calibrated: bool, warnings: tuple[str, ...] = ()
) -> Budget:
    """usable minus every line; never below zero for the intervals, as it is for the likely figure."""
    likely = usable - sum(line.bytes for line in lines)
    return Budget(
        gpu=gpu,
        total_bytes=total,
        usable_bytes=usable,
        lines=lines,
        kv_pool_bytes=max(0, likely),
        kv_pool_low_bytes=max(0, usable - sum(line.high_bytes for line in lines)),
        kv_pool_high_bytes=max(0, usable - sum(line.low_bytes for line in lines)),
        unused_bytes=total - usable if likely >= 0 else 0,
        calibrated=calibrated,
        warnings=warnings,
    )
