"""Which type ``llama-quantize`` gives each tensor of a file.

ggml-org/llama.cpp src/llama-quant.cpp: ``tensor_get_category``, ``tensor_allows_quantization``,
``llama_tensor_get_type_impl`` and ``tensor_type_fallback``; the tensors in the order of their layers. Without
an importance matrix, but for the mixtures that need one; with one, ``q4_0``, ``q5_0``, ``iq4_nl`` and
``iq4_xs`` have another type in the first eighth of ffn_down.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kvplan.engines.llamacpp.gguf_file.ggml_types import BLOCKS, MIXTURES
from kvplan.later import regex
from kvplan.record import record

EXPERTS_OF_MIXTRAL = 8
_NOT_QUANTISED = regex(
    r"_norm\.weight|ffn_gate_inp\.weight|altup|laurel|per_layer_model_proj|^position_embd\.weight"
    r"|^token_types\.weight|ssm_conv1d|shortconv\.conv\.weight|time_mix_(first|[wvag][0-2]|decay_w[12]|lerp_fused)\.weight"
    r"|attn_rel_b\.weight|ffn_gate_tid2eid\.weight|indexer\.[kq]_proj\.weight"
)
_TINY = frozenset("iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq2_m".split())
_Q5_OF_EIGHT = frozenset("q2_k iq3_xs iq3_xxs q3_k_s q3_k_m iq4_nl q4_k_s q4_k_m iq3_s iq3_m iq4_xs".split())
_FALLBACK = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0"),
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
}
"""Type → the one with smaller blocks for rows that are no whole number of its own."""


@record()
class GgufTensor:
    """One tensor as the converter writes it. columns: of a row (``ne[0]``). rows: all others together.
    dimensions: up to the last that is not of size one. layer: None outside the layers. kept: the type in
    which it is stored already, which the quantiser leaves (``requantizing from type … is disabled``)."""

    name: str
    columns: int
    rows: int
    dimensions: int
    layer: int | None = None
    kept: str = ""


@record()
class Hyper:
    """Hyperparameters of a model that decide types. gqa: query heads of a KV head. is_70b: llama.cpp's own
    name for 80 layers of Llama, Qwen2 or Deci."""

    layers: int
    experts: int
    gqa: int
    is_falcon: bool = False
    is_70b: bool = False


Told = tuple[tuple[str, str], ...]
"""Tensors whose types are told (``--token-embedding-type``, ``--output-tensor-type``, ``--tensor-type``): a
name, or with a dot before it its end in every layer, and the type."""


def types_of(tensors: Sequence[GgufTensor], mixture: str, hyper: Hyper, told: Told = ()) -> list[str]:
    """The type of each tensor, which must stand in the order of the file's layers."""
    default = MIXTURES[mixture]
    chooser = _Chooser(tensors, mixture, hyper)
    kinds = []
    for one in tensors:
        if not _quantises(one):
            kind = "f32"
        elif default in ("f32", "f16", "bf16"):
            kind = default
        else:
            kind = chooser.type_of(one)
        kind = next((own for name, own in told if _is_told(one.name, name)), kind)
        kinds.append(kind if default == "f32" else one.kept or kind)
    return kinds


def _is_told(name: str, told: str) -> bool:
    return name.endswith(told) if told.startswith(".") else name == told


def _quantises(tensor: GgufTensor) -> bool:
    """Whether its type is chosen: matrices, but for norms, routers and small ones (the converter keeps these
    in float32: conversion/base.py)."""
    return tensor.dimensions > 1 and tensor.name.endswith("weight") and not _is_kept(_in_layer(tensor.name))


def _in_layer(name: str) -> str:
    """``.attn_q.weight`` of ``blk.7.attn_q.weight``, which every layer has: what its name decides is worked
    out once."""
    return name[name.find(".", len("blk.")) :] if name.startswith("blk.") else name


@lru_cache(maxsize=4096)
def _is_kept(name: str) -> bool:
    return _NOT_QUANTISED.search(name) is not None


@lru_cache(maxsize=4096)
def category_of(name: str) -> str:
    """``attn_v`` also of fused matrices that hold V (``category_is_attn_v``)."""
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "token_embd"
    for part in ("attn_qkv", "attn_kv_b", "attn_v", "attn_k", "attn_q", "attn_output"):
        if f"{part}.weight" in name:
            return "attn_v" if part in ("attn_qkv", "attn_kv_b") else part
    return next((part for part in ("ffn_up", "ffn_gate", "ffn_down") if part in name), "other")


def more_bits(index: int, number: int) -> bool:
    """The first and the last eighth, and every third between."""
    return index < number // 8 or index >= 7 * number // 8 or (index - number // 8) % 3 == 2


_DOWN = {"q2_k": "q3_k", "q3_k_l": "q5_k"}
_FIRST_DOWN = {"q2_k_s": "q4_k", "q4_k_s": "q5_k", "iq3_m": "q4_k", "iq4_nl": "q5_k", "iq4_xs": "q5_k"}
"""Of the first eighth of the layers."""
_DOWN_OF_FALCON = {
    "q3_k_m": ("q5_k", "q4_k", "q3_k"),
    "q3_k_l": ("q4_k", "q4_k", "q4_k"),
    "q4_k_m": ("q6_k", "q5_k", "q4_k"),
    "q4_k_s": (None, None, None),
}
"""The first sixteenth of Falcon's layers, those that get more bits, the rest."""


class _Chooser:
    """Counts tensors of a category as it goes, as the quantiser does."""

    def __init__(self, tensors: Sequence[GgufTensor], mixture: str, hyper: Hyper) -> None:
        self.mixture, self.hyper, self.default = mixture, hyper, MIXTURES[mixture]
        names = [tensor.name for tensor in tensors]
        self.tied = "output.weight" not in names
        self.values = sum(category_of(_in_layer(name)) == "attn_v" for name in names)
        self.seen = {"attn_v": 0, "ffn_down": 0, "ffn_gate": 0, "ffn_up": 0}

    def type_of(self, tensor: GgufTensor) -> str:
        kind = self._wanted(tensor)
        if tensor.columns % BLOCKS[kind][0]:
            kind = _FALLBACK.get(kind, "f16")
            return kind if tensor.columns % BLOCKS[kind][0] == 0 else "f16"
        return kind

    def _wanted(self, tensor: GgufTensor) -> str:
        category = category_of(_in_layer(tensor.name))
        if category == "output" or (self.tied and category == "token_embd"):
            return self._output(tensor)
        if self.mixture == "mxfp4_moe":
            return "mxfp4" if tensor.dimensions > 2 else "q8_0"
        if category == "token_embd":
            return self._embedding()
        index = self._next(category, tensor)
        if self.mixture in _TINY:
            return self._tiny(category, index)
        if category == "attn_v":
            return self._value(index)
        if category == "ffn_down":
            return self._down(index) or self.default
        if category == "attn_output":
            return self._attention_output() or self.default
        return self._others(category, index)

    def _next(self, category: str, tensor: GgufTensor) -> int:
        """The number of the tensor among its category; of its layer where there are experts."""
        if category not in self.seen:
            return 0
        index = self.seen[category]
        self.seen[category] += 1
        by_layer = category != "attn_v" and self.hyper.experts > 1 and self.mixture not in _TINY
        return tensor.layer if by_layer and tensor.layer is not None else index

    def _output(self, tensor: GgufTensor) -> str:
        if self.mixture == "mxfp4_moe" or self.hyper.is_falcon or tensor.columns % BLOCKS[self.default][0]:
            return "q8_0"
        if self.mixture in _TINY or self.mixture == "iq3_xxs":
            return "q5_k"
        return self.default if self.default == "q8_0" else "q6_k"

    def _embedding(self) -> str:
        if self.mixture in ("iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"):
            return "q2_k"
        if self.mixture in ("iq2_s", "iq2_m", "iq3_xxs"):
            return "iq3_s"
        return "q4_k" if self.mixture in ("tq1_0", "tq2_0") else self.default

    def _tiny(self, category: str, index: int) -> str:
        better = "iq3_s" if self.mixture in ("iq2_s", "iq2_m") else "q2_k"
        eight = self.hyper.experts == EXPERTS_OF_MIXTRAL
        if category == "attn_v":
            return "q4_k" if self.hyper.gqa >= 4 or self.hyper.experts >= 4 else better
        if category == "attn_k" and eight:
            return "q4_k"
        if category == "ffn_down" and index < self.hyper.layers // 8:
            return better
        if category == "attn_output":
            if eight:
                return "q5_k"
            own = {"iq1_s": "iq2_xxs", "iq1_m": "iq2_xxs", "iq2_s": "iq3_s", "iq2_m": "iq3_s"}
            return own.get(self.mixture, self.default)
        return self.default

    def _value(self, index: int) -> str:
        kind = self._value_of_mixture(index) or self.default
        if self.hyper.is_70b and kind in ("q3_k", "q4_k"):
            kind = "q5_k"
        return "q8_0" if self.hyper.experts == EXPERTS_OF_MIXTRAL else kind

    def _value_of_mixture(self, index: int) -> str | None:
        mixture, shared = self.mixture, self.hyper.gqa >= 4
        if mixture == "q2_k":
            return "q4_k" if shared else "q3_k"
        if mixture in ("q2_k_s", "iq3_xxs", "iq3_xs", "iq3_s"):
            return "q4_k" if shared else None
        if mixture in ("iq4_nl", "iq4_xs"):
            return "q5_k" if shared else None
        if mixture in ("q4_k_m", "q5_k_m"):
            return "q6_k" if more_bits(index, self.values) else None
        if mixture == "q4_k_s":
            return "q5_k" if index < 4 else None
        if mixture == "q3_k_m":
            return "q5_k" if index < 2 else "q4_k"
        return {"iq3_m": "q4_k", "q3_k_l": "q5_k"}.get(mixture)

    def _down(self, index: int) -> str | None:
        mixture, layers = self.mixture, self.hyper.layers
        more, first = more_bits(index, layers), index < layers // 8
        if self.hyper.is_falcon and mixture in _DOWN_OF_FALCON:
            beginning, better, rest = _DOWN_OF_FALCON[mixture]
            return beginning if index < layers // 16 else better if more else rest
        if mixture == "q3_k_m":
            return "q5_k" if index < layers // 16 else "q4_k"
        if mixture in ("q4_k_m", "q5_k_m"):
            return "q6_k" if more else None
        if mixture == "iq3_m":
            first = first or (self.hyper.experts == EXPERTS_OF_MIXTRAL and more)
        return _DOWN.get(mixture) or (_FIRST_DOWN.get(mixture) if first else None)

    def _attention_output(self) -> str | None:
        if self.hyper.is_falcon:
            return "q4_k" if self.mixture == "q3_k_l" else None
        if self.hyper.experts == EXPERTS_OF_MIXTRAL:
            return "q5_k" if self.mixture in _Q5_OF_EIGHT else None
        own = {"q2_k": "q3_k", "iq3_xxs": "iq3_s", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_m": "q4_k"}
        return own.get(self.mixture)

    def _others(self, category: str, index: int) -> str:
        """K and Q of attention, up and gate of the perceptron; whatever else keeps the mixture's own type."""
        mixture, layers = self.mixture, self.hyper.layers
        if category == "attn_k" and self.hyper.experts == EXPERTS_OF_MIXTRAL:
            return "q8_0"
        if category in ("attn_k", "attn_q"):
            return {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}.get(mixture, self.default)
        if (
            category in ("ffn_up", "ffn_gate")
            and mixture == "iq3_xs"
            and layers // 8 <= index < 7 * layers // 8
        ):
            return "iq3_xxs"
        return self.default
