"""Delta-rule linear attention beside full or latent attention: gated delta net and Kimi delta attention.

Sources: huggingface/transformers 5.23.0, models/{qwen3_next,qwen3_5,qwen4_exp,olmo_hybrid,kimi_linear,
bailing_hybrid,glm5_next}/configuration_*.py.
"""

from __future__ import annotations

from dataclasses import replace

from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.lineages.layers.decoder import ATTENTION, head_dim, num_heads, num_kv_heads
from kvplan.architectures.lineages.layers.latent import MLA, indexer_types, latent, mla, without_indexer
from kvplan.architectures.lineages.layers.recipe import (
    FULL,
    INDEXED,
    LINEAR,
    Parts,
    Recipe,
    by_index,
    every_key,
    given_kinds,
    index_list,
    layers_of,
)
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.families import (
    FullAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    NgramEmbedding,
    SparseIndexer,
)
from kvplan.model import Layer

POSITION_ROWS = 3  # temporal, height and width positions of the tokens (models/qwen4_exp)


def _delta_net(view: ConfigView) -> GatedDeltaNet:
    return GatedDeltaNet(
        num_k_heads=view.integer("linear_num_key_heads"),
        num_v_heads=view.integer("linear_num_value_heads"),
        k_head_dim=view.integer("linear_key_head_dim"),
        v_head_dim=view.integer("linear_value_head_dim"),
        conv_kernel=view.integer("linear_conv_kernel_dim"),
        ssm_dtype=view.word("mamba_ssm_dtype"),
    )


def _delta_layer(view: ConfigView) -> Parts:
    return (_delta_net(view),)


rule("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")(
    Recipe({**ATTENTION, LINEAR: _delta_layer}, every_key("full_attention_interval", 4, LINEAR, FULL))
)


# ------------------------------------------------------------------------------------------- Qwen4-exp


def _ngram(view: ConfigView) -> NgramEmbedding:
    """Layers of ple_layer_ids: a dilated convolution over all streams, and ngram_size - 1 token ids."""
    size = view.integer("ngram_size", lowest=2)
    return NgramEmbedding(
        width=derived(view.integer("hc_count") * view.integer("hidden_size"), "hc_count * hidden_size"),
        conv_columns=derived(
            (view.integer("ple_conv_kernel_size") - 1) * size, "(ple_conv_kernel_size - 1) * ngram_size"
        ),
        context_tokens=derived(size - 1, "ngram_size - 1"),
    )


def _indexed_attention(view: ConfigView) -> Parts:
    """K and V, and the index keys of one head."""
    if (view.optional_integer("indexer_kv_heads") or 1) != 1:
        raise view.refuse("indexer_kv_heads", "more than one index key head cannot be cached")
    return (
        FullAttention(num_kv_heads(view), head_dim(view)),
        SparseIndexer(view.integer("indexer_head_dim")),
    )


def _with_positions(layer: Layer) -> Layer:
    """The three rows of token positions that all indexed layers share lie with the first of them."""
    return Layer(
        tuple(
            replace(part, position_rows=POSITION_ROWS) if isinstance(part, SparseIndexer) else part
            for part in layer.parts
        )
    )


@rule("qwen4_exp_text")
def qwen4_exp(view: ConfigView) -> list[Layer]:
    """ple_layer_ids counts layers from 1."""
    count = view.num_layers()
    pattern = every_key("full_attention_interval", 4, LINEAR, INDEXED)
    kinds = given_kinds(view, count, "layer_types") or pattern(view, count)
    kinds = [INDEXED if kind == FULL else kind for kind in kinds]
    layers = layers_of(view, kinds, {LINEAR: _delta_layer, INDEXED: _indexed_attention})
    if INDEXED in kinds:
        first = kinds.index(INDEXED)
        layers[first] = _with_positions(layers[first])
    for index in sorted(set(index_list(view, "ple_layer_ids", lowest=1) or ())):
        if index > count or kinds[index - 1] != LINEAR:
            raise view.refuse("ple_layer_ids", f"layer {index} is not a linear attention layer")
        layers[index - 1] = Layer((*layers[index - 1].parts, _ngram(view)))
    return layers


# ----------------------------------------------------------------------------------------- OLMo hybrid


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


rule("olmo_hybrid")(
    Recipe(
        {**ATTENTION, LINEAR: _olmo_delta},
        by_index(lambda i, n: FULL if i % 4 == 3 or (n < 4 and i == n - 1) else LINEAR),
    )
)


# ------------------------------------------------------------------------------------------------- KDA


def _kda(view: ConfigView) -> Parts:
    """linear_attn_config of the released files overrides the linear_ keys."""
    own = view.inner("linear_attn_config")
    return (
        KimiDeltaAttention(
            own.optional_integer("num_heads") or view.integer("linear_num_heads"),
            own.optional_integer("head_dim") or view.integer("linear_head_dim"),
            own.optional_integer("short_conv_kernel_size") or view.integer("linear_conv_kernel_dim"),
        ),
    )


def _kimi_linear(view: ConfigView, count: int) -> list[str]:
    """full_attn_layers and kda_layers count from 1 and together name every layer."""
    own = view.inner("linear_attn_config")
    full, linear = index_list(own, "full_attn_layers", lowest=1), index_list(own, "kda_layers", lowest=1)
    if full is None or linear is None:
        return [FULL if index and index % 4 == 0 else LINEAR for index in range(count)]
    kinds = {**dict.fromkeys(full, FULL), **dict.fromkeys(linear, LINEAR)}
    if set(kinds) != set(range(1, count + 1)):
        raise view.refuse(
            "linear_attn_config", f"full_attn_layers and kda_layers do not name the {count} layers once each"
        )
    return [kinds[index] for index in range(1, count + 1)]


rule("kimi_linear")(Recipe({**MLA, LINEAR: _kda}, _kimi_linear))


def _bailing_kda(view: ConfigView) -> Parts:
    """Heads and width are those of attention before the latent replaces them; saved files state them."""
    return (
        KimiDeltaAttention(
            view.optional_integer("linear_num_heads") or num_heads(view),
            view.optional_integer("linear_head_dim") or head_dim(view),
            view.optional_integer("linear_conv_kernel_dim") or view.integer("short_conv_kernel_size"),
        ),
    )


rule("bailing_hybrid")(Recipe({**MLA, LINEAR: _bailing_kda}, every_key("layer_group_size", 1, LINEAR, FULL)))


def _pooled_indexer(view: ConfigView) -> Parts:
    """Each token's index entry is a key, a gate of the same width and a flag (models/glm5_next)."""
    width = derived(2 * view.integer("index_head_dim") + 1, "2 * index_head_dim + 1 (key, gate, flag)")
    return (mla(view), SparseIndexer(width))


rule("glm5_next_text")(
    Recipe(
        {FULL: latent, INDEXED: _pooled_indexer, LINEAR: _kda},
        by_index(lambda i, n: INDEXED if i % 4 == 3 else LINEAR),
        adjust=lambda view, kinds: [INDEXED if kind == FULL else kind for kind in kinds],
        sharing=lambda view, kinds: without_indexer(view, kinds, indexer_types(view, len(kinds))),
    )
)
