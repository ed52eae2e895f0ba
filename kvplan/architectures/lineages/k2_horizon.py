"""K2 Horizon: grouped attention, in some layers with routed values (MoVA), and experts.

Source: vllm-project/vllm 0.33 vllm/model_executor/models/k2_horizon.py; sgl-project/sglang 0.5.23
python/sglang/srt/models/xllm.py. Whichever value experts are chosen, one value a KV head is cached.
"""

from __future__ import annotations

from kvplan.architectures.blocks.custom import every_layer
from kvplan.architectures.blocks.decoder import head_dim, num_kv_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import by_step
from kvplan.architectures.blocks.parts import (
    Tensors,
    attention,
    even,
    experts,
    linear,
    mlp,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import BIAS, TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer
from kvplan.weights.inventory import Dim, Split

FLOAT32 = "float32"


def k2_layers(view: ConfigView) -> list[Layer]:
    return every_layer(view, FullAttention(num_kv_heads(view), head_dim(view)))


def k2_tensors(view: ConfigView) -> Decoder:
    """Layers with experts have value experts too where mova_num_experts is not 0."""
    hidden, count = hidden_size(view), int(view.num_layers())
    around = norms(TWO_NORMS, whole("hidden_size", hidden))
    routed = int(view.optional_integer("mova_num_experts", default=0, lowest=0) or 0)
    dense = _attention(view, 0) + mlp("mlp", hidden, int(view.integer("intermediate_size"))) + around
    sparse = [by_step(view, index) for index in range(count)]
    moe = _attention(view, routed) + _experts(view) + around if any(sparse) else ()
    return Decoder(Frame(everywhere=True), tuple(moe if kind else dense for kind in sparse))


def _attention(view: ConfigView, routed: int) -> Tensors:
    hidden, heads, bias = hidden_size(view), heads_of(view), view.flag(BIAS)
    model, width = whole("hidden_size", hidden), whole("head_dim", heads.width)
    kind = "per_head" if view.flag("query_key_norm") else ""
    made = attention(heads, hidden, qkv_bias=bias, o_bias=bias, qk_norm=kind)
    if routed:
        made = tuple(tensor for tensor in made if not tensor.name.startswith("self_attn.v_proj"))
        kv = Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT)
        made += linear("self_attn.v_router", whole("mova_num_experts", routed), model)
        if view.flag("moe_gate_bias"):
            made += vector("self_attn.v_router.bias", whole("mova_num_experts", routed), dtype=FLOAT32)
        made += linear("self_attn.v_experts", (whole("mova_num_experts", routed), kv, width), model)
    if view.get("attention_gate_func") is not None:
        made += linear("self_attn.gate_proj", (even("num_attention_heads", heads.count), width), model)
    return made


def _experts(view: ConfigView) -> Tensors:
    hidden, count = hidden_size(view), int(view.integer("num_experts"))
    wide = int(view.integer("moe_intermediate_size"))
    correction = "mlp.gate.bias" if view.flag("moe_gate_bias") else None
    made = router("mlp.gate", count, hidden, correction=correction)
    made += experts("mlp.experts", count, hidden, wide)
    shared = int(view.optional_integer("num_shared_experts", default=0, lowest=0) or 0)
    return made + (mlp("mlp.shared_experts", hidden, shared * wide) if shared else ())


lineage(
    "k2_horizon",
    reads=CustomType("vllm-project/vllm 0.33 vllm/model_executor/models/k2_horizon.py"),
    layers=k2_layers,
    tensors=k2_tensors,
)
