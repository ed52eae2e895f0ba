"""OLMo 1 to 3, OLMoE, FlexOlmo and OLMo Hybrid.

Sources: huggingface/transformers 5.23.0 models/{olmo,olmo2,olmo3,olmoe,flex_olmo,olmo_hybrid};
vllm-project/vllm 0.32 vllm/model_executor/models/olmo2.py, olmoe.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, num_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import Moe
from kvplan.architectures.blocks.parts import (
    Tensors,
    attention,
    even,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import (
    AFTER_NORMS,
    BIAS,
    EVERYWHERE,
    NONE,
    TWO_NORMS,
    Plain,
    heads_of,
    hidden_size,
)
from kvplan.architectures.blocks.recipe import FULL, LINEAR, SLIDING, Parts, Recipe, by_index, every
from kvplan.architectures.blocks.words import by_word, layer_words
from kvplan.architectures.config.custom_types import VLLM_MODELS, own_keys
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import GatedDeltaNet


def _olmo_delta(view: ConfigView) -> Parts:
    """Sizes that are not given follow from the attention heads and hidden_size."""
    k_heads = view.optional_integer("linear_num_key_heads") or num_heads(view)
    k_dim = view.optional_integer("linear_key_head_dim") or derived(
        int(0.75 * view.integer("hidden_size") / k_heads), "0.75 * hidden_size / linear_num_key_heads"
    )
    v_dim = view.optional_integer("linear_value_head_dim") or derived(2 * k_dim, "2 * linear_key_head_dim")
    return (
        GatedDeltaNet(
            num_k_heads=k_heads,
            num_v_heads=view.optional_integer("linear_num_value_heads") or num_heads(view),
            k_head_dim=k_dim,
            v_head_dim=v_dim,
            conv_kernel=view.integer("linear_conv_kernel_dim"),
        ),
    )


def olmo_hybrid_tensors(view: ConfigView) -> Decoder:
    """Gated delta nets with projections of their own, norms before; attention with norms after."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    words = layer_words(view, "layer_types")
    if words is None:
        raise view.missing("layer_types")
    keys = even("linear_num_key_heads", int(view.integer("linear_num_key_heads")))
    values = even("linear_num_value_heads", int(view.integer("linear_num_value_heads")))
    key = (keys, keyed(view, "linear_key_head_dim"))
    value = (values, keyed(view, "linear_value_head_dim"))
    path, kernel = "linear_attn", keyed(view, "linear_conv_kernel_dim")
    delta: Tensors = ()
    for name, rows in (("q_proj", key), ("k_proj", key), ("v_proj", value), ("g_proj", value)):
        delta += linear(f"{path}.{name}", rows, model)
    for name in ("a_proj", "b_proj"):
        delta += linear(f"{path}.{name}", values, model)
    delta += vector(f"{path}.conv1d", whole("query and key", 2), *key, kernel)
    delta += vector(f"{path}.conv1d", *value, kernel) + norm(f"{path}.o_norm", value[1])
    delta += vector(f"{path}.A_log", values, dtype="float32") + vector(f"{path}.dt_bias", values)
    delta += linear(f"{path}.o_proj", model, value) + norms(TWO_NORMS, model)
    bias = view.flag(BIAS)
    full = attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias, qk_norm="full")
    full += norms(AFTER_NORMS, model)
    forward = mlp("mlp", hidden, int(view.integer("intermediate_size")))
    mixers = {LINEAR: delta, FULL: full}
    for word in words:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
    return Decoder(Frame(), by_word(words, lambda word: mixers[word] + forward))


lineage("olmo", block=Plain(frame=Frame(norm=NONE), norm=NONE, qkv_bias=BIAS, o_bias=BIAS))
lineage(
    "olmo2",
    block=Plain(norms=AFTER_NORMS, qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full"),
)
lineage(
    "olmo3",
    layers=Recipe(ATTENTION, every(4, SLIDING, FULL)),
    block=Plain(norms=AFTER_NORMS, qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full"),
)
lineage("olmoe", block=Plain(frame=EVERYWHERE, qk_norm="full", moe=Moe(width=("intermediate_size",))))
lineage(
    "flex_olmo",
    block=Plain(
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="full",
        moe=Moe(width=("intermediate_size",)),
    ),
)
lineage(
    "olmo_hybrid",
    layers=Recipe(
        {**ATTENTION, LINEAR: _olmo_delta},
        by_index(lambda i, n: FULL if i % 4 == 3 or (n < 4 and i == n - 1) else LINEAR),
    ),
    tensors=olmo_hybrid_tensors,
)
lineage("molmo", reads=own_keys(VLLM_MODELS + "molmo.py"))
