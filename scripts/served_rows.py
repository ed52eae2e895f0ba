"""Starts of engines other than vLLM in a file of field reports: kvplan's answer beside what was printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import kvplan
from kvplan.results import Budget
from kvplan.units import GIB, gib
from scripts.field_rows import gpu_named, read_raw


class Served(NamedTuple):
    """A start of another engine with kvplan's answer; the weights are those of a log that prints them."""

    raw: Mapping[str, Any]
    budget: Budget

    @property
    def printed(self) -> int:
        """The cache of one GPU, bytes."""
        return int(self.raw["available_kv_gib"] * GIB)

    @property
    def error(self) -> float:
        """Per cent of the printed pool."""
        return 100 * (self.budget.kv_pool_bytes - self.printed) / self.printed

    @property
    def inside(self) -> bool:
        """Whether the interval has the printed figure (two decimals of a GiB)."""
        half, budget = GIB // 200, self.budget
        return budget.kv_pool_low_bytes - half <= self.printed <= budget.kv_pool_high_bytes + half

    @property
    def half_width(self) -> float:
        """GiB of one GPU."""
        return (self.budget.kv_pool_high_bytes - self.budget.kv_pool_low_bytes) / 2 / GIB


def served(engine: str, *paths: Path) -> list[Served]:
    """The rows of another engine: their flags are kvplan's keywords."""
    found = []
    for raw in (raw for path in paths for raw in read_raw(path) if raw["engine"] == engine):
        asked = {"gpu": gpu_named(raw["gpu"]), "tensor_parallel_size": raw["tp"], **raw["flags"]}
        release = f"@{raw['engine_version']}" if raw.get("engine_version") else ""
        if raw["weights_gib"] is not None:
            asked["weights"] = int(raw["weights_gib"] * GIB)
        result = kvplan.size(raw["model"], engine=f"{engine}{release}", **asked)
        assert result.budget is not None, raw["id"]
        found.append(Served(raw, result.budget))
    return found


def served_summary(groups: Mapping[str, Sequence[Served]]) -> list[str]:
    """A line for each group, as `summary_table` has them of vLLM."""
    lines = [
        "| starts | rows | in the interval | largest error | median half-width, a GPU |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, rows in groups.items():
        width, worst = median(row.half_width for row in rows), max(abs(row.error) for row in rows)
        inside = sum(row.inside for row in rows)
        lines.append(f"| {name} | {len(rows)} | {inside} | {worst:.2f} % | {width:.2f} GiB |")
    return lines


def served_table(rows: Sequence[Served]) -> list[str]:
    """Rows with printed weights and fraction, the worst first."""
    lines = [
        "| row | model | GPUs | predicted | printed | error | interval |",
        "|---|---|---|--:|--:|--:|---|",
    ]
    for row in sorted(rows, key=lambda row: (row.inside, -abs(row.error))):
        budget, mark = row.budget, "" if row.inside else " **outside**"
        span = f"{gib(budget.kv_pool_low_bytes)} … {gib(budget.kv_pool_high_bytes)}{mark}"
        place = f"{row.raw['id']} | {row.raw['model']} | {budget.gpu} × {row.raw['tp']}"
        amounts = f"{gib(budget.kv_pool_bytes)} | {gib(row.printed)} | {row.error:+.2f} %"
        lines.append(f"| {place} | {amounts} | {span} |")
    return lines
