"""Hunyuan: Large, V1, and V3 and V4 with latent attention and an indexer.

Sources: huggingface/transformers 5.24.0 models/{hunyuan_v1_dense,hunyuan_v1_moe,hy_v3,hy_v4,
hy_v4_vl}.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.custom import every_head, every_layer, width_per_head
from kvplan.architectures.blocks.decoder import num_heads, plain_decoder
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.latent import (
    DSA,
    ROUTED,
    both_norms,
    dense_forward,
    indexer,
    indexer_types,
    mla_attention,
    routed_here,
    without_indexer,
)
from kvplan.architectures.blocks.moe import FLOAT32, Moe, by_types_or, shared_by_width, with_shared
from kvplan.architectures.blocks.parts import Tensors, even, keyed, linear, vector, whole
from kvplan.architectures.blocks.plain import BIAS, QK_LAYERNORM, Plain, hidden_size
from kvplan.architectures.blocks.recipe import INDEXED, Recipe, all_of
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.plain import KV_HEADS
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import FINAL_NORMS, NEW_LAYOUT, Joins, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer
from kvplan.record import replace
from kvplan.weights.inventory import Place, Placed


def hunyuan_layers(view: ConfigView) -> list[Layer]:
    """Hunyuan-Large: full attention; files/overlays.py takes away what cla_share_factor shares.

    Source: tencent/Tencent-Hunyuan-Large modeling_hunyuan.py.
    """
    kv = view.optional_integer(*KV_HEADS)
    width = width_per_head(view, "head_dim", "attention_head_dim")
    return every_layer(view, FullAttention(kv if kv is not None else every_head(view), width))


def _hy_v4_indexers(view: ConfigView, count: int) -> list[str]:
    if view.sequence("indexer_types") is not None:
        return indexer_types(view, count)
    return ["full" if index == 0 or (index - 1) % 4 == 0 else "shared" for index in range(count)]


def _streams(view: ConfigView, name: str) -> Tensors:
    """A hyper-connection's mixing of hc_mult streams: in and out, in float32."""
    count = int(view.integer("hc_mult"))
    both, wide = whole("2 × hc_mult", 2 * count), whole("hc_mult × hidden_size", count * hidden_size(view))
    made = vector(f"{name}.fn", both, wide, dtype=FLOAT32) + vector(f"{name}.base", both, dtype=FLOAT32)
    return made + vector(f"{name}.scale", whole("two", 2), dtype=FLOAT32)


def _hy_head(view: ConfigView) -> list[Placed]:
    count = keyed(view, "hc_mult")
    wide = whole("hc_mult × hidden_size", count.value * hidden_size(view))
    made = vector("model.hc_head.hc_fn", count, wide, dtype=FLOAT32)
    made += vector("model.hc_head.hc_base", count, dtype=FLOAT32)
    return at(Place.LAST, made + vector("model.hc_head.hc_scale", whole("one", 1), dtype=FLOAT32))


_HY_EXPERTS = replace(ROUTED, gate_dtype=FLOAT32)


def hy_v4_tensors(view: ConfigView) -> Decoder:
    """Latent attention with sinks and an output gate, hyper-connections, indexers that layers may share."""
    count = int(view.num_layers())
    indexers = _hy_v4_indexers(view, count)
    own_sinks = even("num_attention_heads", int(num_heads(view)))
    plain = mla_attention(view, bias=view.flag(BIAS)) + both_norms(view)
    plain += vector("self_attn.learnable_sink_param", own_sinks, dtype=FLOAT32)
    heads = (even("num_attention_heads", int(num_heads(view))), keyed(view, "v_head_dim"))
    plain += linear("self_attn.gate_proj", heads, whole("hidden_size", hidden_size(view)))
    plain += _streams(view, "attn_hc") + _streams(view, "ffn_hc")

    @lru_cache(maxsize=4)
    def layer(sparse: bool, own: bool) -> Tensors:
        forward = _HY_EXPERTS.tensors(view) if sparse else dense_forward(view)
        return plain + (indexer(view) if own else ()) + forward

    layers = tuple(layer(routed_here(view, index), indexers[index] == "full") for index in range(count))
    return Decoder(Frame(extra=_hy_head), layers)


lineage(
    "hunyuan", reads=CustomType("tencent/Tencent-Hunyuan-Large modeling_hunyuan.py"), layers=hunyuan_layers
)
lineage(
    "hunyuan_v1_dense",
    block=Plain(names=QK_LAYERNORM, qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", qk_norm="head"),
)
lineage(
    "hunyuan_v1_moe",
    block=Plain(
        names=QK_LAYERNORM,
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        moe=Moe(
            gate="mlp.gate.wg",
            width=("moe_intermediate_size", "intermediate_size"),
            shared=shared_by_width("intermediate_size"),
            shared_path="mlp.shared_mlp",
        ),
    ),
)
lineage("hunyuan_vl_text", layers=plain_decoder)
lineage(
    "hy_v3",
    block=Plain(
        qkv_bias=BIAS,
        o_bias=BIAS,
        mlp_bias="mlp_bias",
        qk_norm="head",
        moe=with_shared(by_types_or(1), correction="mlp.e_score_correction_bias"),
    ),
    prediction=Prediction(joins=Joins(FINAL_NORMS)),
)
lineage(
    "hy_v4",
    "hy_v4_vl_text",
    layers=Recipe(
        DSA,
        all_of(INDEXED),
        sharing=lambda view, kinds: without_indexer(view, kinds, _hy_v4_indexers(view, len(kinds))),
    ),
    tensors=hy_v4_tensors,
    prediction=Prediction(unknown=NEW_LAYOUT),
)
