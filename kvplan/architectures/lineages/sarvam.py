"""Sarvam's latent models, and Param 2: grouped heads or latents, experts with a shared one.

Sources: vllm-project/vllm 0.33 vllm/model_executor/models/{sarvam,param2moe}.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.latent import both_norms, dense_forward, mla_attention
from kvplan.architectures.blocks.moe import CORRECTION, FLOAT32, Moe
from kvplan.architectures.blocks.parts import Tensors, attention
from kvplan.architectures.blocks.plain import QK_LAYERNORM, heads_of, hidden_size
from kvplan.architectures.config.custom_types import VLLM_MODELS, copy_of, own_keys_grouped
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage

SHARED_WIDTH = "moe_shared_expert_intermediate_size"


def _number(view: ConfigView) -> int:
    stated = view.optional_integer("num_shared_experts", default=1, lowest=0)
    return 1 if stated is None else int(stated)


def _each(view: ConfigView) -> int:
    """Every shared expert is as wide as the key says."""
    count = _number(view)
    return count * int(view.integer(SHARED_WIDTH, "moe_intermediate_size")) if count else 0


def _together(view: ConfigView) -> int:
    """The key says how wide the shared experts are together; without it each is an expert's width."""
    count = _number(view)
    if not count:
        return 0
    stated = view.optional_integer(SHARED_WIDTH)
    return int(stated) if stated is not None else count * int(view.integer("moe_intermediate_size"))


def _experts(view: ConfigView, moe: Moe) -> Tensors:
    corrected = view.flag("moe_router_enable_expert_bias", default=True)
    return Moe(
        shared=moe.shared, gate_dtype=moe.gate_dtype, correction=CORRECTION if corrected else ""
    ).tensors(view)


def _decoder(view: ConfigView, mixer: Tensors, moe: Moe, frame: Frame) -> Decoder:
    """A dense start of first_k_dense_replace layers, then experts in every moe_layer_freq-th."""
    stated = view.optional_integer("first_k_dense_replace", default=1, lowest=0)
    first, every = 1 if stated is None else int(stated), int(view.optional_integer("moe_layer_freq") or 1)
    around = both_norms(view)
    dense, sparse = mixer + dense_forward(view) + around, mixer + _experts(view, moe) + around
    count = int(view.num_layers())
    layers = (sparse if index >= first and index % every == 0 else dense for index in range(count))
    return Decoder(frame, tuple(layers))


def sarvam_mla_tensors(view: ConfigView) -> Decoder:
    return _decoder(view, mla_attention(view), Moe(shared=_each), Frame())


def param2_tensors(view: ConfigView) -> Decoder:
    own = attention(
        heads_of(view),
        hidden_size(view),
        names=QK_LAYERNORM,
        qkv_bias=view.flag("use_qkv_bias"),
        o_bias=view.flag("use_bias"),
        qk_norm="head" if view.flag("use_qk_norm") else "",
    )
    return _decoder(view, own, Moe(shared=_together, gate_dtype=FLOAT32), Frame())


lineage(
    "sarvam_mla",
    reads=copy_of("deepseek_v3", VLLM_MODELS + "sarvam.py (SarvamMLAForCausalLM)", inherits=False),
    tensors=sarvam_mla_tensors,
)
lineage("param2moe", reads=own_keys_grouped(VLLM_MODELS + "param2moe.py"), tensors=param2_tensors)
