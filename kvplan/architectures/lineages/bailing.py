"""Ling and Ring (Bailing): experts, and Kimi delta attention beside latent attention.

Sources: huggingface/transformers 5.23.0 models/bailing_hybrid; of Ling 2.0 vllm-project/vllm 0.33
vllm/model_executor/models/bailing_moe.py.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import head_dim, num_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.latent import (
    MLA,
    both_norms,
    dense_forward,
    mla_attention,
    routed_forward,
    routed_here,
)
from kvplan.architectures.blocks.moe import Moe
from kvplan.architectures.blocks.parts import Tensors, attention, even, fused, linear, norm, vector, whole
from kvplan.architectures.blocks.plain import BIAS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, LINEAR, Parts, Recipe, every_key
from kvplan.architectures.blocks.words import layer_words
from kvplan.architectures.config.custom_types import VLLM_MODELS, own_keys_grouped
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import FINAL_NORMS, NO_MODULE, Joins, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import KimiDeltaAttention
from kvplan.record import replace


def _bailing_kda(view: ConfigView) -> Parts:
    """Heads and width are those of attention before the latent replaces them; saved files state them."""
    return (
        KimiDeltaAttention(
            view.optional_integer("linear_num_heads") or num_heads(view),
            view.optional_integer("linear_head_dim") or head_dim(view),
            view.optional_integer("linear_conv_kernel_dim") or view.integer("short_conv_kernel_size"),
        ),
    )


def bailing_hybrid_tensors(view: ConfigView) -> Decoder:
    """Kimi delta attention with full-rank gates; every layer_group_size-th layer latent attention."""
    hidden, count = hidden_size(view), int(view.num_layers())
    model = whole("hidden_size", hidden)
    words = layer_words(view, "layer_types")
    if words is None:
        every = int(view.integer("layer_group_size"))
        words = ["linear_attention" if (index + 1) % every else "full_attention" for index in range(count)]
    own = even("linear heads", int(view.integer("linear_num_heads", "num_attention_heads")))
    both = (own, whole("head_dim", int(view.integer("linear_head_dim", "head_dim"))))
    linear_layer: Tensors = ()
    for name in ("q_proj", "k_proj", "v_proj", "g_proj", "forget_gate.f_proj"):
        linear_layer += linear(f"self_attn.{name}", both, model)
    kernel = whole("kernel", int(view.integer("linear_conv_kernel_dim", "short_conv_kernel_size")))
    linear_layer += vector("self_attn.conv1d", whole("query, key and value", 3), *both, kernel)
    linear_layer += vector("self_attn.forget_gate.A_log", own, dtype="float32")
    linear_layer += vector("self_attn.forget_gate.dt_bias", *both, dtype="float32")
    linear_layer += linear("self_attn.b_proj", own, model) + norm("self_attn.o_norm", both[1])
    linear_layer += linear("self_attn.o_proj", model, both)
    # vLLM 0.32 keeps the gate of the heads whole (bailing_moe_linear.py).
    gate = linear("self_attn.g_proj", whole("num_attention_heads", int(num_heads(view))), model)
    latent = mla_attention(view, bias=view.flag(BIAS)) + gate
    mixers = {"linear_attention": linear_layer, "full_attention": latent}
    around = both_norms(view)

    @lru_cache(maxsize=4)
    def layer(word: str, sparse: bool) -> Tensors:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
        return mixers[word] + routed_forward(view, sparse=sparse) + around

    layers = tuple(layer(word, routed_here(view, index)) for index, word in enumerate(words))
    return Decoder(Frame(tied=False), layers)


def _shared(view: ConfigView) -> int:
    """moe_shared_expert_intermediate_size where the config has it, else an expert's width, times all."""
    count = int(view.optional_integer("num_shared_experts", default=0, lowest=0) or 0)
    return (
        count * int(view.integer("moe_shared_expert_intermediate_size", "moe_intermediate_size"))
        if count
        else 0
    )


def bailing_moe_v2_tensors(view: ConfigView) -> Decoder:
    """A joint projection with a norm a head, a dense start, then experts; router_dtype fp32 is the gate's."""
    dtype = view.get("router_dtype")
    moe = replace(
        _EXPERTS,
        correction="mlp.gate.expert_bias" if view.flag("moe_router_enable_expert_bias") else "",
        gate_dtype=None if dtype is None else "float32" if dtype == "fp32" else "bfloat16",
    )
    names = fused("attention", "query_key_value", "dense")
    names = replace(names, query_norm="attention.query_layernorm", key_norm="attention.key_layernorm")
    bias = view.flag("use_bias")
    own = attention(
        heads_of(view),
        hidden_size(view),
        names=names,
        qkv_bias=bias or view.flag("use_qkv_bias"),
        o_bias=bias,
        qk_norm="head" if view.flag("use_qk_norm") else "",
    )
    if view.flag("use_qk_norm") and not view.flag(
        "use_rmsnorm", default=True
    ):  # norms of the older kind, with a bias
        width = whole("head_dim", heads_of(view).width)
        own += vector(f"{names.query_norm}.bias", width) + vector(f"{names.key_norm}.bias", width)
    around, dense = both_norms(view), dense_forward(view, bias=bias)
    first = int(view.optional_integer("first_k_dense_replace", default=0, lowest=0) or 0)
    sparse = own + moe.tensors(view) + around
    count = int(view.num_layers())
    return Decoder(
        Frame(), tuple(own + dense + around if index < first else sparse for index in range(count))
    )


_EXPERTS = Moe(shared=_shared)

lineage(
    "bailing_hybrid",
    layers=Recipe({**MLA, LINEAR: _bailing_kda}, every_key("layer_group_size", 1, LINEAR, FULL)),
    tensors=bailing_hybrid_tensors,
    prediction=Prediction(joins=Joins(FINAL_NORMS)),
)
lineage(
    "bailing_moe_v2",
    reads=own_keys_grouped(VLLM_MODELS + "bailing_moe.py"),
    tensors=bailing_moe_v2_tensors,
    prediction=Prediction(vllm=(), unknown=NO_MODULE),
)
lineage("bailing_moe", reads=own_keys_grouped(VLLM_MODELS + "bailing_moe.py"), tensors=bailing_moe_v2_tensors)
lineage(
    "sarvam_moe",
    reads=own_keys_grouped(VLLM_MODELS + "sarvam.py (SarvamMoEForCausalLM)"),
    tensors=bailing_moe_v2_tensors,
)
