"""The table of inventory rules: model type → function of a ConfigView."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvplan.readers.view import ConfigView
from kvplan.readers.weights_rules.frame import Frame
from kvplan.readers.weights_rules.parts import Tensors


@dataclass(frozen=True, slots=True)
class Decoder:
    """A text decoder: what stands around the layers, and the tensors of each layer in order."""

    frame: Frame
    layers: tuple[Tensors, ...]


DecoderRule = Callable[[ConfigView], Decoder]
DECODERS: dict[str, DecoderRule] = {}


def decoder(*model_types: str) -> Callable[[DecoderRule], DecoderRule]:
    """Register a function as the inventory rule of these model types (transformers' words)."""

    def register(function: DecoderRule) -> DecoderRule:
        for model_type in model_types:
            if model_type in DECODERS:
                raise ValueError(f"two inventory rules for {model_type}")
            DECODERS[model_type] = function
        return function

    return register
