"""Custom-code decoders that `config.custom_types` describes by their keys alone: full attention."""

from __future__ import annotations

from kvplan.architectures.blocks.custom import every_head, every_layer, refuse_telltales, width_per_head
from kvplan.architectures.config.plain import KV_HEADS
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import lineage
from kvplan.families import FullAttention
from kvplan.model import Layer


def plain_custom_decoder_layers(view: ConfigView) -> list[Layer]:
    """2 · kv heads · head_dim per token and layer; without KV heads every head has its own K and V."""
    refuse_telltales(view)
    kv = view.optional_integer(*KV_HEADS)
    return every_layer(view, FullAttention(kv if kv is not None else every_head(view), width_per_head(view)))


def grouped_custom_decoder_layers(view: ConfigView) -> list[Layer]:
    """As the plain one, with a stated number of KV heads."""
    refuse_telltales(view)
    return every_layer(view, FullAttention(view.integer(*KV_HEADS), width_per_head(view)))


lineage("plain_custom_decoder", layers=plain_custom_decoder_layers)
lineage("grouped_custom_decoder", layers=grouped_custom_decoder_layers)
