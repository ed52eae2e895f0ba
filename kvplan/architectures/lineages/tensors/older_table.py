"""Older dense decoders with layer norms, biases and learnt positions, by model type.

Source: vllm-project/vllm vllm/model_executor/models/ (0.32), the file of the architecture; mpt:
mosaicml/mpt-7b modeling_mpt.py (without biases); phi: transformers' class, which vLLM serves as it is.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.layers.decoder import num_heads
from kvplan.architectures.lineages.tensors.dense_table import all_heads
from kvplan.architectures.lineages.tensors.frame import Frame, at
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
    AttentionNames,
    Heads,
    fused,
    linear,
    norm,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import HIDDEN_KEYS, Plain, hidden_size
from kvplan.architectures.lineages.tensors.registry import DECODERS
from kvplan.weights.inventory import Place, Placed


def _four_times(view: ConfigView) -> int:
    """n_inner (or ffn_hidden_size) where stated, else 4 × hidden_size."""
    return int(view.optional_integer("n_inner", "ffn_hidden_size") or 4 * view.integer(*HIDDEN_KEYS))


def _falcon_heads(view: ConfigView) -> Heads:
    """One KV head under multi_query, num_kv_heads in the newer architecture, else one for each head."""
    count = int(num_heads(view))
    kv = count
    if view.flag("new_decoder_architecture"):
        kv = int(view.optional_integer("num_kv_heads") or count)
    elif view.flag("multi_query", default=True):
        kv = 1
    width = int(view.integer("hidden_size")) // count
    return Heads(count, kv, width, width)


def _falcon_norms(view: ConfigView) -> tuple[str, ...]:
    if not view.flag("parallel_attn", default=True):
        return ("input_layernorm", "post_attention_layernorm")
    number = view.optional_integer("num_ln_in_parallel_attn")
    if number is None and view.flag("new_decoder_architecture"):
        number = 2
    return ("ln_attn", "ln_mlp") if number == 2 else ("input_layernorm",)


def _bigcode_heads(view: ConfigView) -> Heads:
    count = int(num_heads(view))
    width = int(view.integer(*HIDDEN_KEYS)) // count
    return Heads(count, 1 if view.flag("multi_query", default=True) else count, width, width)


def _chatglm_heads(view: ConfigView) -> Heads:
    count = int(num_heads(view))
    kv = int(view.integer("multi_query_group_num")) if view.flag("multi_query_attention") else count
    width = int(view.optional_integer("kv_channels") or view.integer("hidden_size") // count)
    return Heads(count, kv, width, width)


def _gpt_neox_head_bias(view: ConfigView) -> bool:
    return view.flag("attention_bias", default=True)


def _opt_projections(view: ConfigView) -> list[Placed]:
    """project_in and project_out where the embedding is narrower than the model."""
    narrow, wide = view.integer("word_embed_proj_dim", "hidden_size"), view.integer("hidden_size")
    if narrow == wide:
        return []
    model, table = whole("hidden_size", int(wide)), whole("word_embed_proj_dim", int(narrow))
    made = linear("model.decoder.project_in", model, table)
    return at(Place.EVERY, made + linear("model.decoder.project_out", table, model))


OPT = Frame(
    layers="model.decoder.layers",
    embed="model.decoder.embed_tokens",
    final_norm="model.decoder.final_layer_norm",
    norm=LAYER,
    positions=("model.decoder.embed_positions", "max_position_embeddings", 2),
    everywhere=True,
    embed_width=("word_embed_proj_dim", "hidden_size"),
    final_norm_if=lambda view: (
        view.flag("do_layer_norm_before", default=True) and not view.flag("_remove_final_layer_norm")
    ),
    extra=_opt_projections,
)
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
NEOX_MLP = ("", "dense_h_to_4h", "dense_4h_to_h")


def _bloom_norm(view: ConfigView) -> list[Placed]:
    name = "transformer.word_embeddings_layernorm"
    return at(Place.EVERY, norm(name, whole("hidden_size", hidden_size(view)), kind=LAYER))


PHI = Plain(
    frame=Frame(final_norm="model.final_layernorm", norm=LAYER, head_bias=True),
    norm=LAYER,
    norms=("input_layernorm",),
    names=AttentionNames(output="self_attn.dense"),
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    gated=False,
    mlp_names=("", "fc1", "fc2"),
    width_of=lambda view: int(view.optional_integer("n_inner", "intermediate_size") or 4 * hidden_size(view)),
)
OLDER: dict[str, Plain] = {
    "stablelm": Plain(
        frame=Frame(everywhere=True, norm=LAYER),
        norm=LAYER,
        qkv_bias="use_qkv_bias",
    ),
    "starcoder2": Plain(
        frame=Frame(norm=LAYER),
        norm=LAYER,
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        gated=False,
        mlp_names=GPT2_MLP,
    ),
    "gpt2": Plain(
        frame=GPT2,
        norm=LAYER,
        norms=("ln_1", "ln_2"),
        names=fused("attn", "c_attn", "c_proj"),
        heads=all_heads,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated=False,
        mlp_names=GPT2_MLP,
        width_of=_four_times,
    ),
    "gpt_bigcode": Plain(
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
        width_of=_four_times,
    ),
    "gpt_neox": Plain(
        frame=Frame(
            layers="gpt_neox.layers",
            embed="gpt_neox.embed_in",
            final_norm="gpt_neox.final_layer_norm",
            head="embed_out",
            norm=LAYER,
        ),
        norm=LAYER,
        names=fused("attention", "query_key_value", "dense"),
        heads=all_heads,
        qkv_bias=_gpt_neox_head_bias,
        o_bias=_gpt_neox_head_bias,
        mlp_bias=True,
        gated=False,
        mlp_names=NEOX_MLP,
    ),
    "gptj": Plain(
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
        heads=all_heads,
        mlp_bias=True,
        gated=False,
        mlp_names=("", "fc_in", "fc_out"),
        width_of=_four_times,
    ),
    "falcon": Plain(
        frame=Frame(
            layers="transformer.h",
            embed="transformer.word_embeddings",
            final_norm="transformer.ln_f",
            norm=LAYER,
            everywhere=True,
        ),
        norm=LAYER,
        norms=_falcon_norms,
        names=fused("self_attention", "query_key_value", "dense"),
        heads=_falcon_heads,
        qkv_bias="bias",
        o_bias="bias",
        mlp_bias="bias",
        gated=False,
        mlp_names=NEOX_MLP,
        width_of=_four_times,
    ),
    "chatglm": Plain(
        frame=Frame(
            layers="transformer.encoder.layers",
            embed="transformer.embedding.word_embeddings",
            final_norm="transformer.encoder.final_layernorm",
            head="transformer.output_layer",
            vocabulary=("padded_vocab_size",),
            everywhere=True,
        ),
        names=fused("self_attention", "query_key_value", "dense"),
        heads=_chatglm_heads,
        qkv_bias=("add_bias_linear", "add_qkv_bias"),
        o_bias="add_bias_linear",
        mlp_bias="add_bias_linear",
        mlp_names=("dense_h_to_4h", "dense_h_to_4h", "dense_4h_to_h"),
        width=("ffn_hidden_size",),
    ),
    "opt": Plain(
        frame=OPT,
        norm=LAYER,
        norms=("self_attn_layer_norm", "final_layer_norm"),
        names=AttentionNames(output="self_attn.out_proj"),
        heads=all_heads,
        qkv_bias="enable_bias",
        o_bias="enable_bias",
        mlp="",
        mlp_bias="enable_bias",
        gated=False,
        mlp_names=("", "fc1", "fc2"),
        width=("ffn_dim",),
    ),
    "bloom": Plain(
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
        heads=all_heads,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated=False,
        mlp_names=NEOX_MLP,
        width_of=lambda view: 4 * hidden_size(view),
    ),
    "phi": PHI,
    "phi-msft": PHI,
    "mpt": Plain(
        frame=Frame(
            layers="transformer.blocks", embed="transformer.wte", final_norm="transformer.norm_f", tied=True
        ),
        norms=("norm_1", "norm_2"),
        names=fused("attn", "Wqkv", "out_proj"),
        heads=all_heads,
        gated=False,
        mlp="ffn",
        mlp_names=("", "up_proj", "down_proj"),
        width_of=lambda view: int(
            view.number("expansion_ratio", default=4, lowest=1e-3, highest=1e3) * hidden_size(view)
        ),
    ),
}
DECODERS.update(OLDER)
