"""How llama.cpp's converter names a checkpoint's modules, and which of them it takes apart.

ggml-org/llama.cpp gguf-py/gguf/tensor_mapping.py (data/gguf_names.tsv, by scripts/make_gguf_names.py) and the
``modify_tensors`` of conversion/: granite.py, baichuan.py, chatglm.py, internlm.py, qwen.py, deepseek.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

NAMES = Path(__file__).parent / "data" / "gguf_names.tsv"
HEADER = "module\ttensor\tarchitectures"
_LAYER = re.compile(r"\.(\d{1,5})\.")
_EXPERTS = re.compile(r"\.experts\.(gate_proj|up_proj|down_proj|gate_up_proj|w1|w2|w3)$")
_EXPERT_NAMES = {
    "gate_proj": "ffn_gate_exps", "w1": "ffn_gate_exps", "up_proj": "ffn_up_exps", "w3": "ffn_up_exps",
    "down_proj": "ffn_down_exps", "w2": "ffn_down_exps", "gate_up_proj": "ffn_gate_up_exps",
}  # fmt: skip
_QKV = ("attn_q", "attn_k", "attn_v")
_IN_TURN: dict[str, tuple[str, ...]] = {
    "self_attn.W_pack": _QKV,
    "attention.wqkv": _QKV,
    "linear_attn.in_proj_qkvz": ("attn_qkv", "attn_qkv", "attn_gate"),
}
"""A module that is taken apart: the tensor of each of its parts, as the inventory lists them."""
_HALVES: dict[str, tuple[str, ...]] = {
    "shared_mlp.input_linear": ("ffn_gate", "ffn_up"),
    "shared_mlp.output_linear": ("ffn_down",),
}
"""Granite's perceptron beside the experts, or the only one: gate and up in one matrix."""
_PREDICTION = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head.norm",
}
"""What Qwen's prediction layers have outside a layer → where the converter puts it (``_Qwen35MtpMixin``)."""


@cache
def _table() -> tuple[Mapping[str, str], Mapping[tuple[str, str], str]]:
    """Module → tensor, and (module, architecture) → tensor where it is another."""
    header, *lines = NAMES.read_text(encoding="utf-8").splitlines()
    assert header == HEADER
    usual: dict[str, str] = {}
    own: dict[tuple[str, str], str] = {}
    for line in lines:
        module, tensor, architectures = line.split("\t")
        if not architectures:
            usual[module] = tensor
        for one in filter(None, architectures.split(",")):
            own[module, _plain(one)] = tensor
    return usual, own


def _plain(word: str) -> str:
    """An architecture's name beside a model type: ``falcon-h1``, ``falcon_h1``; ``llama4_text``."""
    return word.replace("-", "").replace("_", "").removesuffix("text")


def names_of(path: str, model_type: str, *, sparse: bool, part: int = 0) -> tuple[str, ...]:
    """The tensors that a matrix becomes, without ``blk.N.``: more than one where it is cut into equal pieces
    along its rows; empty where the converter's names do not have it.

    part: how many parts of this module came before. sparse: whether the model has routed experts."""
    plain = path.removesuffix(".weight").removeprefix("transformer." if "chatglm" in model_type else "\0")
    for module, names in _IN_TURN.items():
        if plain.endswith(module):
            return (names[min(part, len(names) - 1)],)
    for module, names in _HALVES.items():
        if plain.endswith(module):
            return tuple(f"{name}_shexp" if sparse else name for name in names)
    pattern = _LAYER.sub(".{bid}.", plain, count=1)
    usual, own = _table()
    found = own.get((pattern, _plain(model_type))) or usual.get(pattern)
    if found is not None:
        return (found,)
    experts = _EXPERTS.search(plain)
    return (_EXPERT_NAMES[experts[1]],) if experts is not None else ()


def predicted(path: str, layers: int) -> str:
    """Where a prediction layer's tensor stands in the file: behind the model's own layers."""
    words = path.removeprefix("model.").split(".")
    if words[0] != "mtp":
        return path
    if words[1] == "layers":
        return f"model.layers.{layers + int(words[2])}.{'.'.join(words[3:])}"
    return f"model.layers.{layers}.{_PREDICTION.get('.'.join(words[1:]), '.'.join(words[1:]))}"
