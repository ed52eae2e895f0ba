"""The coefficients of vLLM's memory budget by release: ``data/budget.json``.

It is written by scripts/fit_budget.py, checked there and by the tests, and read as it is.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from kvplan.engines.vllm.memory import Coefficients

FILE = Path(__file__).parent / "data" / "budget.json"


def vllm_coefficients(version: tuple[int, ...]) -> Coefficients:
    """Those of the range that holds the version; of the newest range for a newer one."""
    table = _table()
    for known in reversed(table):
        if version >= parts(known.since):
            return known
    return table[0]


def parts(version: str) -> tuple[int, ...]:
    """``0.11.1`` → (0, 11, 1)."""
    return tuple(int(piece) for piece in version.split("."))


@lru_cache(maxsize=1)
def _table() -> tuple[Coefficients, ...]:
    ranges = json.loads(FILE.read_text(encoding="utf-8"))["ranges"]
    return tuple(coefficients_of(entry) for entry in ranges)


def coefficients_of(entry: dict[str, object]) -> Coefficients:
    """One range of the file."""
    values: dict[str, object] = {name: value for name, value in entry.items() if name != "source"}
    values["non_torch_by_tp"] = tuple((ways, amount) for ways, amount in values["non_torch_by_tp"])  # type: ignore[attr-defined]
    return Coefficients(**values)  # type: ignore[arg-type]
