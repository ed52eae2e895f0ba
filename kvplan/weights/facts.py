"""The weights of one GPU, and where the figure comes from.

Order of the sources: what the user states, the checkpoint's headers, its index, the tensors that the
config (or the card) describes. None of them: a refusal that says what to do. A figure is never guessed from a
model's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.dtypes import Packing
from kvplan.errors import KvplanError, RefusedError
from kvplan.later import later
from kvplan.record import record, replace
from kvplan.units import ceil_div, gib
from kvplan.weights.inventory import Inventory, Role
from kvplan.weights.ranks import ALONE, Parallel, block_bytes, bytes_by_stage
from kvplan.weights.stored import Checkpoint, has_drafts, stage_bytes, stored_total

if TYPE_CHECKING:
    from kvplan.weights import by_name
    from kvplan.weights.formats import Kernel
else:
    by_name = later("kvplan.weights", "by_name")

STATED, INDEX, CARD, COUNT = "--weights", "safetensors index", "card", "parameter count"
AGREE = 200
"""An index and an inventory agree within one part in so many (0.5 %)."""


@record()
class WeightFacts:
    """Bytes of weights. bytes_per_rank: the fullest GPU of each stage; total_bytes: a GPU that has all.

    draft_bytes: what multi-token-prediction layers add when an engine loads them, once. lowest, highest: of
    each stage where it is not certain which kernel keeps the experts, or what a build's name leaves open;
    empty where the figure is.
    """

    bytes_per_rank: tuple[int, ...]
    total_bytes: int
    source: str
    detail: str = ""
    draft_bytes: int = 0
    lowest: tuple[int, ...] = ()
    highest: tuple[int, ...] = ()

    @property
    def bytes_per_gpu(self) -> int:
        """The fullest GPU."""
        return max(self.bytes_per_rank)

    def bounds(self, stage: int) -> tuple[int, int]:
        """At least and at most, of one stage."""
        likely = self.bytes_per_rank[stage]
        if not self.highest:
            return likely, likely
        return self.lowest[stage], self.highest[stage]


@record()
class Index:
    """How many bytes together, without the tensors: model.safetensors.index.json, or a card's figure."""

    total_bytes: int
    names: tuple[str, ...]
    where: str
    source: str = INDEX


@record(eq=False)
class WeightSources:
    """Everything that is known about a model's weights."""

    stated_bytes: int | None = None
    """of one GPU, by the user"""
    checkpoint: Checkpoint | None = None
    index: Index | None = None
    inventory: Inventory | None = None
    inventory_source: str = COUNT
    """``card`` or ``parameter count``"""
    shape: by_name.Shape | None = None
    """for a checkpoint without one"""
    problem: KvplanError | None = None
    """why there is no inventory"""
    named: Callable[[], Mapping[str, int]] | None = None
    """bytes by the names of a GGUF file"""
    more: int = 0
    """what a build that is known by its name alone may hold in attention beyond that, over all GPUs"""
    below: int = 0
    above: int = 0
    """how far from the derived weights such builds were, in thousandths"""


@lru_cache(maxsize=4096)
def weights_per_rank(sources: WeightSources, parallel: Parallel, dtype: Packing) -> WeightFacts:
    """The weights from the best source there is. Raises KvplanError(no-weights | cannot-shard)."""
    if sources.stated_bytes is not None:
        stages = parallel.pipeline_parallel_size
        ranks = parallel.tensor_parallel_size * stages
        return WeightFacts(
            (sources.stated_bytes,) * stages,
            sources.stated_bytes * ranks,
            STATED,
            "bytes of one GPU, as given",
        )
    if sources.checkpoint is not None:
        made = _from_headers(sources.checkpoint, sources, parallel, dtype)
        if made is not None:
            return made
    if sources.inventory is not None:
        return _between(_from_inventory(sources.inventory, sources, parallel, dtype), sources, parallel)
    if sources.index is not None and parallel.expert_ways == parallel.pipeline_parallel_size == 1:
        return WeightFacts(
            (sources.index.total_bytes,), sources.index.total_bytes, sources.index.source, sources.index.where
        )
    raise sources.problem or no_source("the model")


def weights_by_kernel(
    sources: WeightSources, parallel: Parallel, dtype: Packing, kernels: tuple[Kernel, ...]
) -> WeightFacts:
    """`weights_per_rank` where experts are kept as one of these kernels wants them, the likely one
    first. Raises KvplanError(no-weights | cannot-shard)."""
    inventory = sources.inventory
    if (
        not kernels
        or sources.stated_bytes is not None
        or inventory is None
        or not _keeps(inventory, kernels[0])
    ):
        return weights_per_rank(sources, parallel, dtype)
    found = [weights_per_rank(sources, replace(parallel, kernel=kernel), dtype) for kernel in kernels]
    first = found[0]
    stages = [[facts.bounds(stage) for facts in found] for stage in range(len(first.bytes_per_rank))]
    others = ", ".join(dict.fromkeys(kernel.name for kernel in kernels[1:] if kernel.name != kernels[0].name))
    how = f"experts as {kernels[0].name} keeps them" + (f" (interval: or {others})" if others else "")
    return replace(
        first,
        detail=f"{first.detail}; {how}" if first.detail else how,
        lowest=tuple(min(low for low, _ in ends) for ends in stages),
        highest=tuple(max(high for _, high in ends) for ends in stages),
    )


def _between(facts: WeightFacts, sources: WeightSources, parallel: Parallel) -> WeightFacts:
    """With what the build's name leaves open: a share of each GPU's, and attention in FP8 in equal parts."""
    if not (sources.more or sources.below or sources.above):
        return facts
    part = ceil_div(sources.more, parallel.tensor_parallel_size * parallel.pipeline_parallel_size)
    ranks = facts.bytes_per_rank
    words = [f"{sources.below / 10:g} % less to {sources.above / 10:g} % more in other builds of the kind"]
    if part:
        words.append(f"{gib(part)} more where attention is held in FP8")
    return replace(
        facts,
        detail="; ".join((facts.detail, *words)),
        lowest=tuple(rank - rank * sources.below // 1000 for rank in ranks),
        highest=tuple(rank + max(part, ceil_div(rank * sources.above, 1000)) for rank in ranks),
    )


@lru_cache(maxsize=1024)
def _keeps(inventory: Inventory, kernel: Kernel) -> bool:
    kinds = {block.tensors for block in inventory.layers}
    return any(one.role is Role.EXPERT and kernel.keeps(one.form) for kind in kinds for one in kind)


def _from_headers(
    checkpoint: Checkpoint, sources: WeightSources, parallel: Parallel, dtype: Packing
) -> WeightFacts | None:
    if sources.inventory is not None:
        ranks, drafts = stage_bytes(checkpoint, sources.inventory, parallel, dtype)
        whole, _ = stage_bytes(checkpoint, sources.inventory, parallel.alone, dtype)
        return WeightFacts(ranks, sum(whole), checkpoint.source, checkpoint.where, drafts)
    if sources.shape is not None:
        ranks, drafts = by_name.bytes_by_name(checkpoint, sources.shape, parallel, dtype)
        whole, _ = by_name.bytes_by_name(checkpoint, sources.shape, parallel.alone, dtype)
        how = f"{checkpoint.where}; divided by the tensors' names"
        return WeightFacts(ranks, sum(whole), checkpoint.source, how, drafts)
    return None


def _from_inventory(
    inventory: Inventory, sources: WeightSources, parallel: Parallel, dtype: Packing
) -> WeightFacts:
    ranks = bytes_by_stage(inventory, parallel, dtype)
    (whole,) = bytes_by_stage(inventory, parallel.alone, dtype)
    stored = stored_total(inventory, dtype)
    drafts = sum(block_bytes(block.tensors, ALONE, dtype) for block in inventory.draft)
    how = f"{inventory.parameters:,} parameters"
    if inventory.quantisation:
        how += f", stored as {inventory.quantisation}"
    index = sources.index
    if index is None:
        return WeightFacts(ranks, whole, sources.inventory_source, how, drafts)
    if has_drafts(index.names, len(inventory.layers)):
        how = f"{how}; the index has draft layers too"
        return WeightFacts(ranks, whole, sources.inventory_source, how, drafts)
    if abs(index.total_bytes - stored) * AGREE <= stored:
        scaled = tuple(ceil_div(rank * index.total_bytes, stored) for rank in (*ranks, whole))
        return WeightFacts(scaled[:-1], scaled[-1], index.source, f"{index.where}; {how}", drafts)
    raise RefusedError(
        "no-weights",
        f"{index.where} says {index.total_bytes:,} bytes, the config's tensors make {stored:,}",
        help=(
            "put the safetensors files themselves beside the config: their headers are exact",
            "give the weights of one GPU yourself: --weights 15GiB",
        ),
    )


def no_source(model: str) -> KvplanError:
    """The refusal where nothing says how large the weights are."""
    return RefusedError(
        "no-weights",
        f"nothing says how many bytes the weights of {model} have",
        help=(
            "give the directory of the checkpoint, or hf:org/name: the safetensors headers are read",
            "give the weights of one GPU yourself: --weights 15GiB",
        ),
    )
