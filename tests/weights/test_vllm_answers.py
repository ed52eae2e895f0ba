"""The inventories against the parameters of models that vLLM 0.32 itself built (recorded answers)."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvplan.architectures.config.view import unquantised
from kvplan.architectures.inventory import inventory_of
from kvplan.dtypes import scalar
from kvplan.weights.inventory import Inventory
from kvplan.weights.ranks import Parallel, bytes_by_stage
from tests.weights.parameters import parameters_by_stage

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared"
ANSWERS = SHARED / "data" / "vllm_answers.json"
CAPABILITIES = {
    "h100": (9, 0),
    "h200": (9, 0),
    "a100": (8, 0),
    "l40s": (8, 9),
    "l4": (8, 9),
    "b200": (10, 0),
    "rtx5090": (12, 0),
}


@cache
def _answers() -> list[dict[str, Any]]:
    if not ANSWERS.is_file():
        return []
    made: list[dict[str, Any]] = json.loads(ANSWERS.read_text())
    return [answer for answer in made if "param_bytes_per_rank" in answer]


@cache
def _inventory(config: str) -> Inventory:
    raw = json.loads((SHARED / "configs" / config / "config.json").read_text())
    return inventory_of(unquantised(raw))


def _option(args: list[str], name: str, default: str) -> str:
    return args[args.index(name) + 1] if name in args else default


@pytest.mark.beside
def test_every_recorded_answer_is_met_exactly() -> None:
    """Parameters and bytes of every pipeline stage, to the byte."""
    off = []
    counts: Counter[str] = Counter()
    for answer in _answers():
        args: list[str] = answer["_case"]["args"]
        if "--keep-quant" in args:
            continue
        inventory = _inventory(answer["_case"]["config"])
        parallel = Parallel(
            answer["tp"],
            answer["pp"],
            int(_option(args, "--dp", "1")),
            "--ep" in args,
            CAPABILITIES[_option(args, "--gpu", "h100")],
        )
        ours = list(bytes_by_stage(inventory, parallel, scalar(answer["dtype"])))
        numbers = list(parameters_by_stage(inventory, parallel))
        counts[answer["architecture"]] += 1
        if ours != answer["param_bytes_per_rank"] or numbers != answer["params_per_rank"]:
            off.append((answer["_case"], ours, answer["param_bytes_per_rank"]))
    assert not off
    assert sum(counts.values()) >= 200
