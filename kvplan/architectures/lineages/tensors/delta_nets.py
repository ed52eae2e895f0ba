"""Decoders of gated delta nets or Kimi delta attention with some attention layers.

Source: vllm-project/vllm 0.32: vllm/model_executor/models/qwen3_next.py, qwen3_5.py and
vllm/models/kimi_k3/nvidia/model.py (Kimi Linear and Kimi K3).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.lineages.tensors.dense_table import STEP_MOE
from kvplan.architectures.lineages.tensors.frame import Frame, at
from kvplan.architectures.lineages.tensors.hybrids import layer_words
from kvplan.architectures.lineages.tensors.mla import mla_attention
from kvplan.architectures.lineages.tensors.moe import after_first
from kvplan.architectures.lineages.tensors.parts import (
    Tensors,
    attention,
    experts,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import Decoder, decoder
from kvplan.architectures.lineages.tensors.state_space import gated_delta_net, kimi_delta
from kvplan.weights.inventory import Place, Placed, Split

KIMI_LEAST_WIDTH = 256
TOKEN_MOE = replace(STEP_MOE, shared_split=Split.SHARED_EXPERT)


@decoder("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
def qwen_delta(view: ConfigView) -> Decoder:
    """Gated delta nets, every full_attention_interval-th layer gated attention; experts or a perceptron."""
    hidden, count = hidden_size(view), int(view.num_layers())
    words = layer_words(view, "layer_types")
    if words is None:
        every = int(view.optional_integer("full_attention_interval") or 4)
        words = ["linear_attention" if (index + 1) % every else "full_attention" for index in range(count)]
    newest = view.model_type.startswith("qwen3_5")
    bias = view.flag("qkv_bias")
    model = whole("hidden_size", hidden)
    gated = view.flag("attn_output_gate", default=True)
    around = norms(TWO_NORMS, model)
    if view.flag("layer_scale"):
        around += vector("attn_layer_scale", model) + vector("ffn_layer_scale", model)

    @lru_cache(maxsize=8)
    def layer(word: str, sparse: bool) -> Tensors:
        if word == "linear_attention":
            mixer = gated_delta_net(view, hidden, joint=not newest)
        else:
            mixer = attention(
                heads_of(view),
                hidden,
                query_parts=2 if gated else 1,
                qkv_bias=bias,
                qk_norm="head",
            )
        forward = (
            TOKEN_MOE.tensors(view) if sparse else mlp("mlp", hidden, int(view.integer("intermediate_size")))
        )
        return mixer + forward + around

    layers = []
    for index, word in enumerate(words):
        sparse = view.model_type == "qwen3_5_moe_text"
        if not newest:
            sparse = STEP_MOE.layer_is_sparse(view, index)
        layers.append(layer(word, sparse))
    frame = Frame(embed_everywhere=True, head_everywhere=not newest)
    return Decoder(frame, tuple(layers))


def _kda(view: ConfigView) -> dict[str, Any]:
    settings = view.mapping("linear_attn_config")
    if settings is None:
        raise view.missing("linear_attn_config")
    return settings


def _kimi_moe(view: ConfigView, hidden: int) -> Tensors:
    """Experts, behind a projection to routed_expert_hidden_size where there is one."""
    path = "block_sparse_moe"
    count, width = int(view.integer("num_experts")), int(view.integer("moe_intermediate_size"))
    made = router(f"{path}.gate", count, hidden, correction=f"{path}.gate.e_score_correction_bias")
    inner = int(view.optional_integer("routed_expert_hidden_size") or hidden)
    if inner != hidden:
        model, narrow = whole("hidden_size", hidden), whole("routed_expert_hidden_size", inner)
        made += linear(f"{path}.routed_expert_down_proj", narrow, model)
        if view.flag("latent_moe_use_norm"):
            made += norm(f"{path}.routed_expert_norm", narrow)
        made += linear(f"{path}.routed_expert_up_proj", model, narrow)
    least = int(view.optional_integer("min_moe_intermediate_per_partition") or KIMI_LEAST_WIDTH)
    made += experts(f"{path}.experts", count, inner, width, least=least)
    shared = view.optional_integer("num_shared_experts", default=0, lowest=0)
    return made + (
        mlp(f"{path}.shared_experts", hidden, width * int(shared), split=Split.SHARED_EXPERT)
        if shared
        else ()
    )


def _kimi_extra(view: ConfigView) -> list[Placed]:
    if view.get("attn_res_block_size") is None:
        return []
    hidden = whole("hidden_size", hidden_size(view))
    return at(
        Place.LAST, norm("model.output_attn_res_norm", hidden) + vector("model.output_attn_res_proj", hidden)
    )


@decoder("kimi_linear")
def kimi(view: ConfigView) -> Decoder:
    """Kimi delta attention with MLA layers between, experts from first_k_dense_replace on."""
    hidden, count, settings = hidden_size(view), int(view.num_layers()), _kda(view)
    kda = {
        check_integer(entry, "linear_attn_config.kda_layers") - 1
        for entry in settings.get("kda_layers") or ()
    }
    where = f"{view.path}linear_attn_config."
    model = whole("hidden_size", hidden)
    around = norms(TWO_NORMS, model)
    if view.get("attn_res_block_size") is not None:
        around += norms(("self_attention_res_norm", "mlp_res_norm"), model)
        around += vector("self_attention_res_proj", model) + vector("mlp_res_proj", model)

    wide = int(view.integer("intermediate_size"))

    @lru_cache(maxsize=8)
    def layer(delta: bool, sparse: bool) -> Tensors:
        if delta:
            mixer = kimi_delta(
                hidden,
                check_integer(settings.get("num_heads"), f"{where}num_heads"),
                check_integer(settings.get("head_dim"), f"{where}head_dim"),
                check_integer(settings.get("short_conv_kernel_size"), f"{where}short_conv_kernel_size"),
                full_gate=bool(settings.get("use_full_rank_gate")),
            )
        else:
            mixer = mla_attention(view, gate=view.flag("mla_use_output_gate"))
        forward = _kimi_moe(view, hidden) if sparse else mlp("mlp", hidden, wide, split=Split.SHARED_EXPERT)
        return mixer + forward + around

    layers = tuple(layer(index in kda, after_first(view, index)) for index in range(count))
    return Decoder(Frame(extra=_kimi_extra), layers)
