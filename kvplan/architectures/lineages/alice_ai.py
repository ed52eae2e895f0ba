"""Alice AI: Kimi delta attention beside gated attention, experts in every layer, residuals over blocks.

Source: vllm-project/vllm 0.33 vllm/model_executor/models/alice_ai.py, qwen3_next.py (Qwen3NextAttention),
vllm/model_executor/layers/mamba/gdn/kimi_gdn_linear_attn.py.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import (
    Tensors,
    attention,
    experts,
    linear,
    mlp,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, LINEAR, Parts, Recipe
from kvplan.architectures.blocks.state_space import kimi_delta
from kvplan.architectures.blocks.words import layer_words
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import NO_MODULE, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import KimiDeltaAttention
from kvplan.weights.inventory import Place, Placed

CORRECTION = "mlp.gate.e_score_correction_bias"


def _delta(view: ConfigView) -> Parts:
    return (KimiDeltaAttention(*_delta_sizes(view)),)


def _delta_sizes(view: ConfigView) -> tuple[int, int, int]:
    """Heads, their width, the kernel. The class takes equal heads and widths of keys and values only."""
    for ending in ("num_{}_heads", "{}_head_dim"):
        key, value = (f"linear_{ending.format(word)}" for word in ("key", "value"))
        if view.integer(key) != view.integer(value):
            raise view.refuse(value, f"is not {key}: no engine builds that")
    names = ("linear_num_key_heads", "linear_key_head_dim", "linear_conv_kernel_dim")
    heads, width, kernel = (view.integer(name) for name in names)
    return heads, width, kernel


def _kinds(view: ConfigView, count: int) -> list[str]:
    raise view.missing("layer_types")


def alice_tensors(view: ConfigView) -> Decoder:
    """Each block's input is a mixture of earlier blocks, chosen by a vector and a norm."""
    hidden, words = hidden_size(view), layer_words(view, "layer_types")
    if words is None:
        raise view.missing("layer_types")
    model = whole("hidden_size", hidden)
    heads, width, kernel = map(int, _delta_sizes(view))
    mixers = {
        LINEAR: kimi_delta(hidden, heads, width, kernel, full_gate=False, path="linear_attn"),
        FULL: attention(heads_of(view), hidden, query_parts=2, qk_norm="head"),
    }
    rest = _experts(view) + norms(TWO_NORMS, model) + _mixture("mlp_res", hidden)

    @lru_cache(maxsize=4)
    def layer(word: str, first: bool) -> Tensors:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
        return mixers[word] + rest + (() if first else _mixture("attn_res", hidden))

    frame = Frame(tied=False, extra=_final)
    return Decoder(frame, tuple(layer(word, index == 0) for index, word in enumerate(words)))


def _mixture(name: str, hidden: int, projection: str = "proj") -> Tensors:
    model = whole("hidden_size", hidden)
    return vector(f"{name}_{projection}", whole("one", 1), model) + vector(f"{name}_norm_weight", model)


def _final(view: ConfigView) -> list[Placed]:
    return at(Place.LAST, _mixture("model.attnres_final.res", hidden_size(view)))


def _experts(view: ConfigView) -> Tensors:
    hidden, count = hidden_size(view), int(view.integer("num_experts"))
    made = router("mlp.gate", count, hidden, correction=CORRECTION)
    made += experts("mlp.experts", count, hidden, int(view.integer("moe_intermediate_size")))
    made += linear("mlp.shared_expert_gate", whole("shared gate", 1), whole("hidden_size", hidden))
    shared = int(view.optional_integer("shared_expert_intermediate_size", default=0, lowest=0) or 0)
    return made + (mlp("mlp.shared_expert", hidden, shared) if shared else ())


lineage(
    "alice_ai",
    reads=CustomType(
        "vllm-project/vllm 0.33 vllm/model_executor/models/alice_ai.py",
        defaults={"linear_conv_kernel_dim": 4},
    ),
    layers=Recipe({FULL: ATTENTION[FULL], LINEAR: _delta}, _kinds),
    tensors=alice_tensors,
    prediction=Prediction(("mtp_num_hidden_layers",), vllm=(), unknown=NO_MODULE),
)
