"""BLT: a local decoder over bytes.

Source: huggingface/transformers 5.23.0 models/blt.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import lineage
from kvplan.model import Layer


def blt_layers(view: ConfigView) -> list[Layer]:
    raise view.refuse("model_type", "the class cannot use a cache: BltConfig states no number of layers")


lineage("blt", layers=blt_layers)
