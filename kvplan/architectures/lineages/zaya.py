"""Zaya: compressed convolutional attention.

Source: huggingface/transformers 5.23.0 models/zaya.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import head_dim, num_heads, num_kv_heads, window
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import even, experts, keyed, linear, norm, norms, vector, whole
from kvplan.architectures.blocks.plain import BIAS, TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import HYBRID, HYBRID_SLIDING, Parts, Recipe, all_of
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import CompressedConvolution, FullAttention, SlidingWindow
from kvplan.weights.inventory import Dim, Place, Split


def _zaya_state(view: ConfigView) -> CompressedConvolution:
    return CompressedConvolution(
        num_heads(view),
        num_kv_heads(view),
        head_dim(view),
        derived(view.integer("cca_time0") + view.integer("cca_time1") - 2, "cca_time0 + cca_time1 - 2"),
    )


def _zaya(view: ConfigView) -> Parts:
    return (FullAttention(num_kv_heads(view), head_dim(view)), _zaya_state(view))


def _zaya_sliding(view: ConfigView) -> Parts:
    return (SlidingWindow(num_kv_heads(view), head_dim(view), window(view)), _zaya_state(view))


def zaya_tensors(view: ConfigView) -> Decoder:
    """Convolved query and key, values of two tokens, a router of its own width, scales of the residual."""
    hidden, count = hidden_size(view), int(view.num_layers())
    heads, model = heads_of(view), whole("hidden_size", hidden)
    bias = view.flag(BIAS)
    query = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
    kv = Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT)
    wide, half = whole("head_dim", heads.width), whole("head_dim / 2", heads.width // 2)
    path = "self_attn.qkv_proj"
    made = linear(f"{path}.q_proj", query, model, bias=bias)
    made += linear(f"{path}.k_proj", (kv, wide), model, bias=bias)
    for name in ("v_proj_current", "v_proj_delayed"):
        made += linear(f"{path}.{name}", (kv, half), model, bias=bias)
    first, second = keyed(view, "cca_time0"), keyed(view, "cca_time1")
    for rows in (query, (kv, wide)):
        made += vector(f"{path}.conv_qk_depthwise", *rows, first)
        made += vector(f"{path}.conv_qk_depthwise.bias", *rows)
        made += vector(f"{path}.conv_qk_grouped", *rows, wide, second)
        made += vector(f"{path}.conv_qk_grouped.bias", *rows)
    made += vector("self_attn.qk_norm.temp", kv) + linear("self_attn.o_proj", model, query, bias=bias)
    number, inner = int(view.integer("num_experts")), keyed(view, "router_hidden_size")
    classes = whole("num_experts and none", number + 1)
    made += vector("mlp.gate.down_proj", inner, model) + vector("mlp.gate.down_proj.bias", inner)
    made += norm("mlp.gate.router_mlp.norm", inner)
    for name in ("fc1", "fc2"):
        made += vector(f"mlp.gate.router_mlp.{name}", inner, inner)
        made += vector(f"mlp.gate.router_mlp.{name}.bias", inner)
    made += vector("mlp.gate.router_mlp.out_proj", classes, inner)
    made += vector("mlp.gate.balancing_biases", classes, dtype="float32")
    made += experts("mlp.experts", number, hidden, int(view.integer("moe_intermediate_size")))
    made += norms(TWO_NORMS, model)
    for place in ("post_attention_residual_scale", "post_mlp_residual_scale"):
        for name in ("hidden_states_scale", "hidden_states_bias", "residual_scale", "residual_bias"):
            made += vector(f"{place}.{name}", model)
    rest = made + vector("mlp.gate.router_states_scale", inner)
    scales = vector("model.input_hidden_states_scale", model) + vector(
        "model.input_hidden_states_bias", model
    )
    frame = Frame(head_bias="lm_head_bias", extra=lambda _: at(Place.FIRST, scales))
    return Decoder(frame, (made,) + (rest,) * (count - 1))


lineage(
    "zaya",
    layers=Recipe({HYBRID: _zaya, HYBRID_SLIDING: _zaya_sliding}, all_of(HYBRID)),
    tensors=zaya_tensors,
)
