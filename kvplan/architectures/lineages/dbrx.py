"""DBRX.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/dbrx.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import hidden_per_head, uniform
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import Heads, attention, experts, fused, norms, router, whole
from kvplan.architectures.config.view import ConfigView, check_integer, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer
from kvplan.record import Json


def dbrx_layers(view: ConfigView) -> list[Layer]:
    """KV heads stand in attn_config; the class default is 1."""
    kv = view.inner("attn_config").optional_integer("kv_n_heads") or derived(
        1, "attn_config.kv_n_heads (class default)"
    )
    return uniform(view, FullAttention(kv, hidden_per_head(view)))


def _inner(view: ConfigView, key: str) -> Json:
    """A nested object of settings, empty where there is none."""
    return view.mapping(key) or {}


def dbrx_tensors(view: ConfigView) -> Decoder:
    """Attention inside a block with two norms without bias, and experts of ffn_config."""
    hidden, heads = int(view.integer("d_model")), int(view.integer("n_heads"))
    attn, ffn = _inner(view, "attn_config"), _inner(view, "ffn_config")
    kv = check_integer(attn.get("kv_n_heads"), "attn_config.kv_n_heads")
    count = check_integer(ffn.get("moe_num_experts"), "ffn_config.moe_num_experts")
    wide = check_integer(ffn.get("ffn_hidden_size"), "ffn_config.ffn_hidden_size")
    width = hidden // heads
    names = fused("norm_attn_norm.attn", "Wqkv", "out_proj")
    layer = attention(Heads(heads, kv, width, width), hidden, names=names)
    layer += router("ffn.router.layer", count, hidden) + experts("ffn.experts", count, hidden, wide)
    layer += norms(("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"), whole("d_model", hidden))
    frame = Frame(
        layers="transformer.blocks", embed="transformer.wte", final_norm="transformer.norm_f", everywhere=True
    )
    return Decoder(frame, (layer,) * int(view.num_layers("n_layers")))


lineage("dbrx", layers=dbrx_layers, tensors=dbrx_tensors)
