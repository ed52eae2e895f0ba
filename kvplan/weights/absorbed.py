"""Latent attention's kv_b_proj, which engines keep a second time for decoding: one half of it is multiplied
into the query, the other out of the attention (DeepSeek-V2, arXiv:2405.04434, 2.1.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache

from kvplan.weights.inventory import Inventory, Tensor
from kvplan.weights.ranks import Parallel, elements_on_rank, stage_layers

_NAME = "self_attn.kv_b_proj"


@lru_cache(maxsize=64)
def projections(inventory: Inventory, stages: int = 1) -> tuple[Mapping[Tensor, int], ...]:
    """Of each pipeline stage the matrices, and how many of its layers have each."""
    found, start = [], 0
    for count in stage_layers(len(inventory.layers), stages):
        blocks = inventory.layers[start : start + count]
        tensors = (tensor for block in blocks for tensor in block.tensors if tensor.columns)
        found.append(Counter(tensor for tensor in tensors if tensor.name.endswith(_NAME)))
        start += count
    return tuple(found)


def again_bytes(
    inventory: Inventory, parallel: Parallel, bytes_of: Callable[[Tensor], int]
) -> tuple[int, ...]:
    """Bytes of the copies on the fullest rank of each stage. bytes_of: of one number of a matrix's copy."""
    return tuple(
        sum(elements_on_rank(tensor, parallel) * layers * bytes_of(tensor) for tensor, layers in held.items())
        for held in projections(inventory, parallel.pipeline_parallel_size)
    )
