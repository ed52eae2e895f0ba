"""Bytes that torch's allocator adds to a model's tensors: of segments, the rest that is too small to be cut
off (`kvplan.weights.caching_allocator`). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

from kvplan.dtypes import Packing
from kvplan.units import ceil_div
from kvplan.weights.caching_allocator import Allocator, allocated
from kvplan.weights.inventory import Inventory, Role, Split, Tensor
from kvplan.weights.parts import Part, module_of, part_of
from kvplan.weights.ranks import Parallel, elements_on_rank, lies_on, stage_layers, tensor_bytes


@lru_cache(maxsize=1024)
def left_by_quantising(
    inventory: Inventory, parallel: Parallel, dtype: Packing, max_split: int
) -> tuple[int, ...]:
    """Bytes that the fullest rank of each stage has beyond matrices that are quantised while they are loaded.

    Module by module, as their names are sorted: its matrices in the model's dtype, the quantised ones, and
    the first are free again (vllm-project/vllm model_executor/model_loader/reload/layerwise.py,
    _layerwise_process). A quantised matrix takes a free block that is up to 20 MiB larger, and has it whole:
    of Qwen3-8B and Qwen3-4B on an L4 in FP8 0.26 and 0.27 GiB are printed, of Llama-3.1-70B nothing.

    Raises RefusedError(cannot-shard).
    """
    found, start = [], 0
    for count in stage_layers(len(inventory.layers), parallel.pipeline_parallel_size):
        torch, kept = Allocator(max_split=max_split), 0
        for block in inventory.layers[start : start + count]:
            for module in _quantised(block.tensors):
                numbers = [elements_on_rank(tensor, parallel) for tensor in module]
                whole = torch.malloc(dtype.bytes_for(sum(numbers)))
                size = sum(
                    ceil_div(number * (tensor.form.bits if tensor.form else 8), 8)
                    for tensor, number in zip(module, numbers, strict=True)
                )
                torch.malloc(size)
                kept += size
                torch.free(whole)
        found.append(torch.allocated - kept)
        start += count
    return tuple(found)


def quantised_modules(inventory: Inventory, parallel: Parallel) -> tuple[int, ...]:
    """How many quantised matrices a rank of each pipeline stage has, as an engine joins them; no experts."""
    found, start = [], 0
    for count in stage_layers(len(inventory.layers), parallel.pipeline_parallel_size):
        layers = inventory.layers[start : start + count]
        plain = (tuple(one for one in layer.tensors if one.role is not Role.EXPERT) for layer in layers)
        found.append(sum(len(_quantised(tensors)) for tensors in plain))
        start += count
    return tuple(found)


@lru_cache(maxsize=4096)
def _quantised(tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], ...]:
    """A layer's quantised matrices that an engine keeps as one, in the order in which they are whole."""
    modules: dict[tuple[str, str, bool], list[Tensor]] = {}
    for tensor in sorted(tensors, key=lambda one: one.name):
        if tensor.form is not None and tensor.columns:
            key = _key(tensor)
            modules[key] = [*modules.pop(key, []), tensor]  # the last one makes it whole
    return tuple(map(tuple, modules.values()))


@lru_cache(maxsize=1024)
def rounded_up(
    inventory: Inventory,
    parallel: Parallel,
    dtype: Packing,
    *,
    max_split: int | None = None,
    towers: bool = True,
    packed: bool = False,
) -> tuple[int, ...]:
    """Bytes that the fullest rank of each pipeline stage has beyond its tensors, as an engine makes them that
    holds q, k and v, and gate and up, as one. towers: encoders are loaded too. packed: quantised matrices
    count, which a kernel that orders them anew puts into blocks of the same size.

    Raises RefusedError(cannot-shard).
    """
    stages = parallel.pipeline_parallel_size
    found, start = [], 0
    for stage, count in enumerate(stage_layers(len(inventory.layers), stages)):
        sizes: list[int] = []
        for tensors in _in_order(inventory, stage, stages, range(start, start + count), towers):
            sizes += _sizes(tensors, parallel, dtype, packed)
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
def _sizes(tensors: tuple[Tensor, ...], parallel: Parallel, dtype: Packing, packed: bool) -> tuple[int, ...]:
    """Bytes of each module of a layer on the fullest rank; of a quantised one those of its numbers."""
    return tuple(
        sum(_numbers(tensor, parallel, dtype) for tensor in module) for module in _modules(tensors, packed)
    )


def _numbers(tensor: Tensor, parallel: Parallel, dtype: Packing) -> int:
    if tensor.form is None or not tensor.columns:
        return tensor_bytes(tensor, parallel, dtype)
    return ceil_div(elements_on_rank(tensor, parallel) * tensor.form.bits, 8)


@lru_cache(maxsize=4096)
def _modules(tensors: tuple[Tensor, ...], packed: bool) -> tuple[tuple[Tensor, ...], ...]:
    """Tensors that an engine keeps as one, in the order of the first. packed: quantised ones too."""
    named: dict[tuple[str, str, bool], int] = {}
    keys = [_key(tensor) for tensor in tensors]
    for key in keys:
        named.setdefault(key, len(named))
    pairs = zip(keys, tensors, strict=True)
    plain = [(named[key], tensor) for key, tensor in pairs if packed or tensor.form is None]
    ordered = sorted(plain, key=lambda entry: entry[0])
    return tuple(
        tuple(tensor for _, tensor in module) for _, module in groupby(ordered, key=lambda entry: entry[0])
    )


_JOINED = dict.fromkeys(("in_proj_qkv", "in_proj_z"), "in_proj_qkvz")


def _key(tensor: Tensor) -> tuple[str, str, bool]:
    if tensor.role is Role.EXPERT:
        into = any(dim.split is Split.EXPERT_WIDTH for dim in tensor.rows)
        return "experts", "w13" if into else "w2", bool(tensor.columns)
    where = tensor.name.rpartition(".")[0]
    module = module_of(tensor)
    return where, _JOINED.get(module, module), bool(tensor.columns)
