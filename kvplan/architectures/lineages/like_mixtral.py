"""Mixtures of experts of other labs: a row, or a little more than a row.

Sources: huggingface/transformers 5.23.0 models/<type>/modeling_<type>.py. Routers and correction biases in
float32 where vllm-project/vllm 0.32 keeps them so (afmoe.py).
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, num_heads, one_kind
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.latent import (
    DSA,
    MLA,
    both_norms,
    dense_mla_tensors,
    indexer,
    mla_attention,
    routed_forward,
    routed_here,
)
from kvplan.architectures.blocks.moe import (
    CORRECTION,
    FLOAT32,
    GLM_MOE,
    STEP_MOE,
    Moe,
    after_dense,
    by_types_or,
    shared_by_count,
    shared_by_width,
)
from kvplan.architectures.blocks.parts import Tensors, even, keyed, linear, norm, vector, whole
from kvplan.architectures.blocks.plain import (
    BIAS,
    EVERYWHERE,
    FOUR_NORMS,
    TWO_NORMS,
    Plain,
    heads_of,
    hidden_size,
    sinks,
)
from kvplan.architectures.blocks.recipe import (
    FULL,
    INDEXED,
    SLIDING,
    Recipe,
    all_of,
    by_index,
    every,
    every_key,
)
from kvplan.architectures.config.custom_types import own_keys_grouped
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.record import replace


def axk1_tensors(view: ConfigView) -> Decoder:
    """DeepSeek's layers with a norm behind the experts."""
    mixer = mla_attention(view, bias=view.flag(BIAS)) + both_norms(view)
    after = norm("mlp.post_mlp_layernorm", whole("hidden_size", hidden_size(view)))
    made = {
        True: mixer + routed_forward(view, sparse=True) + after,
        False: mixer + routed_forward(view, sparse=False),
    }
    return Decoder(Frame(), tuple(made[routed_here(view, index)] for index in range(int(view.num_layers()))))


def _gated_norm(view: ConfigView, name: str) -> Tensors:
    model, rank = whole("hidden_size", hidden_size(view)), keyed(view, "gated_norm_rank")
    made = norm(f"{name}.norm", model) + linear(f"{name}.mlp.fc1", rank, model)
    return made + linear(f"{name}.mlp.fc2", model, rank)


def axk2_tensors(view: ConfigView) -> Decoder:
    """Query and output gate from two latents side by side, an indexer, norms with a low-rank gate."""
    model, heads = whole("hidden_size", hidden_size(view)), even("num_attention_heads", int(num_heads(view)))
    rank, value = keyed(view, "q_lora_rank"), int(view.integer("v_head_dim"))
    width = int(view.integer("qk_nope_head_dim", lowest=0)) + int(view.integer("qk_rope_head_dim", lowest=0))
    attends = tuple(
        tensor for tensor in mla_attention(view, bias=view.flag(BIAS)) if "q_b_proj" not in tensor.name
    )
    attends += linear(
        "self_attn.q_gate_proj", (heads, whole("query and gate", width + value)), (whole("latents", 2), rank)
    )
    attends += indexer(view) + _gated_norm(view, "input_layernorm")
    made = {
        True: attends + _gated_norm(view, "post_attention_layernorm") + routed_forward(view, sparse=True),
        False: attends + norm("post_attention_layernorm", model) + routed_forward(view, sparse=False),
    }
    return Decoder(Frame(), tuple(made[routed_here(view, index)] for index in range(int(view.num_layers()))))


def _gate(view: ConfigView) -> Tensors:
    heads = heads_of(view)
    wide = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
    return linear("self_attn.gate_proj", wide, whole("hidden_size", hidden_size(view)))


def _gate_and_bias(view: ConfigView) -> Tensors:
    return _gate(view) + vector("self_attn.gate_bias", even("num_attention_heads", heads_of(view).count))


lineage("solar_open", block=Plain(qkv_bias=BIAS, qk_norm="head", qk_norm_if="use_qk_norm", moe=GLM_MOE))
lineage(
    "mellum",
    layers=Recipe(ATTENTION, all_of(FULL)),
    block=Plain(
        frame=EVERYWHERE,
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        moe=Moe(layer_is_sparse=STEP_MOE.layer_is_sparse),
    ),
)
lineage(
    "afmoe",
    layers=Recipe(ATTENTION, every_key("global_attn_every_n_layers", 4, SLIDING, FULL)),
    block=Plain(
        norms=(*TWO_NORMS, "pre_mlp_layernorm", "post_mlp_layernorm"),
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        more=_gate,
        moe=Moe(
            gate="mlp.router.gate",
            gate_dtype=FLOAT32,
            layer_is_sparse=after_dense,
            correction="mlp.expert_bias",
            shared=shared_by_count("num_shared_experts"),
        ),
    ),
)
lineage(
    "beam",
    layers=Recipe(ATTENTION, by_index(lambda i, n: SLIDING if (i + 1) % 6 and i < n - 1 else FULL)),
    block=Plain(
        norms=FOUR_NORMS,
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        more=_gate_and_bias,
        moe=Moe(layer_is_sparse=by_types_or(3), gate_dtype=FLOAT32, correction=CORRECTION),
    ),
)
lineage(
    "flint",
    layers=Recipe(ATTENTION, by_index(lambda i, n: FULL if i < 2 or i % 4 == 1 or i == n - 1 else SLIDING)),
    block=Plain(
        frame=EVERYWHERE,
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        more=lambda view: tuple(replace(one, dtype=FLOAT32) for one in sinks(view)),
        moe=Moe(
            layer_is_sparse=STEP_MOE.layer_is_sparse,
            shared=shared_by_width("shared_expert_intermediate_size"),
            shared_path="mlp.shared_expert",
        ),
    ),
)
lineage(
    "kolibri1",
    layers=Recipe(ATTENTION, every(5, SLIDING, FULL)),
    block=Plain(
        norms=(*TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
        qk_norm="head",
        moe=Moe(
            count=("num_experts", "num_local_experts"),
            correction=CORRECTION,
            shared=shared_by_width("shared_expert_intermediate_size"),
        ),
    ),
)
lineage(
    "aria_text",
    block=Plain(
        qkv_bias=BIAS,
        o_bias=BIAS,
        mlp_bias="mlp_bias",
        moe=Moe(
            gate="mlp.router",
            count=("moe_num_experts",),
            width=("intermediate_size",),
            shared=shared_by_count("moe_num_shared_experts", width="intermediate_size"),
            shared_bias="mlp_bias",
        ),
    ),
)
lineage("axk1", layers=Recipe(MLA, one_kind), tensors=axk1_tensors)
lineage("axk2", layers=Recipe(DSA, all_of(INDEXED)), tensors=axk2_tensors)
lineage("youtu", layers=Recipe(MLA, one_kind), tensors=dense_mla_tensors)
lineage("arctic", reads=own_keys_grouped("Snowflake/snowflake-arctic-instruct modeling_arctic.py"))
lineage("grok-1", reads=own_keys_grouped("keyfan/grok-1-hf configuration_grok1.py; hpcai-tech/grok-1"))
lineage("grok1", reads=own_keys_grouped("keyfan/grok-1-hf configuration_grok1.py"))
