"""Start-ups with kvplan's answers: how near a predicted pool is, and whether the interval holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.vllm.memory.coefficients import board_of, parts
from kvplan.errors import KvplanError
from kvplan.results import Budget, SizeResult
from kvplan.units import GIB
from scripts.field_rows import Row

FIRST, LAST = (0, 11), (0, 20)
"""Releases [first, last) whose logs print every term."""
UTILISATION = "the utilisation is not stated"
NEAR, CLOSE = 2, 5
"""Per cent of the printed pool."""


class Judged(NamedTuple):
    """One row with kvplan's answer to it."""

    row: Row
    result: SizeResult
    predicted: int
    printed: int

    @property
    def budget(self) -> Budget:
        assert self.result.budget is not None
        return self.result.budget

    @property
    def error(self) -> float:
        """Per cent of the printed pool."""
        return 100 * (self.predicted - self.printed) / self.printed

    @property
    def inside(self) -> bool:
        """Whether the interval has the printed figure (two decimals of a GiB)."""
        half = GIB // 200
        return self.budget.kv_pool_low_bytes - half <= self.printed <= self.budget.kv_pool_high_bytes + half

    @property
    def half_width(self) -> float:
        """GiB."""
        return (self.budget.kv_pool_high_bytes - self.budget.kv_pool_low_bytes) / 2 / GIB

    @property
    def kind(self) -> str:
        """The class of the model, as its memory goes."""
        shape = shape_of(self.row.model, 2)
        words = ["multimodal"] if shape.is_multimodal else []
        words.append("experts" if shape.experts_per_token else "dense")
        drafted = (self.row.raw["flags"] or {}).get("speculative")
        return " ".join(words) + (", draft" if drafted else "")

    @property
    def place(self) -> str:
        """One GPU or several, by board."""
        return f"{'several' if (self.row.raw['tp'] or 1) > 1 else 'one'}, {board_of(self.row.gpu)}"


def judged(rows: Sequence[Row], left: dict[str, str], *, told: bool = False) -> list[Judged]:
    """Rows with a printed pool; `left` gets a reason for each that kvplan cannot answer. told: with the state
    of the compile cache that the log shows."""
    found = []
    for row in rows:
        printed, flags = row.printed("available_kv_gib"), row.raw["flags"] or {}
        if row.version is None:
            left[row.id] = f"no release is stated ({row.raw['engine_version'] or 'nothing'})"
        elif printed is None or printed <= 0:
            left[row.id] = "no pool was printed"
        elif flags.get("gpu_memory_utilization") is None:
            left[row.id] = UTILISATION
        elif "fixed" in " ".join(flags.get("other") or ()):
            left[row.id] = "the pool was set by hand"
        else:
            state = row.raw.get("compile_cache") if told else None
            try:
                result = row.predict(**({"compile_cache": state} if state in ("cold", "warm") else {}))
            except KvplanError as error:
                left[row.id] = error.message
                continue
            if result.budget is None:
                left[row.id] = (result.refusal.message if result.refusal else result.warnings[-1])[:160]
            else:
                found.append(Judged(row, result, result.budget.kv_pool_bytes, printed))
    return found


def is_calibrated(row: Row) -> bool:
    """Of the releases whose logs print every term."""
    return row.version is not None and FIRST <= parts(row.version)[:2] < LAST


def is_late(row: Row) -> bool:
    """Of the releases whose graphs are inside the utilisation."""
    return row.version is not None and parts(row.version)[:2] >= LAST


def share(rows: Sequence[Judged], holds: Callable[[Judged], bool]) -> float:
    """How many of the rows, of 1."""
    return sum(map(holds, rows)) / len(rows)


def summary_table(groups: Mapping[str, Sequence[Judged]]) -> list[str]:
    """A line for each group: rows within 2 % and 5 %, the worst, and the intervals."""
    lines = [
        f"| starts | rows | within {NEAR} % | within {CLOSE} % | median error | largest | in the interval"
        " | below the safe figure | median half-width |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, rows in groups.items():
        if not rows:
            continue
        errors = sorted(abs(row.error) for row in rows)
        near, close = (sum(error <= limit for error in errors) for limit in (NEAR, CLOSE))
        inside, below = sum(row.inside for row in rows), sum(row.printed < safe(row) for row in rows)
        lines.append(
            f"| {name} | {len(rows)} | {near} | {close} | {median(errors):.2f} % | {errors[-1]:.2f} %"
            f" | {inside} | {below} | {median(row.half_width for row in rows):.2f} GiB |"
        )
    return lines


def safe(row: Judged) -> int:
    """The low figure, less what two decimals of a GiB hide."""
    return row.budget.kv_pool_low_bytes - GIB // 200
