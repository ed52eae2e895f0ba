"""GPT-OSS: every other layer has a window, experts in MXFP4, attention sinks.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/gpt_oss.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, num_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import attention, even, experts, norms, router, vector, whole
from kvplan.architectures.blocks.plain import TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Recipe, every
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage


def gpt_oss_tensors(view: ConfigView) -> Decoder:
    """Attention with biases and one sink a head, experts with biases, a router with one."""
    hidden, count = hidden_size(view), int(view.integer("num_local_experts", "num_experts"))
    layer = attention(heads_of(view), hidden, qkv_bias=True, o_bias=True)
    layer += vector("self_attn.sinks", even("num_attention_heads", int(num_heads(view))))
    layer += router("mlp.router", count, hidden, bias=True)
    layer += experts("mlp.experts", count, hidden, int(view.integer("intermediate_size")), bias=True)
    layer += norms(TWO_NORMS, whole("hidden_size", hidden))
    return Decoder(Frame(everywhere=True), (layer,) * int(view.num_layers()))


lineage("gpt_oss", layers=Recipe(ATTENTION, every(2, SLIDING, FULL)), tensors=gpt_oss_tensors)
