"""Which matrices and vectors of the layers each pipeline stage holds, and how many of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from kvplan.weights.inventory import Inventory, Tensor
from kvplan.weights.ranks import stage_layers


@lru_cache(maxsize=64)
def held(inventory: Inventory, stages: int = 1) -> tuple[Mapping[Tensor, int], ...]:
    """Of each stage its tensors and the number of its layers that have each."""
    found, start = [], 0
    for count in stage_layers(len(inventory.layers), stages):
        blocks = inventory.layers[start : start + count]
        found.append(Counter(tensor for block in blocks for tensor in block.tensors))
        start += count
    return tuple(found)
