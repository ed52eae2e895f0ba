"""Step 5: windows and full layers with a gate for each head, experts.

Source: vllm-project/vllm 0.33 vllm/models/step5/nvidia/{model,config,sparse_summary_cache,csa_tail_ring}.py,
vllm/transformers_utils/configs/step5.py. With a ``sparse_config`` full layers keep summaries of eight tokens
and a ring of the open eight beside their keys and values, which is refused; vLLM serves no file without one.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import num_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import (
    Heads,
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
from kvplan.architectures.blocks.plain import TWO_NORMS, hidden_size
from kvplan.architectures.blocks.recipe import FULL, SLIDING, known_word
from kvplan.architectures.config.custom_types import CustomType, wrapper_of
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.lineages.step import layer_numbers
from kvplan.architectures.prediction import NEW_LAYOUT, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, SlidingWindow
from kvplan.model import Layer

SPARSE_KEYS = ("sparse_config", "step5_sparse_config", "step3p5_sparse_config")
_CONFIGS = "vllm-project/vllm 0.33 vllm/transformers_utils/configs/step5.py"


def step5_layers(view: ConfigView) -> list[Layer]:
    """num_attention_groups KV heads in every layer; layer_types may go on with the prediction layers."""
    for key in SPARSE_KEYS:
        if view.raw.get(key) is not None:
            raise view.refuse(
                key, "the summaries of eight tokens and the ring beside them (CSA) are not described"
            )
    kv, width = view.integer("num_attention_groups"), _width(view)
    parts = {FULL: Layer((FullAttention(kv, width),))}
    size = view.optional_integer("sliding_window")
    if size is not None:
        parts[SLIDING] = Layer((SlidingWindow(kv, width, size),))
    else:
        parts[SLIDING] = parts[FULL]
    return [parts[kind] for kind in _kinds(view)]


def _width(view: ConfigView) -> int:
    stated = view.optional_integer("head_dim")
    if stated is not None:
        return stated
    return derived(view.integer("hidden_size") // num_heads(view), "hidden_size // num_attention_heads")


def _kinds(view: ConfigView) -> list[str]:
    """Without a list every second layer is full."""
    count = view.num_layers()
    given = view.sequence("layer_types_with_mtp") or view.sequence("layer_types")
    if not given:
        return [FULL if index % 2 else SLIDING for index in range(count)]
    drafts = view.optional_integer("num_nextn_predict_layers", default=0, lowest=0) or 0
    if len(given) < count + drafts:
        raise view.refuse("layer_types", f"{len(given)} entries for {count} layers and {drafts} more")
    words = [known_word(view, "layer_types", word) for word in given[:count]]
    for word in words:
        if word not in (FULL, SLIDING):
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
    return words


def step5_tensors(view: ConfigView) -> Decoder:
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    width, kv = int(_width(view)), int(view.integer("num_attention_groups"))
    windowed = view.optional_integer("swa_num_attention_heads")
    windows = view.optional_integer("sliding_window") is not None
    usual = int(num_heads(view))
    dense = mlp("mlp", hidden, int(view.integer("intermediate_size")))
    kinds = _kinds(view)
    listed = layer_numbers(view, "moe_layers_enum")
    if listed is None:
        listed = layer_numbers(view, "moe_layer_list")
    sparse = set(range(1, len(kinds))) if listed is None else listed
    moe = _moe(view, hidden) if sparse else ()

    @lru_cache(maxsize=4)
    def layer(kind: str, routed: bool) -> Tensors:
        count = int(windowed) if windowed is not None and windows and kind == SLIDING else usual
        made = attention(Heads(count, kv, width, width), hidden, qk_norm="head")
        if view.flag("use_head_wise_attn_gate"):
            made += linear("self_attn.g_proj", even("num_attention_heads", count), model)
        return made + (moe if routed else dense) + norms(TWO_NORMS, model)

    return Decoder(Frame(), tuple(layer(kind, index in sparse) for index, kind in enumerate(kinds)))


def _moe(view: ConfigView, hidden: int) -> Tensors:
    number = int(view.integer("moe_num_experts"))
    made = router("moe.gate", number, hidden, dtype="float32" if view.flag("need_fp32_gate") else None)
    if view.flag("use_moe_router_bias"):
        made += vector("moe.router_bias", whole("num_experts", number), dtype="float32")
    made += experts("moe.experts", number, hidden, int(view.integer("moe_intermediate_size")))
    stated = view.optional_integer("share_expert_dim")
    shared = int(stated or view.integer("moe_intermediate_size") * view.integer("moe_top_k"))
    return made + mlp("moe.share_expert", hidden, shared)


lineage(
    "step5",
    reads=CustomType(
        _CONFIGS,
        defaults={
            "hidden_size": 5120,
            "intermediate_size": 13312,
            "num_attention_heads": 40,
            "num_attention_groups": 8,
            "num_hidden_layers": 48,
            "max_seq_len": 4096,
            "vocab_size": 65536,
            "moe_intermediate_size": 10240,
            "moe_num_experts": 16,
            "moe_top_k": 4,
        },
    ),
    layers=step5_layers,
    tensors=step5_tensors,
    prediction=Prediction(unknown=NEW_LAYOUT),
)
lineage("step5_vl", reads=wrapper_of(_CONFIGS, text_type="step5"))
