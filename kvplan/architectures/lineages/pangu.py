"""openPangu: Embedded (plain), Ultra MoE (latents), Pro MoE V2 (grouped heads with stored sinks).

Source: vllm-project/vllm 0.33 vllm/model_executor/models/openpangu.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.custom import every_layer
from kvplan.architectures.blocks.decoder import num_heads, num_kv_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.latent import dense_forward, mla_attention
from kvplan.architectures.blocks.moe import CORRECTION, Moe, shared_by_count
from kvplan.architectures.blocks.parts import Heads, Tensors, attention, norm, norms, vector, whole
from kvplan.architectures.blocks.plain import ANY_BIAS, TWO_NORMS, Plain, hidden_size
from kvplan.architectures.config.custom_types import (
    VLLM_MODELS,
    CustomType,
    copy_of,
    own_keys_grouped,
)
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.prediction import Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer
from kvplan.weights.inventory import Dim, Split

SANDWICH = ("pre_mlp_layernorm", "post_mlp_layernorm")


def pro_layers(view: ConfigView) -> list[Layer]:
    """Keys are qk_nope_dim + qk_rope_dim wide, values v_channels.

    The sinks' keys and values (param_sink_number) lie in blocks that are the server's, not a request's.
    """
    if view.get("interleaved_sliding_window") is not None:
        raise view.refuse("interleaved_sliding_window", "how sinks lie beside windows is not known")
    width, value = _widths(view)
    return every_layer(view, FullAttention(num_kv_heads(view), width, value))


def _widths(view: ConfigView) -> tuple[int, int]:
    key = derived(view.integer("qk_nope_dim") + view.integer("qk_rope_dim"), "qk_nope_dim + qk_rope_dim")
    return key, view.integer("v_channels")


def pro_tensors(view: ConfigView) -> Decoder:
    hidden, (width, value) = hidden_size(view), _widths(view)
    heads = Heads(int(num_heads(view)), int(num_kv_heads(view)), int(width), int(value))
    bias = bool(view.get(*ANY_BIAS))
    own = attention(
        heads, hidden, qkv_bias=view.flag("qkv_bias") if view.given("qkv_bias") else bias, o_bias=bias
    )
    own += norm("self_attn.k_layernorm", whole("head_dim", heads.width))
    sinks = int(view.optional_integer("param_sink_number", default=0, lowest=0) or 0)
    if not sinks:
        raise view.missing("param_sink_number")
    kv = Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT)
    count = whole("param_sink_number", sinks)
    own += vector("self_attn.param_sink_key", count, kv, whole("head_dim", heads.width))
    if view.flag("param_sink_with_value"):
        own += vector("self_attn.param_sink_value", count, kv, whole("v_channels", heads.value_width))
    return _decoder(view, own)


def ultra_tensors(view: ConfigView) -> Decoder:
    return _decoder(view, mla_attention(view))


def _decoder(view: ConfigView, own: Tensors) -> Decoder:
    """A dense start, then experts; two norms more around the perceptron with sandwich_norm."""
    model = whole("hidden_size", hidden_size(view))
    around = norms((*TWO_NORMS, *(SANDWICH if view.flag("sandwich_norm") else ())), model)
    moe = Moe(
        count=("n_routed_experts",),
        correction=CORRECTION if view.flag("router_enable_expert_bias") else "",
        shared=shared_by_count("n_shared_experts"),
    )
    routed = view.get("n_routed_experts") is not None
    first = int(view.integer("first_k_dense_replace", lowest=0)) if routed else 0
    dense = own + dense_forward(view, bias=view.flag("mlp_bias")) + around
    sparse = own + moe.tensors(view) + around if routed else dense
    count = int(view.num_layers())
    return Decoder(Frame(), tuple(sparse if index >= first else dense for index in range(count)))


lineage(
    "pangu_ultra_moe",
    reads=copy_of("deepseek_v3", VLLM_MODELS + "openpangu.py (OpenPanguMLAAttention)", inherits=False),
    tensors=ultra_tensors,
    prediction=Prediction(),
)
lineage(
    "pangu_pro_moe_v2",
    "PanguProMoE",
    reads=CustomType(VLLM_MODELS + "openpangu.py (OpenPanguSinkAttention)"),
    layers=pro_layers,
    tensors=pro_tensors,
)
lineage(
    "PanguEmbedded",
    reads=own_keys_grouped(VLLM_MODELS + "openpangu.py (PanguEmbeddedForCausalLM)"),
    tensors=Plain(qkv_bias=ANY_BIAS, o_bias=ANY_BIAS, mlp_bias="mlp_bias"),
)
