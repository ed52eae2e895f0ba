"""Parameters of a model on each pipeline stage: what the engines count, beside the bytes."""

from __future__ import annotations

from kvplan.weights.inventory import Inventory
from kvplan.weights.ranks import ALONE, Parallel, elements_on_rank, lies_on, stage_layers


def parameters_by_stage(inventory: Inventory, parallel: Parallel = ALONE) -> tuple[int, ...]:
    """Numbers on the fullest rank of each pipeline stage."""
    stages = parallel.pipeline_parallel_size
    totals = []
    start = 0
    for stage, count in enumerate(stage_layers(len(inventory.layers), stages)):
        total = sum(
            entry.times * elements_on_rank(entry.tensor, parallel)
            for entry in inventory.ends
            if lies_on(entry.place, stage, stages)
        )
        inside = (tensor for block in inventory.layers[start : start + count] for tensor in block.tensors)
        totals.append(total + sum(elements_on_rank(tensor, parallel) for tensor in inside))
        start += count
    return tuple(totals)
