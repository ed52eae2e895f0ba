"""Buffers of LoRA adapters: what an engine allocates beside each matrix before any adapter is loaded.

vLLM (vllm-project/vllm 0.32 vllm/lora/layers/, vllm/lora/model_manager.py _create_lora_modules) keeps for
every wrapped matrix ``max_loras`` slots of A (rank × inputs) and B (outputs × rank), with inputs and outputs
as this rank has them. SGLang (sgl-project/sglang 0.5.23 python/sglang/srt/lora/mem_pool.py) keeps
``max_loras_per_batch`` slots of every target module for every layer of the model. Pure: bytes are whole
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod

from kvplan.errors import RefusedError
from kvplan.record import record
from kvplan.weights.inventory import Dim, Inventory, Place, Role, Split, Tensor
from kvplan.weights.parts import EXPERTS, PACKED, module_of
from kvplan.weights.ranks import ALONE, Parallel, lies_on, on_rank, stage_layers

MOST_VOCABULARY = 258_048
"""LogitsProcessorWithLoRA refuses larger ones (vllm/lora/layers/logits_processor.py)."""
INT32, INT64 = 4, 8
_DIVIDED = (Split.EVEN, Split.HEADS_KEPT, Split.SHARED_EXPERT)
TWO_SLICES = "query and key"
"""The factor of a matrix that an engine holds as two, each with an A of its own."""
EMBEDDING, HEAD = "embed_tokens", "lm_head"


@record()
class Wrapped:
    """Which modules of an architecture vLLM wraps where no target modules are given."""

    embedding: bool = False
    """embedding, head: they are among its ``embedding_modules``"""
    head: bool = False
    fused: tuple[str, ...] = ()
    """modules with one A for all that they hold (its ``packed_modules_mapping`` names them alone)"""
    fused_experts: bool = False
    """gate and up of an expert share one A (``is_3d_moe_weight``)"""
    also: tuple[str, ...] = ()
    """linear layers that the inventory lists as never quantised (routers, convolutions); their last
    dimension is the input"""
    tied_twice: bool = False
    """a tied head is wrapped as an embedding too"""


@record()
class Slots:
    """The options: how many adapters, of which rank, how many bytes a number has.

    targets: the modules that may have adapters, by the engine's or the checkpoint's names; empty: all.
    """

    count: int
    rank: int
    element_bytes: int
    fully_sharded: bool = False
    targets: tuple[str, ...] = ()

    def takes(self, module: str, *, alone: bool = False) -> bool:
        """Whether a module is among the targets, or holds one (is_in_target_modules).

        alone: the engine knows nothing of what it holds.
        """
        if not self.targets or module in self.targets:
            return True
        return not alone and any(
            module in (name, PACKED.get(name)) or PACKED.get(module) == name for name in self.targets
        )


@lru_cache(maxsize=1024)
def vllm_bytes(
    inventory: Inventory, wrapped: Wrapped, slots: Slots, parallel: Parallel = ALONE
) -> tuple[int, ...]:
    """Bytes of the adapters' buffers on the fullest rank of each pipeline stage.

    Raises RefusedError(lora | cannot-shard).
    """
    _check(inventory, slots, parallel)
    stages = parallel.pipeline_parallel_size
    totals, start = [], 0
    for stage, count in enumerate(stage_layers(len(inventory.layers), stages)):
        total = _ends(inventory, wrapped, slots, parallel, stage)
        for block in inventory.layers[start : start + count]:
            total += layer_bytes(block.tensors, wrapped, slots, parallel)
        totals.append(total)
        start += count
    return tuple(totals)


def _check(inventory: Inventory, slots: Slots, parallel: Parallel) -> None:
    experts = any(t.role is Role.EXPERT for block in inventory.layers for t in block.tensors)
    if experts and parallel.enable_expert_parallel and slots.fully_sharded and slots.takes(EXPERTS):
        raise RefusedError(
            "lora", "vLLM has no fully sharded adapters of experts under expert parallelism",
            help="leave out --fully-sharded-loras or --enable-expert-parallel",
        )  # fmt: skip
    if experts and parallel.divides_tokens:
        raise RefusedError("lora", "vLLM has no adapters of experts where tokens are divided (dp with tp)")


def table_of(inventory: Inventory) -> Tensor:
    """The table of token embeddings."""
    return next(entry.tensor for entry in inventory.ends if entry.tensor.role is Role.EMBEDDING)


def _head_place(inventory: Inventory, embedding: Place) -> Place:
    """A tied head is a module of its own beside the embedding that it shares its weights with."""
    found = (entry.place for entry in inventory.ends if entry.tensor.role is Role.HEAD)
    return next(found, Place.EVERY if embedding is Place.EVERY else Place.LAST)


def _has_embedding(wrapped: Wrapped, slots: Slots) -> bool:
    return EMBEDDING in slots.targets if slots.targets else wrapped.embedding


def embedding_bytes(inventory: Inventory, wrapped: Wrapped, slots: Slots) -> int:
    """Bytes of the tables in which the embedding's adapters look tokens up: each slot's A, whole."""
    if not _has_embedding(wrapped, slots):
        return 0
    return slots.count * slots.rank * table_of(inventory).rows[0].value * slots.element_bytes


def _has_head(wrapped: Wrapped, slots: Slots) -> bool:
    return HEAD in slots.targets if slots.targets else wrapped.head


def _ends(inventory: Inventory, wrapped: Wrapped, slots: Slots, parallel: Parallel, stage: int) -> int:
    """Embedding: the whole vocabulary on every rank. Head: whole too, and under tensor parallelism a map
    from the padded vocabulary's places to tokens."""
    table = table_of(inventory)
    vocabulary, width = table.rows[0].value, _product(table.columns, ALONE)
    stages, ways = parallel.pipeline_parallel_size, parallel.tensor_parallel_size
    total = 0
    place = next(entry.place for entry in inventory.ends if entry.tensor is table)
    if _has_embedding(wrapped, slots) and lies_on(place, stage, stages):
        total += slots.count * slots.rank * (vocabulary + width) * slots.element_bytes
    if _has_head(wrapped, slots) and lies_on(_head_place(inventory, place), stage, stages):
        tied = all(entry.tensor.role is not Role.HEAD for entry in inventory.ends)
        times = 2 if wrapped.tied_twice and tied else 1
        total += times * slots.count * slots.rank * (vocabulary + width) * slots.element_bytes
        if ways > 1:
            total += on_rank(table.rows[0], parallel) * ways * INT64
    return total


@lru_cache(maxsize=4096)
def layer_bytes(tensors: tuple[Tensor, ...], wrapped: Wrapped, slots: Slots, parallel: Parallel) -> int:
    """Bytes of one layer's buffers on the fullest rank, with the flags of its experts' adapters."""
    numbers, has_experts = 0, False
    fused: set[str] = set()
    for tensor in tensors:
        module = module_of(tensor)
        taken = slots.takes(module, alone=module in wrapped.fused)
        if not taken or not _is_wrapped(tensor, wrapped):
            continue
        joint = _joint(tensor, wrapped)
        a, b = _pair(tensor, slots, parallel, alone=not joint)
        if joint:
            a = 0 if joint in fused else a
            fused.add(joint)
        numbers += a + b
        has_experts = has_experts or tensor.role is Role.EXPERT
    flags = (slots.count + 1) * INT32 if has_experts else 0
    return slots.count * numbers * slots.element_bytes + flags


def _is_wrapped(tensor: Tensor, wrapped: Wrapped) -> bool:
    if tensor.role in (Role.LINEAR, Role.EXPERT):
        return bool(tensor.columns)
    return tensor.name in wrapped.also


def _joint(tensor: Tensor, wrapped: Wrapped) -> str:
    """The module whose A is one for several matrices; empty where the matrix has its own."""
    module = module_of(tensor)
    if module in wrapped.fused:
        return tensor.name.rpartition(".")[0] + module
    into_width = any(dim.split is Split.EXPERT_WIDTH for dim in tensor.rows)
    return EXPERTS if wrapped.fused_experts and tensor.role is Role.EXPERT and into_width else ""


def _pair(tensor: Tensor, slots: Slots, parallel: Parallel, *, alone: bool) -> tuple[int, int]:
    """Numbers of A and B for one adapter; times the experts that this rank has."""
    rows, columns = (tensor.rows, tensor.columns) if tensor.columns else (tensor.rows[:-1], tensor.rows[-1:])
    stack = _product(tensor.stack, parallel)
    out, into = _product(rows, parallel), _product(columns, parallel)
    a_rank = slots.rank
    if slots.fully_sharded:
        ways = parallel.tensor_parallel_size
        if _divides(rows):
            a_rank //= ways
        elif _divides(columns):
            out = on_rank(Dim("outputs", out, Split.EVEN), parallel)
    slices = prod(dim.value for dim in rows if alone and dim.name == TWO_SLICES)
    return stack * slices * a_rank * into, stack * out * slots.rank


def _divides(dims: Iterable[Dim]) -> bool:
    return any(dim.split in (*_DIVIDED, Split.EXPERT_WIDTH) for dim in dims)


def _product(dims: tuple[Dim, ...], parallel: Parallel) -> int:
    return prod(on_rank(dim, parallel) for dim in dims)
