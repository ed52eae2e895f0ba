"""AMD Quark's ``quantization_config`` → the format of each module.

Source: vllm-project/vllm vllm/model_executor/layers/quantization/quark/quark.py (0.32): ``exclude`` lists
what stays as trained, ``layer_quant_config`` names modules by wildcards, ``global_quant_config`` has all
others. A weight of two stages: numbers and their scales (fp4 with fp8 scales, int4 under fp8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvplan.architectures.config.view import check_integer
from kvplan.architectures.module_lists import pattern_list, wildcard_list
from kvplan.record import Json
from kvplan.weights.formats import (
    FP8_CHANNEL,
    FP8_TENSOR,
    INT8_CHANNEL,
    MXFP4,
    MXFP8,
    NVFP4,
    Format,
    fp8_block,
    grouped,
)
from kvplan.weights.quantisation import Modules, Quantisation

Config = Json
Refuse = Callable[[str], Exception]


def quark(config: Config, refuse: Refuse) -> Quantisation:
    """Raises what ``refuse`` makes of a weight that no rule reads."""
    excluded = [str(entry) for entry in config.get("exclude") or ()]
    plain = [entry for entry in excluded if entry.startswith("re:") or "*" not in entry]
    rules: list[tuple[Modules, Format | None]] = [
        (pattern_list(plain), None),
        (wildcard_list([entry for entry in excluded if entry not in plain]), None),
    ]
    named = config.get("layer_quant_config")
    for path, entry in (named if isinstance(named, Mapping) else {}).items():
        if isinstance(entry, Mapping) and entry.get("weight") is not None:
            rules.append((wildcard_list([str(path)]), _form(entry["weight"], refuse)))
    whole = config.get("global_quant_config")
    weight = whole.get("weight") if isinstance(whole, Mapping) else None
    return Quantisation("quark", None if weight is None else _form(weight, refuse), tuple(rules), head=True)


def _form(weight: Any, refuse: Refuse) -> Format:
    stages = weight if isinstance(weight, list) else [weight]
    if not stages or not all(isinstance(stage, Mapping) for stage in stages):
        raise refuse(str(weight))
    first, last = stages[0], stages[-1]
    word, scheme, size = str(first.get("dtype")), str(first.get("qscheme")), first.get("group_size")
    if word == "fp4" and scheme == "per_group":
        return NVFP4 if len(stages) == 2 or size == 16 else MXFP4
    if word == "fp8_e4m3" and len(stages) == 2 and last.get("dtype") == "int4":
        return grouped(4, 0, zeros=False, matrix_bytes=4)
    form = _fp8(first, scheme) if word == "fp8_e4m3" and len(stages) == 1 else None
    if form is not None:
        return form
    if word == "int8" and scheme in ("per_tensor", "per_channel"):
        return INT8_CHANNEL if scheme == "per_channel" else FP8_TENSOR
    if word in ("int4", "uint4"):
        group = check_integer(size, "group_size") if scheme == "per_group" else 0
        return grouped(4, group, zeros=first.get("symmetric") is not True)
    raise refuse(f"{word} {scheme}")


def _fp8(stage: Mapping[str, object], scheme: str) -> Format | None:
    """FP8 by its scales; None for a scheme that is not known."""
    block = stage.get("block_size")
    if scheme == "per_block" and isinstance(block, list):
        return fp8_block(*(check_integer(side, "block_size") for side in block[:2]))
    if scheme == "per_group" and stage.get("group_size") == 32:
        return MXFP8
    return {"per_tensor": FP8_TENSOR, "per_channel": FP8_CHANNEL}.get(scheme)
