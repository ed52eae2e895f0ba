"""Dense decoders and plain mixtures of experts, by model type."""

from __future__ import annotations

from kvplan.readers.rules.decoder import num_heads
from kvplan.readers.view import ConfigView
from kvplan.readers.weights_rules.frame import Frame, at
from kvplan.readers.weights_rules.moe import (
    Moe,
    after_first,
    by_step,
    shared_by_count,
    shared_by_width,
)
from kvplan.readers.weights_rules.parts import LAYER, AttentionNames, Heads, fused, linear, whole
from kvplan.readers.weights_rules.plain import AFTER_NORMS, FOUR_NORMS, HIDDEN_KEYS, Plain
from kvplan.readers.weights_rules.registry import DECODERS
from kvplan.weights.inventory import Place, Placed

ANY_BIAS = ("attention_bias", "bias")
EVERYWHERE = Frame(everywhere=True)


def _four_times(view: ConfigView) -> int:
    """n_inner (or ffn_hidden_size) where stated, else 4 × hidden_size."""
    return int(view.optional_integer("n_inner", "ffn_hidden_size") or 4 * view.integer(*HIDDEN_KEYS))


def _llama_qkv_bias(view: ConfigView) -> bool:
    """qkv_bias where the config has one (internlm3), else attention_bias or bias (llama.py)."""
    if view.given("qkv_bias"):
        return view.flag("qkv_bias")
    return bool(view.get("attention_bias") or view.get("bias"))


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


def _all_heads(view: ConfigView) -> Heads:
    """Multi-head attention: every head has its own key and value, whatever else the config says."""
    count = int(num_heads(view))
    width = int(view.integer(*HIDDEN_KEYS)) // count
    return Heads(count, count, width, width)


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
INTERNLM2 = AttentionNames("attention.wqkv", "attention.wqkv", "attention.wqkv", "attention.wo")
JOINT = fused("self_attn", "qkv_proj", "o_proj")
JOINT_MLP = ("gate_up_proj", "gate_up_proj", "down_proj")
STEP_MOE = Moe(
    layer_is_sparse=by_step,
    shared=shared_by_width("shared_expert_intermediate_size"),
    shared_path="mlp.shared_expert",
    shared_gate="mlp.shared_expert_gate",
)
GLM_MOE = Moe(
    count=("n_routed_experts",),
    layer_is_sparse=after_first,
    gate_dtype="float32",
    correction="mlp.gate.e_score_correction_bias",
    shared=shared_by_count("n_shared_experts"),
)

LLAMA = Plain(qkv_bias=_llama_qkv_bias, o_bias=ANY_BIAS, mlp_bias="mlp_bias")
PLAIN: dict[str, Plain] = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "ministral3": LLAMA,
    "yi": LLAMA,
    "internlm": LLAMA,
    "internlm3": LLAMA,
    "seed_oss": Plain(qkv_bias="attention_bias", o_bias="attention_out_bias", mlp_bias="mlp_bias"),
    "smollm3": Plain(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "glm": Plain(qkv_bias="attention_bias", mlp_names=JOINT_MLP),
    "qwen2": Plain(qkv_bias=True, qk_norm="head", qk_norm_if="qk_norm"),
    "mimo": Plain(qkv_bias=True, qk_norm="head", qk_norm_if="qk_norm"),
    "qwen3": Plain(qkv_bias="attention_bias", qk_norm="head"),
    "gemma": Plain(frame=EVERYWHERE),
    "gemma2": Plain(frame=EVERYWHERE, norms=FOUR_NORMS, qkv_bias="attention_bias", o_bias="attention_bias"),
    "gemma3_text": Plain(
        frame=EVERYWHERE,
        norms=FOUR_NORMS,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="head",
    ),
    "cohere": Plain(
        frame=Frame(everywhere=True, tied=True),
        norms=("input_layernorm",),
        qk_norm="per_head",
        qk_norm_if="use_qk_norm",
    ),
    "cohere2": Plain(frame=Frame(everywhere=True, tied=True), norms=("input_layernorm",)),
    "exaone4": Plain(
        norms=AFTER_NORMS, qkv_bias=ANY_BIAS, o_bias=ANY_BIAS, mlp_bias="mlp_bias", qk_norm="head"
    ),
    "olmo2": Plain(norms=AFTER_NORMS, qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full"),
    "olmo3": Plain(norms=AFTER_NORMS, qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full"),
    "phi3": Plain(names=JOINT, mlp_names=JOINT_MLP, qkv_bias=_llama_qkv_bias, o_bias=ANY_BIAS),
    "internlm2": Plain(
        frame=Frame(embed="model.tok_embeddings", head="output", everywhere=True),
        names=INTERNLM2,
        mlp="feed_forward",
        mlp_names=("w1", "w3", "w2"),
        norms=("attention_norm", "ffn_norm"),
        qkv_bias="bias",
        o_bias="bias",
    ),
    "orion": Plain(frame=Frame(everywhere=True, norm=LAYER), norm=LAYER),
    "baichuan": Plain(frame=EVERYWHERE, names=fused("self_attn", "W_pack", "o_proj"), heads=_all_heads),
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
        heads=_all_heads,
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
        heads=_all_heads,
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
        heads=_all_heads,
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
        heads=_all_heads,
        qkv_bias="enable_bias",
        o_bias="enable_bias",
        mlp="",
        mlp_bias="enable_bias",
        gated=False,
        mlp_names=("", "fc1", "fc2"),
        width=("ffn_dim",),
    ),
    "mixtral": Plain(
        frame=EVERYWHERE,
        moe=Moe(
            experts="block_sparse_moe.experts",
            gate="block_sparse_moe.gate",
            count=("num_local_experts",),
            width=("intermediate_size",),
        ),
    ),
    "olmoe": Plain(frame=EVERYWHERE, qk_norm="full", moe=Moe(width=("intermediate_size",))),
    "qwen2_moe": Plain(
        frame=EVERYWHERE,
        qkv_bias="qkv_bias",
        moe=STEP_MOE,
    ),
    "qwen3_moe": Plain(
        frame=EVERYWHERE,
        qkv_bias="attention_bias",
        qk_norm="head",
        moe=STEP_MOE,
    ),
    "glm4_moe": Plain(qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm", moe=GLM_MOE),
    "glm4v_moe_text": Plain(qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm", moe=GLM_MOE),
    "dots1": Plain(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="head",
        moe=Moe(
            count=("n_routed_experts",),
            layer_is_sparse=after_first,
            shared=shared_by_count("n_shared_experts"),
        ),
    ),
    "minimax_m2": Plain(
        qkv_bias="attention_bias",
        qk_norm="full_divided",
        moe=Moe(
            experts="block_sparse_moe.experts",
            gate="block_sparse_moe.gate",
            count=("num_local_experts",),
            width=("intermediate_size",),
            gate_dtype="float32",
            correction="block_sparse_moe.e_score_correction_bias",
            correction_if="use_routing_bias",
        ),
    ),
}
# Types whose tensors are those of another one.
SAME = {
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
DECODERS.update(PLAIN)
DECODERS.update({name: PLAIN[like] for name, like in SAME.items()})
