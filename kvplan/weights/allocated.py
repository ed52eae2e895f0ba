"""What torch's allocator gives for a model's tensors beyond their own bytes.

pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, get_free_block,
should_split) and c10/core/AllocatorConfig.h, 2.6 to 2.13: a tensor of up to 1 MiB is rounded up to 512 bytes;
one below 10 MiB is cut from a segment of 20 MiB, a larger one has a segment of its own, a multiple of 2 MiB.
What a segment has beyond the tensor is free for others where it is more than 1 MiB; else the tensor has it,
and it counts as allocated. With max_split_size nothing of that size is cut: the tensor has its segment whole.

Quantised matrices are left out: what their kernels lay out anew is allocated anew. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

from kvplan.dtypes import Packing
from kvplan.units import MIB, round_up
from kvplan.weights.adapters import module_of
from kvplan.weights.inventory import Inventory, Role, Split, Tensor
from kvplan.weights.parts import Part, part_of
from kvplan.weights.ranks import Parallel, lies_on, stage_layers, tensor_bytes

_LEAST, _SMALL, _STEP = 512, MIB, 2 * MIB
_LARGE, _SEGMENT = 10 * MIB, 20 * MIB


def allocated(sizes: Iterable[int], max_split: int | None = None) -> int:
    """Bytes that torch counts as allocated once it has made tensors of these sizes, in this order."""
    free: list[int] = []
    total = 0
    for size in sizes:
        wanted = round_up(size, _LEAST)
        if wanted <= _SMALL:
            total += wanted
            continue
        whole = max_split is not None and wanted >= max_split
        found = bisect_left(free, wanted)
        if found < len(free) and not whole:
            block = free.pop(found)
        else:
            block = _SEGMENT if wanted < _LARGE else round_up(wanted, _STEP)
        if block - wanted > _SMALL and not whole:
            insort(free, block - wanted)
            block = wanted
        total += block
    return total


@lru_cache(maxsize=1024)
def rounded_up(
    inventory: Inventory,
    parallel: Parallel,
    dtype: Packing,
    *,
    max_split: int | None = None,
    towers: bool = True,
) -> tuple[int, ...]:
    """What the fullest rank of each pipeline stage has beyond its unquantised tensors, as an engine makes
    them that holds q, k and v, and gate and up, as one. towers: encoders are loaded too.

    Raises RefusedError(cannot-shard).
    """
    stages = parallel.pipeline_parallel_size
    found, start = [], 0
    for stage, count in enumerate(stage_layers(len(inventory.layers), stages)):
        sizes: list[int] = []
        for tensors in _in_order(inventory, stage, stages, range(start, start + count), towers):
            sizes += _sizes(tensors, parallel, dtype)
        found.append(allocated(sizes, max_split) - sum(sizes))
        start += count
    return tuple(found)


def _in_order(
    inventory: Inventory, stage: int, stages: int, layers: range, towers: bool
) -> Iterator[tuple[Tensor, ...]]:
    """Embedding, encoders block by block, layers, head."""
    ends = [entry for entry in inventory.ends if lies_on(entry.place, stage, stages)]
    if not towers:
        ends = [entry for entry in ends if part_of(entry.tensor.name, entry.tensor.role) is not Part.TOWER]
    yield tuple(one.tensor for one in ends if one.times == 1 and one.tensor.role is not Role.HEAD)
    for block in range(max((entry.times for entry in ends), default=1)):
        yield tuple(entry.tensor for entry in ends if 1 < entry.times > block)
    for index in layers:
        yield inventory.layers[index].tensors
    yield tuple(entry.tensor for entry in ends if entry.tensor.role is Role.HEAD)


@lru_cache(maxsize=4096)
def _sizes(tensors: tuple[Tensor, ...], parallel: Parallel, dtype: Packing) -> tuple[int, ...]:
    """Bytes of each module of a layer on the fullest rank."""
    return tuple(
        sum(tensor_bytes(tensor, parallel, dtype) for tensor in module) for module in _modules(tensors)
    )


@lru_cache(maxsize=4096)
def _modules(tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], ...]:
    """Tensors that an engine keeps as one, in the order of the first."""
    named: dict[tuple[str, str, bool], int] = {}
    keys = [_key(tensor) for tensor in tensors]
    for key in keys:
        named.setdefault(key, len(named))
    plain = [(named[key], tensor) for key, tensor in zip(keys, tensors, strict=True) if tensor.form is None]
    ordered = sorted(plain, key=lambda entry: entry[0])
    return tuple(
        tuple(tensor for _, tensor in module) for _, module in groupby(ordered, key=lambda entry: entry[0])
    )


def _key(tensor: Tensor) -> tuple[str, str, bool]:
    if tensor.role is Role.EXPERT:
        into = any(dim.split is Split.EXPERT_WIDTH for dim in tensor.rows)
        return "experts", "w13" if into else "w2", bool(tensor.columns)
    where = tensor.name.rpartition(".")[0]
    return where, module_of(tensor), bool(tensor.columns)
