"""Domyn-Edge: heads and windows of their own in every layer.

Source: vllm-project/vllm 0.33 vllm/model_executor/models/domyn_edge.py; the keys are those of
domyn/Domyn-Edge-Base and of huggingface/transformers 5.23.0 integrations/heterogeneity (per_layer_config).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.architectures.blocks.custom import entries
from kvplan.architectures.blocks.decoder import num_heads, num_kv_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import Heads, Tensors, attention, mlp, norm, norms, whole
from kvplan.architectures.blocks.plain import hidden_size
from kvplan.architectures.blocks.recipe import layer_settings
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import LARGEST, ConfigView, check_integer
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, SlidingWindow
from kvplan.model import Layer

_NORMS = ("pre_attention_norm", "post_attention_norm", "pre_feedforward_norm", "post_feedforward_norm")


def domyn_layers(view: ConfigView) -> list[Layer]:
    """window_sizes has a pair a layer; a window of w reads the w tokens before its own as well."""
    kv = num_kv_heads(view)
    layers = []
    for width, window in zip(_widths(view), _windows(view), strict=True):
        part = SlidingWindow(kv, width, window + 1) if window > 0 else FullAttention(kv, width)
        layers.append(Layer((part,)))
    return layers


def _widths(view: ConfigView) -> list[int]:
    """per_layer_config's head_dim, or head_sizes, the list of the first release."""
    count = view.num_layers()
    if view.given("head_sizes"):
        return [check_integer(size, f"{view.path}head_sizes") for size in entries(view, "head_sizes", count)]
    settings = layer_settings(view, count)
    if settings is None:
        raise view.missing("per_layer_config")
    usual = view.optional_integer("head_dim")
    where = f"{view.path}per_layer_config"
    return [
        check_integer(settings.get(index, {}).get("head_dim", usual), f"{where}.{index}.head_dim")
        for index in range(count)
    ]


def _windows(view: ConfigView) -> list[int]:
    where = f"{view.path}window_sizes"
    found = []
    for entry in entries(view, "window_sizes", view.num_layers()):
        if not isinstance(entry, Sequence) or isinstance(entry, str) or not entry:
            raise view.refuse("window_sizes", "an entry is no pair of numbers")
        found.append(check_integer(entry[0], where, -1, LARGEST))
    return found


def domyn_tensors(view: ConfigView) -> Decoder:
    """Norms on both sides of attention and perceptron; the queries' norm has no weight."""
    hidden, heads, kv = hidden_size(view), int(num_heads(view)), int(num_kv_heads(view))
    around = mlp("feedforward", hidden, int(view.integer("intermediate_size")))
    around += norms(_NORMS, whole("hidden_size", hidden))

    def layer(width: int) -> Tensors:
        own = attention(Heads(heads, kv, width, width), hidden)
        return own + norm("attention.k_norm", whole("head_dim", width)) + around

    return Decoder(Frame(), tuple(layer(width) for width in _widths(view)))


lineage(
    "domynedge",
    "domyn_edge",
    reads=CustomType("vllm-project/vllm 0.33 vllm/model_executor/models/domyn_edge.py"),
    layers=domyn_layers,
    tensors=domyn_tensors,
)
