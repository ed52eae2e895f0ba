"""Laguna: gates, heads by layer, experts.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/laguna.py.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, num_heads, num_kv_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import Moe, by_types, shared_by_width
from kvplan.architectures.blocks.parts import Heads, Tensors, attention, even, linear, mlp, norms, whole
from kvplan.architectures.blocks.plain import TWO_NORMS, hidden_size
from kvplan.architectures.blocks.recipe import FULL, Recipe, all_of
from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.registry import Decoder, lineage

LAGUNA_MOE = Moe(
    correction="mlp.experts.e_score_correction_bias",
    shared=shared_by_width("shared_expert_intermediate_size"),
    shared_path="mlp.shared_expert",
)


def laguna_tensors(view: ConfigView) -> Decoder:
    """Heads by layer, a gate by head or by channel, dense and sparse layers by mlp_layer_types."""
    hidden, count = hidden_size(view), int(view.num_layers())
    by_layer = view.sequence("num_attention_heads_per_layer") or [int(num_heads(view))] * count
    gating, width, kv = view.get("gating"), int(head_dim(view)), int(num_kv_heads(view))
    bias, model = view.flag("attention_bias"), whole("hidden_size", hidden)
    around = norms(TWO_NORMS, model)

    @lru_cache(maxsize=64)
    def layer(heads: int, sparse: bool) -> Tensors:
        made = attention(Heads(heads, kv, width, width), hidden, qkv_bias=bias, o_bias=bias, qk_norm="head")
        if gating:
            gate = even("num_attention_heads", heads)
            per_head = gating is True or gating == "per-head"
            made += linear("self_attn.g_proj", gate if per_head else (gate, whole("head_dim", width)), model)
        made += (
            LAGUNA_MOE.tensors(view) if sparse else mlp("mlp", hidden, int(view.integer("intermediate_size")))
        )
        return made + around

    if len(by_layer) != count:
        raise view.refuse("num_attention_heads_per_layer", f"{len(by_layer)} entries for {count} layers")
    where = f"{view.path}num_attention_heads_per_layer"
    layers = tuple(
        layer(check_integer(heads, where), by_types(view, index)) for index, heads in enumerate(by_layer)
    )
    return Decoder(Frame(), layers)


lineage("laguna", layers=Recipe(ATTENTION, all_of(FULL)), tensors=laguna_tensors)
