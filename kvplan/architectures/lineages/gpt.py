"""GPT-2's kin: learnt positions, layer norms, biases (GPT-2, Neo, NeoX, J, BigCode, BLOOM, MPT, StarCoder2).

Sources: vllm-project/vllm 0.32 vllm/model_executor/models/, the file of the architecture; mpt:
mosaicml/mpt-7b modeling_mpt.py (without biases); huggingface/transformers 5.23.0 models/<type>/ for the
others.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import hidden_per_head, num_heads, plain_decoder, uniform
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import (
    LAYER,
    AttentionNames,
    Heads,
    attention,
    fused,
    mlp,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import (
    HIDDEN_KEYS,
    NEOX_MLP,
    TWO_NORMS,
    Plain,
    four_times,
    hidden_size,
    unshared_heads,
)
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer
from kvplan.record import replace
from kvplan.weights.inventory import Place, Placed


def gpt_bigcode_layers(view: ConfigView) -> list[Layer]:
    """multi_query: one KV head."""
    kv = derived(1, "multi_query") if view.flag("multi_query") else num_heads(view)
    return uniform(view, FullAttention(kv, hidden_per_head(view)))


def _four_times(view: ConfigView) -> int:
    return int(view.optional_integer("n_inner", "intermediate_size") or 4 * hidden_size(view))


def gpt_neox_japanese_tensors(view: ConfigView) -> Decoder:
    """No biases but one behind the last layer's attention."""
    hidden = hidden_size(view)
    inner = int(view.factor("intermediate_multiple_size", 4) * hidden)
    layer = attention(unshared_heads(view), hidden, names=fused("attention", "query_key_value", "dense"))
    layer += mlp("mlp", hidden, inner, gated=False, names=NEOX_MLP)
    layer += norms(TWO_NORMS, whole("hidden_size", hidden), LAYER)
    last = layer + vector("attention.dense_bias", whole("hidden_size", hidden))
    frame = Frame(
        layers="gpt_neox_japanese.layers",
        embed="gpt_neox_japanese.embed_in",
        final_norm="gpt_neox_japanese.final_layer_norm",
        norm=LAYER,
        head="embed_out",
    )
    return Decoder(frame, (layer,) * (int(view.num_layers()) - 1) + (last,))


def _bigcode_heads(view: ConfigView) -> Heads:
    count = int(num_heads(view))
    width = int(view.integer(*HIDDEN_KEYS)) // count
    return Heads(count, 1 if view.flag("multi_query", default=True) else count, width, width)


def _gpt_neox_head_bias(view: ConfigView) -> bool:
    return view.flag("attention_bias", default=True)


GPT2 = Frame(
    layers="transformer.h",
    embed="transformer.wte",
    final_norm="transformer.ln_f",
    norm=LAYER,
    positions=("transformer.wpe", "n_positions", 0),
    everywhere=True,
    tied=True,
)

GPT2_MLP = ("", "c_fc", "c_proj")


def _bloom_norm(view: ConfigView) -> list[Placed]:
    name = "transformer.word_embeddings_layernorm"
    return at(Place.EVERY, norm(name, whole("hidden_size", hidden_size(view)), kind=LAYER))


GPT2_ROW = Plain(
    frame=GPT2,
    norm=LAYER,
    norms=("ln_1", "ln_2"),
    names=fused("attn", "c_attn", "c_proj"),
    heads=unshared_heads,
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    gated=False,
    mlp_names=GPT2_MLP,
    width_of=four_times,
)

GPTJ_ROW = Plain(
    frame=Frame(
        layers="transformer.h",
        embed="transformer.wte",
        final_norm="transformer.ln_f",
        norm=LAYER,
        head_bias=True,
        everywhere=True,
    ),
    norm=LAYER,
    norms=("ln_1",),
    names=AttentionNames("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj"),
    heads=unshared_heads,
    mlp_bias=True,
    gated=False,
    mlp_names=("", "fc_in", "fc_out"),
    width_of=four_times,
)


lineage("gpt2", block=GPT2_ROW)
lineage("gpt-sw3", block=replace(GPT2_ROW, frame=replace(GPT2_ROW.frame, tied="tie_word_embeddings")))
lineage(
    "gpt_neo",
    block=replace(
        GPT2_ROW,
        frame=replace(
            GPT2_ROW.frame,
            tied="tie_word_embeddings",
            positions=("transformer.wpe", "max_position_embeddings", 0),
        ),
        names=AttentionNames(
            "attn.attention.q_proj",
            "attn.attention.k_proj",
            "attn.attention.v_proj",
            "attn.attention.out_proj",
        ),
        qkv_bias=False,
        width_of=_four_times,
    ),
)
lineage(
    "gpt_neox",
    block=Plain(
        frame=Frame(
            layers="gpt_neox.layers",
            embed="gpt_neox.embed_in",
            final_norm="gpt_neox.final_layer_norm",
            head="embed_out",
            norm=LAYER,
        ),
        norm=LAYER,
        names=fused("attention", "query_key_value", "dense"),
        heads=unshared_heads,
        qkv_bias=_gpt_neox_head_bias,
        o_bias=_gpt_neox_head_bias,
        mlp_bias=True,
        gated=False,
        mlp_names=NEOX_MLP,
    ),
)
lineage("gpt_neox_japanese", layers=plain_decoder, tensors=gpt_neox_japanese_tensors)
lineage(
    "gpt_bigcode",
    layers=gpt_bigcode_layers,
    block=Plain(
        frame=Frame(
            layers="transformer.h",
            embed="transformer.wte",
            final_norm="transformer.ln_f",
            norm=LAYER,
            positions=("transformer.wpe", "n_positions", 0),
        ),
        norm=LAYER,
        norms=("ln_1", "ln_2"),
        names=fused("attn", "c_attn", "c_proj"),
        heads=_bigcode_heads,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated=False,
        mlp_divided=False,
        mlp_names=GPT2_MLP,
        width_of=four_times,
    ),
)
lineage("gptj", block=GPTJ_ROW)
lineage("codegen", block=replace(GPTJ_ROW, names=fused("attn", "qkv_proj", "out_proj")))
lineage(
    "bloom",
    block=Plain(
        frame=Frame(
            layers="transformer.h",
            embed="transformer.word_embeddings",
            final_norm="transformer.ln_f",
            norm=LAYER,
            tied=True,
            everywhere=True,
            width=("hidden_size", "n_embed"),
            extra=_bloom_norm,
        ),
        norm=LAYER,
        names=fused("self_attention", "query_key_value", "dense"),
        heads=unshared_heads,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated=False,
        mlp_names=NEOX_MLP,
        width_of=lambda view: 4 * hidden_size(view),
    ),
)
lineage(
    "mpt",
    block=Plain(
        frame=Frame(
            layers="transformer.blocks", embed="transformer.wte", final_norm="transformer.norm_f", tied=True
        ),
        norms=("norm_1", "norm_2"),
        names=fused("attn", "Wqkv", "out_proj"),
        heads=unshared_heads,
        gated=False,
        mlp="ffn",
        mlp_names=("", "up_proj", "down_proj"),
        width_of=lambda view: int(
            view.number("expansion_ratio", default=4, lowest=1e-3, highest=1e3) * hidden_size(view)
        ),
    ),
)
lineage(
    "starcoder2",
    block=Plain(
        frame=Frame(norm=LAYER),
        norm=LAYER,
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        gated=False,
        mlp_names=GPT2_MLP,
    ),
)
