"""The weights of one rank as tensors of realistic sizes: held while the rest is measured."""

from __future__ import annotations

from kvplan.architectures.weights import served_sources
from kvplan.dtypes import Packing, scalar
from kvplan.engines.budget.parts import kernels_of, parallel_for
from kvplan.engines.tensors import Rank
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.proof.validate.stages.base import EXACT, Bench, Held
from kvplan.proof.validate.target import Target
from kvplan.record import record, replace
from kvplan.units import GIB, MIB
from kvplan.weights.caching_allocator import reserved_for
from kvplan.weights.facts import WeightSources, weights_by_kernel
from kvplan.weights.inventory import Inventory
from kvplan.weights.ranks import Parallel, lies_on, stage_layers, tensor_bytes

PIECE = 256 * MIB
"""Bytes of one tensor where only the sum is known."""
LOADED = ("draft", "LoRA adapters", "absorbed projections", "rotary tables", "image cache")
"""Beginnings of the names of the budget's lines of tensors that lie beside the weights for good."""


@record()
class Ballast:
    """tensors: (name, bytes) in the order in which a loader makes them; source: where the sum comes from.

    beside: bytes of what else is loaded and stays, by the budget's lines: a draft's layers, adapters.
    """

    tensors: tuple[tuple[str, int], ...]
    source: str
    beside: int = 0

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.tensors)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.tensors)


def ballast_of(target: Target, rank: Rank) -> Ballast:
    """The rank's weights. Their sum is that of the engine's own answer to the byte: what the tensors' sizes
    do not come to is one more tensor, or is cut off the last ones.

    Raises KvplanError(no-weights | cannot-shard).
    """
    settings, answer = target.settings, target.weights
    # A build's tensors are those of its file: of a model that is named by its card the sum is known.
    built = bool(traits_of(target.choice.engine.name).builds and settings.quantization)
    try:
        tensors, total, source = ([], 0, "") if built and answer is not None else _divided(target, rank)
    except KvplanError as error:
        if error.code != "no-weights" or answer is None:
            raise
        built = True
    if built and answer is not None:
        tensors, total, source = [], answer.bytes_per_gpu, answer.source
    if answer is not None and settings.pipeline_parallel_size == 1:
        total = answer.bytes_per_gpu
    total -= min(total, int(settings.cpu_offload_gb * GIB))
    return Ballast(tuple(_summing_to(tensors, total)), source, _beside(target))


def _beside(target: Target) -> int:
    """Bytes of the deciding stage's budget besides the weights, and those that stay as they do."""
    lines = () if target.budget is None else target.budget.lines
    return sum(line.bytes for line in lines if line.name.startswith(LOADED))


def _divided(target: Target, rank: Rank) -> tuple[list[tuple[str, int]], int, str]:
    """The rank's tensors, the bytes of its stage, and where they come from."""
    settings, dtype = target.settings, _dtype(target)
    parallel = parallel_for(target.model, target.choice, settings, target.result)
    if settings.weights is not None:
        sources = WeightSources(stated_bytes=settings.weights)
    else:
        sources = served_sources(target.model, settings.quantization)
    kernels = kernels_of(target.choice, target.model, settings)
    facts = weights_by_kernel(sources, parallel, dtype, kernels)
    parallel = replace(parallel, kernel=kernels[0] if kernels else None)
    inventory = sources.inventory
    tensors = [] if inventory is None else _inventory(inventory, rank.stage, parallel, dtype)
    return tensors, facts.bytes_per_rank[rank.stage], facts.source


def _dtype(target: Target) -> Packing:
    word = target.result.settings.get("dtype")
    return scalar(str(word)) if word else scalar("bfloat16")


def _inventory(inventory: Inventory, stage: int, parallel: Parallel, dtype: Packing) -> list[tuple[str, int]]:
    stages = parallel.pipeline_parallel_size
    counts = stage_layers(len(inventory.layers), stages)
    first = sum(counts[:stage])
    tensors = [
        (name, tensor_bytes(entry.tensor, parallel, dtype))
        for entry in inventory.ends
        if lies_on(entry.place, stage, stages)
        for name in entry.names()
    ]
    tensors += [
        (f"{block.path}.{tensor.name}", tensor_bytes(tensor, parallel, dtype))
        for block in inventory.layers[first : first + counts[stage]]
        for tensor in block.tensors
    ]
    return [(name, size) for name, size in tensors if size]


def _summing_to(tensors: list[tuple[str, int]], total: int) -> list[tuple[str, int]]:
    kept: list[tuple[str, int]] = []
    left = total
    for name, size in tensors:
        if left == 0:
            break
        kept.append((name, min(size, left)))
        left -= kept[-1][1]
    while left:
        kept.append((f"rest.{len(kept)}", min(PIECE, left)))
        left -= kept[-1][1]
    return kept


def hold(bench: Bench, held: Held, ballast: Ballast, *, reserved: bool) -> None:
    """Make the tensors, and compare what torch counts with what was predicted.

    In a rehearsal they are made on torch's ``meta`` device: shapes and bytes are counted, no memory is held.
    reserved: whether the allocator's rules are known, so that its segments are predicted too.
    """
    import torch

    place = None if bench.device.is_gpu else "meta"
    before, there, done = bench.device.read(), bench.device.segments(), 0
    for name, size in ballast.tensors:
        held.new(name, (size,), torch.uint8, device=place)
        done += size
        bench.tick(done, ballast.bytes)
    after = bench.device.read()
    bench.figure("weights_bytes", ballast.bytes, after.requested - before.requested, allowed_ppm=EXACT)
    if not bench.device.is_gpu:
        bench.note("weights are counted on torch's meta device: a rehearsal holds none of them")
    elif after.reserved is not None and before.reserved is not None:
        bench.figure(
            "weights_reserved_bytes",
            reserved_for(ballast.sizes, there) if reserved else None,
            after.reserved - before.reserved,
            allowed_ppm=EXACT if reserved else None,
            independent=True,  # the model of the allocator, and torch's own
        )


def hold_beside(bench: Bench, held: Held, ballast: Ballast) -> None:
    """Hold the other loaded memory, in pieces: only its sum is known."""
    place, before = None if bench.device.is_gpu else "meta", bench.device.read()
    import torch

    for name, size in _summing_to([], ballast.beside):
        held.new(f"beside.{name}", (size,), torch.uint8, device=place)
        bench.tick()
    grown = bench.device.read().requested - before.requested
    bench.figure("loaded_bytes", ballast.beside, grown, allowed_ppm=EXACT)


def try_ballast(target: Target, rank: Rank) -> tuple[Ballast, str | None]:
    """The ballast, or none and why: in a rehearsal, or with a pool given by hand, weights may be unknown."""
    try:
        return ballast_of(target, rank), None
    except KvplanError as error:
        if error.code != "no-weights":
            raise
        return Ballast((), "unknown"), f"no weights are held: {error.message}"
