"""The tokens that arrive in each hour of a plan's trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvplan.files.traces.rows import read_rows
from kvplan.plans.plan import Plan
from kvplan.units import SECOND

HOUR = 3600


def loads_of(plans: Sequence[Plan]) -> Mapping[int, tuple[int, ...]]:
    """By the plan's place; none of plans without a trace, and of traces without times or of less than two
    hours. Raises KvplanError where a trace cannot be read."""
    found = {place: tokens_by_hour(plan) for place, plan in enumerate(plans)}
    return {place: load for place, load in found.items() if len(load) > 1}


def tokens_by_hour(plan: Plan) -> tuple[int, ...]:
    """Prompt and answer tokens of the requests that arrive in each whole hour from the first on."""
    workload = plan.workload
    if workload is None or workload.trace is None:
        return ()
    name = Path(workload.trace).name
    path = next((file for file in plan.files if Path(file).name == name), workload.trace)
    rows = read_rows(
        Path(path), name=path, form=workload.trace_format, columns=workload.trace_columns,
        wide=workload.trace_block,
    )  # fmt: skip
    hours: dict[int, int] = {}
    first: int | None = None
    last = 0
    for row in rows.rows:
        if row.at_ns is None:
            return ()
        first = row.at_ns if first is None else min(first, row.at_ns)
        last = max(last, row.at_ns)
        hour = row.at_ns // (HOUR * SECOND)
        hours[hour] = hours.get(hour, 0) + row.prompt + row.answer
    if first is None or last - first < 2 * HOUR * SECOND:
        return ()
    begin = min(hours)
    return tuple(hours.get(begin + place, 0) for place in range(max(hours) - begin + 1))
