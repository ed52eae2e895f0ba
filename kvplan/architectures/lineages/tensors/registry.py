"""The table of inventory rules: model type → function of a ConfigView."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvplan.architectures.config.text_part import TextPart
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.tensors.frame import Frame
from kvplan.architectures.lineages.tensors.parts import Tensors
from kvplan.record import record
from kvplan.weights.inventory import Block, Placed


@record()
class Decoder:
    """A text decoder: what stands around the layers, and the tensors of each layer in order."""

    frame: Frame
    layers: tuple[Tensors, ...]


DecoderRule = Callable[[ConfigView], Decoder]
DECODERS: dict[str, DecoderRule] = {}
TowerRule = Callable[[Mapping[str, Any], ConfigView], list[Placed]]
"""What a wrapper has beside its text decoder; the wrapper's raw config and the text part's view."""
TOWERS: dict[str, TowerRule] = {}
WholeRule = Callable[[TextPart], tuple[Sequence[Placed], tuple[Block, ...]]]
"""A model that is no decoder with things around it (an encoder and a decoder)."""
WHOLE: dict[str, WholeRule] = {}


def decoder(*model_types: str) -> Callable[[DecoderRule], DecoderRule]:
    """Register a function as the inventory rule of these model types (transformers' words)."""

    def register(function: DecoderRule) -> DecoderRule:
        for model_type in model_types:
            if model_type in DECODERS:
                raise ValueError(f"two inventory rules for {model_type}")
            DECODERS[model_type] = function
        return function

    return register
