"""Step-3.5 and 3.7's text decoder: windows with a head count of their own, a gate for each head, experts.

Source: vllm-project/vllm vllm/model_executor/models/step3p5.py (0.32), checked against transformers 5.23.0
models/step3p7/modeling_step3p7.py, which names the same modules ``mlp.*``.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.tensors.frame import Frame
from kvplan.architectures.lineages.tensors.parts import (
    Heads,
    Tensors,
    attention,
    even,
    experts,
    linear,
    mlp,
    norms,
    router,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import TWO_NORMS, hidden_size
from kvplan.architectures.lineages.tensors.registry import Decoder, decoder

_EXPERTS = ("moe_num_experts", "n_routed_experts", "num_local_experts")
_KV = ("num_attention_groups", "num_key_value_heads")


@decoder("step3p5", "step3p7_text")
def step3p5(view: ConfigView) -> Decoder:
    """Raises KvplanError(missing-key) where the config leaves out what the two libraries default apart:
    which layers have experts (moe_layers_enum) and whether heads are gated (use_head_wise_attn_gate).
    """
    hidden, count = hidden_size(view), int(view.num_layers())
    model = whole("hidden_size", hidden)
    width = int(view.integer("head_dim"))
    kinds = view.sequence("layer_types")
    if kinds is None or len(kinds) < count:
        raise view.missing("layer_types")
    mixers = {kind: _mixer(view, kind, width, hidden) for kind in dict.fromkeys(map(str, kinds[:count]))}
    sparse = _sparse_layers(view)
    dense = mlp("mlp", hidden, int(view.integer("intermediate_size")))
    moe = _moe(view, hidden) if sparse else ()
    around = norms(TWO_NORMS, model)
    return Decoder(
        Frame(),
        tuple(
            mixers[str(kinds[index])] + (moe if index in sparse else dense) + around for index in range(count)
        ),
    )


def _mixer(view: ConfigView, kind: str, width: int, hidden: int) -> Tensors:
    """Attention of one kind of layer; attention_other_setting overrides the heads of the kind it names."""
    heads, kv, own = int(view.integer("num_attention_heads")), int(view.integer(*_KV)), width
    if view.get("attention_other_setting"):
        other = view.inner("attention_other_setting")
        if other.get("attention_type") == kind:
            heads = int(other.optional_integer("num_attention_heads") or heads)
            kv = int(other.optional_integer("num_attention_groups") or kv)
            own = int(other.optional_integer("head_dim") or width)
    made = attention(
        Heads(heads, kv, own, own), hidden, qkv_bias=bool(view.get("attention_bias")), qk_norm="head"
    )
    if not view.given("use_head_wise_attn_gate"):
        raise view.missing("use_head_wise_attn_gate")
    if view.flag("use_head_wise_attn_gate"):
        made += linear("self_attn.g_proj", even("num_attention_heads", heads), whole("hidden_size", hidden))
    return made


def _sparse_layers(view: ConfigView) -> set[int]:
    """moe_layers_enum: numbers between commas, or a list of them."""
    given = view.get("moe_layers_enum")
    words = given.split(",") if isinstance(given, str) else view.sequence("moe_layers_enum")
    if words is None:
        raise view.missing("moe_layers_enum")
    if not all(str(word).strip().isdecimal() for word in words):
        raise view.refuse("moe_layers_enum", "is not a list of layer numbers")
    return {int(str(word)) for word in words}


def _moe(view: ConfigView, hidden: int) -> Tensors:
    """A router in float32 with a bias, experts, and one shared expert."""
    number = int(view.integer(*_EXPERTS))
    made = router("moe.gate", number, hidden, dtype="float32", correction="moe.router_bias")
    made += experts("moe.experts", number, hidden, int(view.integer("moe_intermediate_size")))
    return made + mlp("moe.share_expert", hidden, int(view.integer("share_expert_dim")))
