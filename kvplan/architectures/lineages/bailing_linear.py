"""Ling 2.5 and 2.6, Ring 2.5: lightning attention beside latent attention, experts.

Source: vllm-project/vllm 0.33 vllm/model_executor/models/bailing_moe_linear.py,
vllm/model_executor/layers/mamba/linear/bailing_linear_attn.py. The published files share the model type
bailing_hybrid with Ling 3.0, whose linear layers are Kimi delta attention: the class tells them apart.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import full, head_dim, num_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.latent import both_norms, dense_forward, latent, mla_attention
from kvplan.architectures.blocks.moe import Moe
from kvplan.architectures.blocks.parts import Tensors, even, linear, norm, norms, whole
from kvplan.architectures.blocks.plain import heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, LINEAR, Parts, Recipe, by_index
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import FINAL_NORMS, Joins, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import LightningAttention


def _lightning(view: ConfigView) -> Parts:
    return (LightningAttention(num_heads(view), head_dim(view)),)


def _full(view: ConfigView) -> Parts:
    """Ring-linear 2.0 has grouped heads, later ones latents."""
    return latent(view) if _is_latent(view) else full(view)


def _is_latent(view: ConfigView) -> bool:
    return view.get("kv_lora_rank") is not None


def linear_kinds(view: ConfigView, count: int) -> list[str]:
    """Every layer_group_size-th layer is latent attention (bailing_moe_linear.py, is_linear_layer)."""
    size = int(view.optional_integer("layer_group_size", default=1) or 1)
    return by_index(lambda index, _: LINEAR if (index + 1) % size else FULL)(view, count)


def _shared(view: ConfigView) -> int:
    count = int(view.optional_integer("num_shared_experts", default=0, lowest=0) or 0)
    key = "moe_shared_expert_intermediate_size"
    return count * int(view.integer(key, "moe_intermediate_size")) if count else 0


def _experts(view: ConfigView) -> Moe:
    dtype = view.get("router_dtype")
    return Moe(
        shared=_shared,
        gate_dtype="float32" if dtype in (None, "fp32") else "bfloat16",
        correction="mlp.gate.expert_bias" if view.flag("moe_router_enable_expert_bias") else "",
    )


def bailing_linear_tensors(view: ConfigView) -> Decoder:
    hidden, count = hidden_size(view), int(view.num_layers())
    first = int(view.optional_integer("first_k_dense_replace", default=0, lowest=0) or 0)
    routed = int(view.optional_integer("num_experts", default=0, lowest=0) or 0) > 1
    around = both_norms(view)

    @lru_cache(maxsize=4)
    def layer(word: str, sparse: bool) -> Tensors:
        mixer = _linear_attention(view, hidden) if word == LINEAR else mla_attention(view)
        return mixer + (_experts(view).tensors(view) if sparse else _dense(view)) + around

    kinds = linear_kinds(view, count)
    frame = Frame(embed="model.word_embeddings", tied=False)
    return Decoder(frame, tuple(layer(kind, routed and index >= first) for index, kind in enumerate(kinds)))


def _dense(view: ConfigView) -> Tensors:
    return dense_forward(view, bias=view.flag("use_bias"))


def _linear_attention(view: ConfigView, hidden: int) -> Tensors:
    heads = heads_of(view)
    model = whole("hidden_size", hidden)
    wide = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
    bias = view.flag("use_bias")
    made: Tensors = ()
    for name in ("query", "key", "value"):
        path = f"attention.query_key_value.{name}"
        made += linear(path, wide, model, bias=bias or view.flag("use_qkv_bias"))
    if view.flag("use_qk_norm"):
        made += norms(("attention.query_layernorm", "attention.key_layernorm"), wide[1])
    made += linear("attention.g_proj", wide, model) + linear("attention.dense", model, wide, bias=bias)
    return made + norm("attention.g_norm", *wide)


_LAYERS = Recipe({FULL: _full, LINEAR: _lightning}, linear_kinds)

lineage(
    "bailing_moe_v2_5",
    reads=CustomType(
        "vllm-project/vllm 0.33 vllm/model_executor/models/bailing_moe_linear.py",
        defaults={
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        },
    ),
    layers=_LAYERS,
    tensors=bailing_linear_tensors,
    prediction=Prediction(joins=Joins(FINAL_NORMS)),
)
lineage(
    "bailing_moe_linear",
    reads=CustomType("sgl-project/sglang 0.5.23 python/sglang/srt/models/bailing_moe_linear.py"),
    layers=_LAYERS,
)
