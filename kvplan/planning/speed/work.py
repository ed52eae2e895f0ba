"""Storage and work of each pipeline stage's fullest rank: counts only, no rates, the same on every GPU.

Made once for a model, its parallelism and its dtypes; `build` lays a GPU's rates over it.

Which of a model's tensors a step reads, and as what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from kvplan.dtypes import Packing, kv_dtype
from kvplan.engines.base import named_or_float32
from kvplan.families import Part, Storage
from kvplan.later import regex
from kvplan.model import Layer, Model
from kvplan.planning.speed.attention import CacheRead, cache_reads, readers_of
from kvplan.record import record, replace
from kvplan.weights.formats import Format
from kvplan.weights.inventory import Block, Inventory, Role, Split, Tensor
from kvplan.weights.parts import TOWER_NAME
from kvplan.weights.ranks import Parallel, elements_on_rank, lies_on, stage_layers, tensor_bytes


@record()
class Pile:
    """Matrices of one format and element type: bytes on the rank, and operations for one token.

    experts: how many routed experts are in it, 0 for what every token passes.
    """

    form: Format | None
    dtype: str
    experts: int
    bytes: int
    flops: float


@record()
class StageWork:
    """One stage: its matrices, its caches, and how many mixers, plain and routed MLPs it runs.

    formats: for each layer, how often it occurs and the formats of its matrices.
    """

    piles: tuple[Pile, ...]
    head: tuple[Pile, ...]
    caches: tuple[CacheRead, ...]
    layers: int
    mixers: int
    plain: int
    routed: int
    formats: tuple[tuple[int, frozenset[Format]], ...]


@lru_cache(maxsize=4096)
def rank_work(
    model: Model,
    inventory: Inventory,
    parallel: Parallel,
    context_parallel_size: int,
    dtype: Packing,
    kv_cache_dtype: str,
) -> tuple[StageWork, ...]:
    """Every stage's work. Raises RefusedError(cannot-shard, no-speed-rule)."""
    pipeline = parallel.pipeline_parallel_size
    blocks = stage_layers(len(inventory.layers), pipeline)
    layers = readers_of(model.layers())
    counts = stage_layers(len(layers), pipeline)
    store = _storage(dtype, kv_cache_dtype)
    made = []
    for stage in range(pipeline):
        first, start = sum(blocks[:stage]), sum(counts[:stage])
        here = layers[start : start + counts[stage]]
        caches = cache_reads(
            model, _counted(here), store, parallel.tensor_parallel_size, context_parallel_size
        )
        own = inventory.layers[first : first + blocks[stage]]
        made.append(_stage(inventory, parallel, dtype, stage, own, here, caches))
    return tuple(made)


def draft_work(
    model: Model,
    inventory: Inventory,
    parallel: Parallel,
    context_parallel_size: int,
    dtype: Packing,
    kv_cache_dtype: str,
) -> StageWork:
    """The work of the model's own prediction layers, with its output head. Raises as `rank_work`."""
    layers = readers_of(list(model.draft_layers))
    store = _storage(dtype, kv_cache_dtype)
    caches = cache_reads(model, _counted(layers), store, parallel.tensor_parallel_size, context_parallel_size)
    last = parallel.pipeline_parallel_size - 1
    return _stage(inventory, parallel, dtype, last, inventory.draft, layers, caches)


def _storage(dtype: Packing, kv_cache_dtype: str) -> Callable[[Part], Storage]:
    """How each part of a layer's cache is stored."""
    base = Storage(
        kv=kv_dtype(dtype.name if kv_cache_dtype == "auto" else kv_cache_dtype),
        dtype=dtype,
        conv_state=dtype,
    )

    def store(part: Part) -> Storage:
        return replace(base, recurrent_state=named_or_float32(part))

    return store


def _stage(
    inventory: Inventory,
    parallel: Parallel,
    dtype: Packing,
    stage: int,
    blocks: tuple[Block, ...],
    layers: list[Layer],
    caches: tuple[CacheRead, ...],
) -> StageWork:
    counted = _counted([block.tensors for block in blocks])
    stages = parallel.pipeline_parallel_size
    body = [(tensor, times) for tensors, times in counted for tensor in tensors]
    for entry in inventory.ends:
        tensor = entry.tensor
        if tensor.role in (Role.HEAD, Role.EMBEDDING) or TOWER_NAME.search(f"{tensor.name}."):
            continue
        if lies_on(entry.place, stage, stages):
            body.append((tensor, entry.times))
    heads = logit_tensors(inventory) if stage == stages - 1 else ()
    routed = sum(times for tensors, times in counted if has_experts(tensors))
    return StageWork(
        _piles(body, parallel, dtype),
        _piles([(tensor, 1) for tensor in heads], parallel, dtype),
        caches,
        len(layers),
        sum(layer.family != "no_cache" for layer in layers),
        sum(times for tensors, times in counted if has_mlp(tensors)) - routed,
        routed,
        tuple(
            (times, frozenset(tensor.form for tensor in tensors if tensor.form is not None))
            for tensors, times in counted
        ),
    )


T = TypeVar("T")


def _counted(entries: Sequence[T]) -> list[tuple[T, int]]:
    """Each object and how often it occurs. Equal objects that are not the same one may stay apart: what is
    made of them are sums, and comparing whole layers would cost more than adding twice."""
    counts: dict[int, tuple[T, int]] = {}
    for entry in entries:
        counts[id(entry)] = (entry, counts.get(id(entry), (entry, 0))[1] + 1)
    return list(counts.values())


def _piles(tensors: list[tuple[Tensor, int]], parallel: Parallel, dtype: Packing) -> tuple[Pile, ...]:
    sums: dict[tuple[Format | None, str, int], tuple[int, float]] = {}
    for tensor, times in tensors:
        name = dtype.name if tensor.dtype is None or tensor.form is not None else "bfloat16"
        key = (tensor.form, name, routed_experts(tensor))
        size = tensor_bytes(tensor, parallel, dtype) * times
        flops = 2.0 * elements_on_rank(tensor, parallel) * times if tensor.columns else 0.0
        before = sums.get(key, (0, 0.0))
        sums[key] = (before[0] + size, before[1] + flops)
    return tuple(Pile(*key, size, flops) for key, (size, flops) in sums.items())


_MLP = regex(r"mlp|experts|feed_forward|ffn|moe|block_sparse|(^|\.)(fc1|fc2|gate_up_proj|down_proj|w2)\b")


def logit_tensors(inventory: Inventory) -> tuple[Tensor, ...]:
    """Tensors that make logits: the output head, or the embedding where they are one."""
    ends = [entry.tensor for entry in inventory.ends]
    heads = tuple(tensor for tensor in ends if tensor.role is Role.HEAD)
    if heads:
        return heads
    return tuple(
        tensor
        for tensor in ends
        if tensor.role is Role.EMBEDDING and any(dim.split is Split.VOCABULARY for dim in tensor.rows)
    )[:1]


def routed_experts(tensor: Tensor) -> int:
    """How many routed experts the tensor holds, 0 for one that every token uses."""
    if tensor.role is not Role.EXPERT:
        return 0
    return next((dim.value for dim in tensor.stack if dim.split is Split.EXPERTS), 0)


def has_experts(tensors: tuple[Tensor, ...]) -> bool:
    return any(routed_experts(tensor) for tensor in tensors)


def has_mlp(tensors: tuple[Tensor, ...]) -> bool:
    return any(tensor.role is not Role.OTHER and _MLP.search(tensor.name) for tensor in tensors)
