"""The tensors of the GGUF file that llama.cpp's converter makes of a checkpoint, by its config.

ggml-org/llama.cpp gguf-py/gguf/tensor_mapping.py (names, by scripts/make_gguf_names.py) and conversion/*.py:
vectors are float32; the encoder of images goes to a file of its own (mmproj); MLA's kv_b_proj becomes
attn_k_b and attn_v_b; experts are one tensor a matrix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from kvplan.engines.llamacpp.ggml_types import row_bytes
from kvplan.engines.llamacpp.quantise import GgufTensor, Hyper, types_of
from kvplan.errors import RefusedError
from kvplan.families import MultiHeadLatentAttention
from kvplan.model import Model
from kvplan.record import record
from kvplan.weights.inventory import Inventory, Tensor
from kvplan.weights.parts import TOWER_NAME

NAMES = Path(__file__).parent / "data" / "gguf_names.tsv"
_LAYER = re.compile(r"\.(\d{1,5})\.")
_EXPERTS = re.compile(r"\.experts\.(gate_proj|up_proj|down_proj|gate_up_proj|w1|w2|w3)$")
_EXPERT_NAMES = {
    "gate_proj": "ffn_gate_exps", "w1": "ffn_gate_exps", "up_proj": "ffn_up_exps", "w3": "ffn_up_exps",
    "down_proj": "ffn_down_exps", "w2": "ffn_down_exps", "gate_up_proj": "ffn_gate_up_exps",
}  # fmt: skip
_LATENT = "kv_b_proj"
_LIKE_70B = ("llama", "qwen2", "deci", "nemotron-nas")
SEVENTY = 80
"""Layers of what llama.cpp calls 70B (src/models: LLM_TYPE_70B)."""


@record()
class Converted:
    """The file's tensors: name → bytes. encoder: numbers of the encoder that mmproj has."""

    bytes_by_name: Mapping[str, int]
    encoder_numbers: int


@cache
def _names() -> Mapping[str, str]:
    header, *lines = NAMES.read_text(encoding="utf-8").splitlines()
    assert header == "module\ttensor"
    return dict(line.split("\t") for line in lines)


def converted(model: Model, inventory: Inventory, mixture: str) -> Converted:
    """Name → bytes of a build of that mixture. Raises RefusedError(no-weights): a matrix that the converter's
    table does not name, a checkpoint that is quantised already."""
    if inventory.quantisation:
        raise RefusedError(
            "no-weights",
            f"{model.id} is stored as {inventory.quantisation}: the types of a GGUF file of it are not known",
            help=("give the .gguf file", "--weights 15GiB"),
        )
    tensors, encoder = tensors_of(model, inventory)
    kinds = types_of(tensors, mixture, hyper_of(model, inventory, tensors))
    sizes = {
        tensor.name: row_bytes(kind, tensor.columns) * tensor.rows for tensor, kind in zip(tensors, kinds)
    }
    return Converted(sizes, encoder)


def hyper_of(model: Model, inventory: Inventory, tensors: list[GgufTensor]) -> Hyper:
    """What of the model decides types."""
    heads = model.num_attention_heads
    shared = [
        int(getattr(part, "num_kv_heads", 0) or 0) for layer in model.distinct() for part in layer.parts
    ]
    latent = any(
        isinstance(part, MultiHeadLatentAttention) for layer in model.distinct() for part in layer.parts
    )
    kv_heads = 1 if latent else max(shared, default=0)
    name = model.model_type.replace("_", "-")
    layers = 1 + max((tensor.layer for tensor in tensors if tensor.layer is not None), default=-1)
    full = heads == kv_heads
    return Hyper(
        layers,
        max(
            (prod(dim.value for dim in tensor.stack) for _, tensor in inventory.tensors() if tensor.stack),
            default=0,
        ),
        heads // kv_heads if heads and kv_heads else 1,
        is_falcon=name in ("falcon", "refinedweb", "refinedwebmodel"),
        is_70b=layers == SEVENTY and name in _LIKE_70B and not (name == "llama" and full),
    )


def _text(model: Model) -> Mapping[str, Any]:
    """The config's keys, those of its text part before the others."""
    raw: Mapping[str, Any] = model.config or {}
    text = raw.get("text_config")
    return {**raw, **text} if isinstance(text, Mapping) else raw


def tensors_of(model: Model, inventory: Inventory) -> tuple[list[GgufTensor], int]:
    """The tensors in the order of their layers, and the numbers of the encoder that is left out."""
    found: dict[str, GgufTensor] = {}
    encoder = 0
    for name, tensor in inventory.tensors():
        if TOWER_NAME.search(f"{name}."):
            encoder += tensor.elements
            continue
        for one in _converted(model, name, tensor):
            found[one.name] = _joined(found.get(one.name), one)
    for one in _factors(model):
        found[one.name] = one
    return sorted(found.values(), key=lambda one: -1 if one.layer is None else one.layer), encoder


def _joined(first: GgufTensor | None, other: GgufTensor) -> GgufTensor:
    """Parts of a fused matrix (Q, K and V of Phi-3) are one tensor, a vector's numbers one row."""
    if first is None:
        return other
    if other.dimensions == 1:
        return replace(first, columns=first.columns + other.columns)
    return replace(first, rows=first.rows + other.rows)


def _converted(model: Model, name: str, tensor: Tensor) -> Iterator[GgufTensor]:
    number = _LAYER.search(name)
    layer = int(number[1]) if number else None
    prefix = "" if layer is None else f"blk.{layer}."
    columns = prod(dim.value for dim in tensor.columns)
    rows = prod(dim.value for dim in (*tensor.stack, *tensor.rows))
    if not rows or (tensor.columns and not columns):
        return
    if not tensor.columns and not tensor.stack:
        yield GgufTensor(f"{prefix}{name}", rows, 1, 1, layer)
        return
    if not tensor.columns:  # biases of experts
        yield GgufTensor(
            f"{prefix}{name}",
            prod(dim.value for dim in tensor.rows),
            prod(dim.value for dim in tensor.stack),
            2,
            layer,
        )
        return
    if name.endswith(_LATENT):
        yield from _latent(model, prefix, layer, rows, columns)
        return
    base = _name_of(model, name, layer)
    dimensions = 2 + (prod(dim.value for dim in tensor.stack) > 1 if tensor.stack else 0)
    yield GgufTensor(f"{prefix}{base}.weight", columns, rows, dimensions, layer)


def _name_of(model: Model, name: str, layer: int | None) -> str:
    plain = name.removesuffix(".weight")
    pattern = plain if layer is None else _LAYER.sub(".{bid}.", plain, count=1)
    found = _names().get(pattern)
    if found is not None:
        return found
    experts = _EXPERTS.search(plain)
    if experts is not None:
        return _EXPERT_NAMES[experts[1]]
    raise RefusedError(
        "no-weights",
        f"how llama.cpp's converter names {name} of {model.id} is not known",
        help=("give the .gguf file", "--weights 15GiB"),
    )


def _latent(model: Model, prefix: str, layer: int | None, rows: int, columns: int) -> Iterator[GgufTensor]:
    """kv_b_proj, (heads × (nope + v)) × rank: attn_k_b (heads, rank, nope) and attn_v_b (heads, v, rank)."""
    raw = _text(model)
    nope, value, heads = (raw.get(key) for key in ("qk_nope_head_dim", "v_head_dim", "num_attention_heads"))
    if (
        not (isinstance(nope, int) and isinstance(value, int) and isinstance(heads, int))
        or heads * (nope + value) != rows
    ):
        raise RefusedError("no-weights", f"kv_b_proj of {model.id} has another shape than its heads")
    yield GgufTensor(f"{prefix}attn_k_b.weight", nope, heads * columns, 3, layer)
    yield GgufTensor(f"{prefix}attn_v_b.weight", columns, heads * value, 3, layer)


def _factors(model: Model) -> list[GgufTensor]:
    """Rotary factors that the converter computes (conversion/llama.py, phi.py): half a head each."""
    raw = _text(model)
    scaling = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, Mapping) else None
    long = scaling.get("long_factor") if isinstance(scaling, Mapping) else None
    if kind == "llama3":
        heads = model.num_attention_heads
        width = raw.get("head_dim") or (model.hidden_size // heads if heads else 0)
        return [GgufTensor("rope_freqs.weight", int(width) // 2, 1, 1)] if width else []
    if isinstance(long, list) and long:
        return [GgufTensor(f"rope_factors_{word}.weight", len(long), 1, 1) for word in ("long", "short")]
    return []
