"""Doge.

Source: huggingface/transformers 5.23.0 models/doge.
"""

from __future__ import annotations

from math import isqrt

from kvplan.architectures.blocks.decoder import plain_decoder
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import attention, linear, mlp, norms, router, vector, whole
from kvplan.architectures.blocks.plain import BIAS, TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.weights.inventory import Dim, Split


def doge_tensors(view: ConfigView) -> Decoder:
    """Attention with a learnt mask by KV head, weighted residuals; is_moe: experts of one neuron each."""
    hidden, heads, bias = hidden_size(view), heads_of(view), view.flag(BIAS)
    model = whole("hidden_size", hidden)
    kv = Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT)
    layer = attention(heads, hidden, qkv_bias=bias, o_bias=bias, qk_norm="head")
    layer += vector("self_attn.A", kv)
    layer += linear("self_attn.dt_proj", kv, (kv, whole("head_dim", heads.width)), bias=bias)
    layer += vector("input_residual", model) + vector("post_attention_residual", model)
    layer += mlp("mlp", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    if view.flag("is_moe"):
        number = int(view.integer("num_experts"))
        layer += router("mlp.router_gate", 2 * isqrt(number), hidden)
        for name in ("mlp.down_embed", "mlp.up_embed"):
            layer += vector(name, whole("num_experts", number), model)
    return Decoder(Frame(), (layer + norms(TWO_NORMS, model),) * int(view.num_layers()))


lineage("doge", layers=plain_decoder, tensors=doge_tensors)
