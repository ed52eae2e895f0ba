"""What decides how near a predicted pool is: whose memory it is, whether a log shows the compile cache, and
how large the pool is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from kvplan.engines.vllm.memory.profile_run import COLD, WARM
from kvplan.units import GIB
from scripts.field_rows import Row
from scripts.judged import CLOSE, NEAR, Judged, judged

UNIFIED = "memory shared with the CPU"
SHOWN = "own memory; the cache is shown, or makes no difference"
OPEN = "own memory; cold or warm is not shown"
SIZES = ((0, 4, "under 4 GiB"), (4, 8, "4 to 8 GiB"), (8, None, "8 GiB and more"))
_NO_DIFFERENCE = 0.005
"""Of the pool: cold and warm are one answer."""


def _is_shown(row: Row) -> bool:
    if row.raw.get("compile_cache") in (COLD, WARM):
        return True
    cold, warm = (row.predict(compile_cache=state).budget for state in (COLD, WARM))
    assert cold is not None
    assert warm is not None
    return abs(warm.kv_pool_bytes - cold.kv_pool_bytes) <= _NO_DIFFERENCE * cold.kv_pool_bytes


def _class(entry: Judged) -> str:
    if entry.row.gpu.is_unified_memory:
        return UNIFIED
    return SHOWN if _is_shown(entry.row) else OPEN


def _size(entry: Judged) -> str:
    amount = entry.printed / GIB
    return next(words for low, high, words in SIZES if low <= amount and (high is None or amount < high))


def shares(rows: Sequence[Row]) -> dict[tuple[str, str], list[Judged]]:
    """Rows by class and by size of the printed pool, told what their logs show."""
    found: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for entry in judged(rows, {}, told=True):
        found[_class(entry), _size(entry)].append(entry)
    return found


def reach_lines(rows: Sequence[Row]) -> list[str]:
    """One line of a table for each class and size."""
    found = shares(rows)
    lines = [
        "A pool of a few GiB is the small difference of large amounts; a start that finds compiled code",
        "keeps memory that a first start needs; memory shared with the CPU depends on what else is running.",
        "The held-out rows, with the state of the compile cache told where the log shows it:",
        "",
        "| memory and start | printed pool | rows | within 2 % | within 5 % | inside | median error |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for name in (SHOWN, OPEN, UNIFIED):
        for *_, size in SIZES:
            members = found.get((name, size))
            if not members:
                continue
            errors = [abs(entry.error) for entry in members]
            apart = median(abs(entry.predicted - entry.printed) for entry in members) / GIB
            lines.append(
                f"| {name} | {size} | {len(members)} | {sum(error <= NEAR for error in errors)}"
                f" | {sum(error <= CLOSE for error in errors)} | {sum(entry.inside for entry in members)}"
                f" | {apart:.2f} GiB |"
            )
    return [*lines, ""]
