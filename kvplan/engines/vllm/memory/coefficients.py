"""The coefficients of vLLM's memory budget, line by line, each with the release from which it holds:
``data/budget.json``, written by scripts/fit_budget.py, checked there and by the tests.

A row of a line holds from its ``since`` to the next row of the same runner or board; what a row does not say
it has from the one before, and what no row says is the default that `Coefficients` declares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvplan.engines.vllm.memory.profile_run import Coefficients
from kvplan.engines.vllm.start.runner import V1
from kvplan.gpu import Gpu
from kvplan.record import Json

NVSWITCH, BLACKWELL, RACK, PCIE, OLDER, GEFORCE, UNIFIED, OTHER = (
    *("nvswitch", "blackwell", "rack"),
    *("pcie", "older", "geforce", "unified", "other"),
)
"""How the GPUs of one server talk to each other: NVSwitch boards (SXM), those of Blackwell (B200), racks in
which 72 GPUs share one NVLink domain (GB200, GB300), cards in PCIe slots, with or without a bridge, those
before Ampere, whose starts keep less, GeForce cards, whose driver lets them reach each other over the CPU's
memory alone, memory shared with the CPU (GB10, Jetson), and other vendors."""
_SWITCHED = 300 * 10**9
"""Bytes a second of NVLink, both directions, from which on boards are sold whole (V100 SXM2)."""
_RACK = 1800 * 10**9
_RACK_TRAY = 4
"""GPUs of one operating system in a rack of 72."""
_SLOTS = ("-pcie", "-nvl")
_AMPERE = (8, 0)


def board_of(gpu: Gpu) -> str:
    """The kind of board, which decides what several ranks keep outside torch: told from a GPU's spec, never
    from the number of GPUs."""
    if gpu.is_unified_memory:
        return UNIFIED
    if gpu.vendor.lower() != "nvidia":
        return OTHER
    if "GeForce" in gpu.name:
        return GEFORCE
    link = gpu.nvlink_bytes_per_second or 0
    if link < _SWITCHED or any(word in gpu.slug for word in _SLOTS):
        return OLDER if (gpu.compute_capability or _AMPERE) < _AMPERE else PCIE
    if link < _RACK:
        return NVSWITCH
    return RACK if gpu.gpus_per_node == _RACK_TRAY else BLACKWELL


FILE = Path(__file__).parents[1] / "data" / "budget.json"
_SAID = ("since", "runner", "board", "source")
ANY = "any"


@lru_cache(maxsize=512)
def vllm_coefficients(version: tuple[int, ...], runner: str = V1, board: str = NVSWITCH) -> Coefficients:
    """Those in force in a release: of the newest rows for a newer one, of the oldest for an older one."""
    found: dict[str, Any] = {}
    for rows in lines().values():
        found.update(_in_force(rows, version, runner, board))
    return Coefficients(**found)


def _in_force(rows: Iterable[Json], version: tuple[int, ...], runner: str, board: str) -> dict[str, Any]:
    """The values of one line: rows for any board first, then the board's own, each in order."""
    mine = [row for row in rows if row.get("runner", runner) == runner and row["board"] in (ANY, board)]
    oldest = min(parts(row["since"]) for row in mine)
    values: dict[str, Any] = {}
    for row in sorted(mine, key=lambda row: (parts(row["since"]), row["board"] != ANY)):
        if parts(row["since"]) <= max(version, oldest):
            values.update({name: value for name, value in row.items() if name not in _SAID})
    return values


def parts(version: str) -> tuple[int, ...]:
    """``0.11.1`` → (0, 11, 1)."""
    return tuple(int(piece) for piece in version.split("."))


@lru_cache(maxsize=1)
def lines() -> Mapping[str, tuple[Json, ...]]:
    """Line → its rows, lists as tuples."""
    raw = json.loads(FILE.read_text(encoding="utf-8"))["lines"]
    return {
        line: tuple({"board": ANY} | {name: _fixed(value) for name, value in row.items()} for row in rows)
        for line, rows in raw.items()
    }


def _fixed(value: Any) -> Any:
    return tuple(_fixed(piece) for piece in value) if isinstance(value, list) else value
