"""Cold and warm starts among field reports: which is likely, and what the other guess would cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from kvplan.engines.vllm.memory.coefficients import board_of
from kvplan.engines.vllm.memory.profile_run import COLD, WARM
from kvplan.errors import KvplanError
from kvplan.units import GIB
from scripts.field_rows import Row

_BOTH = "both"


def _shown(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The starts whose logs show the compile cache, by what they show."""
    found: dict[str, list[Row]] = {COLD: [], WARM: []}
    for row in rows:
        if row.raw.get("compile_cache") in found:
            found[row.raw["compile_cache"]].append(row)
    return found


def _sources(shown: dict[str, list[Row]]) -> Counter[str]:
    """How many sources have cold starts alone, warm ones alone, or both."""
    states: dict[str, set[str]] = defaultdict(set)
    for state, rows in shown.items():
        for row in rows:
            states[row.family].add(state)
    return Counter(_BOTH if len(told) > 1 else next(iter(told)) for told in states.values())


def _guessed(rows: Sequence[Row], state: str) -> tuple[int, int, int]:
    """Starts within 2 % and 5 % of the printed pool and below the safe figure, were all of them like this."""
    near = close = below = 0
    for row in rows:
        printed = row.printed("available_kv_gib")
        try:
            budget = row.predict(compile_cache=state).budget
        except KvplanError:
            continue
        if budget is None or not printed:
            continue
        error = abs(budget.kv_pool_bytes - printed)
        near, close = near + (error <= 0.02 * printed), close + (error <= 0.05 * printed)
        below += printed < budget.kv_pool_low_bytes - GIB // 200
    return near, close, below


def _words(count: Counter[str]) -> str:
    return f"{count[COLD]} have cold starts only, {count[WARM]} warm ones only, {count[_BOTH]} both"


def cold_warm_lines(rows: Sequence[Row]) -> list[str]:
    """Of the starts from 0.20 on: what their logs show, by board, and what either guess says of them all."""
    shown = _shown(rows)
    total = sum(map(len, shown.values()))
    cold, warm = (_guessed([*shown[COLD], *shown[WARM]], state) for state in (COLD, WARM))
    sources = _sources(shown)
    boards = sorted({board_of(row.gpu) for kind in shown.values() for row in kind})
    by_board = (
        (board, _sources({k: [row for row in v if board_of(row.gpu) == board] for k, v in shown.items()}))
        for board in boards
    )
    told = f"{len(shown[COLD])} compiled, {len(shown[WARM])} found the compiled code of an earlier start"
    guesses = (
        f"{state}, {near} would be within 2 %, {close} within 5 % and {below} below the safe figure"
        for state, (near, close, below) in ((COLD, cold), (WARM, warm))
    )
    return [
        "## Cold or warm",
        "",
        f"Of {total} starts from 0.20 on whose logs show it, {told}.",
        f"Of {sources.total()} sources, {_words(sources)}:",
        "",
        *(f"- {board}: {_words(count)}" for board, count in by_board),
        "",
        "Taking every one of them for " + "; for ".join(guesses) + ".",
        "So the likely figure is that of a cold start.",
        "",
    ]
