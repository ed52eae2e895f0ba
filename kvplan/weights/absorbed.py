"""Latent attention's kv_b_proj, which engines keep a second time for decoding: one half of it is multiplied
into the query, the other out of the attention (DeepSeek-V2, arXiv:2405.04434, 2.1.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvplan.weights.inventory import Inventory, Tensor
from kvplan.weights.ranks import Parallel, elements_on_rank
from kvplan.weights.stages import held

_NAME = "self_attn.kv_b_proj"


def projections(inventory: Inventory, stages: int = 1) -> tuple[Mapping[Tensor, int], ...]:
    """Of each pipeline stage the matrices, and how many of its layers have each."""
    return tuple(
        {
            tensor: layers
            for tensor, layers in tensors.items()
            if tensor.columns and tensor.name.endswith(_NAME)
        }
        for tensors in held(inventory, stages)
    )


def again_bytes(
    inventory: Inventory, parallel: Parallel, bytes_of: Callable[[Tensor], int]
) -> tuple[int, ...]:
    """Bytes of the copies on the fullest rank of each stage. bytes_of: of one number of a matrix's copy."""
    return tuple(
        sum(
            elements_on_rank(tensor, parallel) * layers * bytes_of(tensor)
            for tensor, layers in tensors.items()
        )
        for tensors in projections(inventory, parallel.pipeline_parallel_size)
    )
