"""The tensors of an EAGLE-3 draft's GGUF file (``--spec-type draft-eagle3``).

ggml-org/llama.cpp at 0c1e57098: src/models/eagle3.cpp (load_arch_tensors), conversion/llama.py (a head is a
config of one layer with ``draft_vocab_size``; its table of words, ``d2t``, stays int64).
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.architectures.config.text_part import find_text_part
from kvplan.architectures.config.view import split_quant
from kvplan.architectures.heads import LLAMA_EAGLE3
from kvplan.engines.llamacpp.gguf_file.authors import named_build
from kvplan.engines.llamacpp.gguf_file.ggml_types import row_bytes
from kvplan.engines.llamacpp.gguf_file.quantise import GgufTensor, Hyper, types_of
from kvplan.model import EAGLE3, Model

STATES = 3
"""Layers of the target whose inputs a head reads; the program stops where there are not as many."""
USUAL = "f16"
"""The build of a head that names none: the converter's own, as a head is rarely quantised."""


def is_head(draft: Model) -> bool:
    """Whether a draft is an EAGLE-3 head that llama.cpp's converter takes, or its file."""
    if draft.is_gguf:
        return draft.model_type == EAGLE3
    one_layer = draft.num_layers == 1 and draft.num_attention_heads > 0
    return draft.architecture in LLAMA_EAGLE3 and one_layer and _vocabulary(draft) is not None


def head_bytes(draft: Model, target: Model) -> Mapping[str, int]:
    """Name → bytes of a head's file, without an embedding of its own, which lies in host memory.

    Raises KvplanError(bad-setting)."""
    tensors = _tensors(draft, target)
    build = named_build(draft.gguf_mixture or USUAL)
    kinds = types_of(tensors, build.mixture, Hyper(1, 0, 1), build.told)
    return {one.name: row_bytes(kind, one.columns) * one.rows for one, kind in zip(tensors, kinds)}


def _vocabulary(draft: Model) -> int | None:
    view = find_text_part(split_quant(draft.config or {})[0]).view
    return view.optional_integer("draft_vocab_size")


def _tensors(draft: Model, target: Model) -> list[GgufTensor]:
    view = find_text_part(split_quant(draft.config or {})[0]).view
    hidden, width = draft.hidden_size, shape_of(draft, 2).mlp_width
    wide = int(view.optional_integer("target_hidden_size") or target.hidden_size)
    words = int(_vocabulary(draft) or draft.vocab_size)
    heads = draft.num_attention_heads
    head = int(view.optional_integer("head_dim") or hidden // heads)
    query, cached = heads * head, int(view.optional_integer("num_key_value_heads") or heads) * head
    # Attention reads embedding and hidden state side by side.
    found = [
        ("fc.weight", STATES * wide, hidden),
        ("output.weight", hidden, words),
        ("blk.0.attn_q.weight", 2 * hidden, query),
        ("blk.0.attn_k.weight", 2 * hidden, cached),
        ("blk.0.attn_v.weight", 2 * hidden, cached),
        ("blk.0.attn_output.weight", query, hidden),
        ("blk.0.ffn_gate.weight", hidden, width),
        ("blk.0.ffn_up.weight", hidden, width),
        ("blk.0.ffn_down.weight", width, hidden),
    ]
    norms = ["output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"]
    tensors = [_of(name, columns, rows, 2) for name, columns, rows in found]
    tensors += [_of(f"{name}.weight", hidden, 1, 1) for name in norms]
    if view.get("norm_before_fc") is True:
        tensors.append(_of("enc.output_norm.weight", STATES * wide, 1, 1))
    if words != target.vocab_size:
        tensors.append(GgufTensor("d2t", words, 1, 1, None, "i64"))
    return tensors


def _of(name: str, columns: int, rows: int, dimensions: int) -> GgufTensor:
    return GgufTensor(name, columns, rows, dimensions, 0 if name.startswith("blk.") else None)
