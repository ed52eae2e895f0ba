"""Dense decoders and plain mixtures of experts, by model type."""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.layers.decoder import num_heads
from kvplan.architectures.lineages.tensors.frame import Frame
from kvplan.architectures.lineages.tensors.moe import (
    Moe,
    after_first,
    by_step,
    shared_by_count,
    shared_by_width,
)
from kvplan.architectures.lineages.tensors.parts import LAYER, AttentionNames, Heads, fused
from kvplan.architectures.lineages.tensors.plain import AFTER_NORMS, FOUR_NORMS, HIDDEN_KEYS, Plain
from kvplan.architectures.lineages.tensors.registry import DECODERS

ANY_BIAS = ("attention_bias", "bias")
EVERYWHERE = Frame(everywhere=True)


def _llama_qkv_bias(view: ConfigView) -> bool:
    """qkv_bias where the config has one (internlm3), else attention_bias or bias (llama.py)."""
    if view.given("qkv_bias"):
        return view.flag("qkv_bias")
    return bool(view.get("attention_bias") or view.get("bias"))


def all_heads(view: ConfigView) -> Heads:
    """Multi-head attention: every head has its own key and value, whatever else the config says."""
    count = int(num_heads(view))
    width = int(view.integer(*HIDDEN_KEYS)) // count
    return Heads(count, count, width, width)


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
    "granite": LLAMA,
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
    "baichuan": Plain(frame=EVERYWHERE, names=fused("self_attn", "W_pack", "o_proj"), heads=all_heads),
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
