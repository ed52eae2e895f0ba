"""Phi 1 to 4.

Sources: huggingface/transformers 5.23.0 models/{phi,phi3,phimoe,phi4_multimodal}; vllm-project/vllm 0.32
vllm/model_executor/models/ phimoe.py; microsoft/Phi-4-mini-flash-reasoning.
"""

from __future__ import annotations

from kvplan.architectures.blocks.custom import width_per_head
from kvplan.architectures.blocks.decoder import plain_decoder
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import MIXTRAL_KEYS
from kvplan.architectures.blocks.parts import LAYER, AttentionNames
from kvplan.architectures.blocks.plain import (
    ANY_BIAS,
    BIAS,
    JOINT,
    JOINT_MLP,
    Plain,
    hidden_size,
    llama_qkv_bias,
)
from kvplan.architectures.config.custom_types import GPT2_NAMES, VLLM_MODELS, CustomType, copy_of, own_keys
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import lineage
from kvplan.families import FullAttention, Mamba1, NoCache, SharedKv, SlidingWindow
from kvplan.model import Layer
from kvplan.record import replace


def phi4flash_layers(view: ConfigView) -> list[Layer]:
    """SambaY: a Mamba and window half, one full-attention layer, then layers that read what was kept.

    With N layers: i % mb_per_layer == 0 is a Mamba-1 layer with a state for i ≤ N/2 and a gated memory
    unit without one above; the others are windowed below N/2, full at N/2 + 1, and above that cross
    layers over the same K and V.
    Source: Ren et al., SambaY (arXiv 2507.06607); microsoft/Phi-4-mini-flash-reasoning
    configuration_phi4flash.py, modeling_phi4flash.py.
    """
    count = view.num_layers()
    every = view.integer("mb_per_layer")
    half = count // 2
    if count % 4:
        raise view.refuse("num_hidden_layers", "SambaY needs a multiple of four")
    kv, width = view.integer("num_key_value_heads"), width_per_head(view)
    inner = view.integer("mamba_expand") * view.integer("hidden_size")
    mamba = Layer(
        (
            Mamba1(
                derived(inner, "mamba_expand * hidden_size"),
                view.integer("mamba_d_state"),
                view.integer("mamba_d_conv"),
            ),
        )
    )
    window = Layer((SlidingWindow(kv, width, view.integer("sliding_window")),))
    full, shared, gated = Layer((FullAttention(kv, width),)), Layer((SharedKv(),)), Layer((NoCache(),))
    layers = []
    for index in range(count):
        if index % every == 0:
            layers.append(mamba if index <= half else gated)
        elif index < half:
            layers.append(window)
        else:
            layers.append(full if index <= half + 1 else shared)
    return layers


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


lineage("phi", block=PHI)
lineage(
    "phi-msft",
    reads=own_keys(
        "microsoft/phi-2 (first release) configuration_phi.py",
        {**GPT2_NAMES, "n_head_kv": "num_key_value_heads"},
    ),
    tensors=PHI,
)
lineage("phi3", block=Plain(names=JOINT, mlp_names=JOINT_MLP, qkv_bias=llama_qkv_bias, o_bias=ANY_BIAS))
lineage("phi4_multimodal", layers=plain_decoder)
lineage(
    "phi4flash",
    reads=CustomType(
        "microsoft/Phi-4-mini-flash-reasoning configuration_phi4flash.py",
        defaults={"mb_per_layer": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2},
    ),
    layers=phi4flash_layers,
)
lineage(
    "phimoe",
    block=Plain(
        frame=Frame(norm=LAYER, head_bias="lm_head_bias", everywhere=True),
        norm=LAYER,
        qkv_bias=BIAS,
        o_bias=BIAS,
        moe=replace(MIXTRAL_KEYS, gate="mlp.router"),
    ),
)
lineage(
    "phi3_v",
    reads=copy_of("phi3", VLLM_MODELS + "phi3v.py (the language model is LlamaForCausalLM on Phi-3's keys)"),
)
