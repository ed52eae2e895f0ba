"""The tensors of one rank of a replica: divided as the engine divides them, stage by stage.

The rules are vLLM's (vllm-project/vllm vllm/model_executor/layers/linear.py, vocab_parallel_embedding.py,
fused_moe/config.py and vllm/distributed/utils.py, 0.32). Engines that divide some parts among fewer ranks say
so in Parallel.groups.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from math import gcd, prod

from kvplan.dtypes import BFLOAT16, FLOAT32, Packing, scalar
from kvplan.errors import RefusedError
from kvplan.record import KeptHash, record, replace
from kvplan.units import ceil_div, round_up
from kvplan.weights.formats import Format, Kernel
from kvplan.weights.inventory import ROUTER_FLOAT32, Dim, Inventory, Place, Role, Split, Tensor
from kvplan.weights.parts import NGRAM_TABLE, Part, part_of

VOCABULARY_MULTIPLE = 64
SMALLEST_BLOCK = 32
"""The least that an expert's blocks are made smaller to (`ExpertBlocks.SMALLER`)."""
INT_BYTES = {"int32": 4, "int64": 8, "uint8": 1, "float8_e4m3": 1}


class ExpertBlocks(str, Enum):
    """The treatment of a rank's share of an expert that ends inside a block of numbers with one scale."""

    AS_STORED = "as stored"
    SMALLER = "smaller blocks, each with the scale of the stored one"
    PADDED = "the share padded to whole blocks"


@record()
class Parallel(KeptHash):
    """How many GPUs share the work, what they can, and the engine's padding of the vocabulary."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    compute_capability: tuple[int, int] | None = None
    """(major, minor), or None where it is not known (taken as 9.0)"""
    vocabulary_multiple: int = VOCABULARY_MULTIPLE
    groups: tuple[tuple[Part, int], ...] = ()
    """how many ranks share the tensors of a part, where not all tensor-parallel ranks do (1: every rank
    has all of them; data parallel attention)"""
    expert_parallel_size: int | None = None
    """ranks among which whole experts are divided, the rest of the ranks divide their width (None: all
    with enable_expert_parallel, else none)"""
    redundant_experts: int = 0
    """copies of experts beside the model's own, divided with them"""
    kernel: Kernel | None = None
    """how experts are kept, None as stored"""
    expert_blocks: ExpertBlocks = ExpertBlocks.AS_STORED
    """what is done where a rank has a part of a block of an expert"""
    group_indices: bool = True
    """GPTQ's indices of groups are kept though they are in the order of the inputs"""

    def ways(self, part: Part) -> int:
        """Ranks that share the tensors of a part."""
        return dict(self.groups).get(part, self.tensor_parallel_size)

    @property
    def alone(self) -> Parallel:
        """One GPU of the kind that holds everything, as the same kernels keep it."""
        return Parallel(
            compute_capability=self.compute_capability,
            vocabulary_multiple=self.vocabulary_multiple,
            kernel=self.kernel,
            group_indices=self.group_indices,
        )

    @property
    def has_router_kernels(self) -> bool:
        """Hopper and data-centre Blackwell: compute capability 9.0 and 10.x."""
        capability = self.compute_capability or (9, 0)
        return capability == (9, 0) or capability[0] == 10

    @property
    def divides_tokens(self) -> bool:
        """vLLM's sequence-parallel experts (vllm/config/parallel.py use_sequence_parallel_moe)."""
        return self.enable_expert_parallel and self.tensor_parallel_size > 1 and self.data_parallel_size > 1

    @property
    def expert_ways(self) -> int:
        """Ranks that share the experts: tensor times data parallel ranks."""
        return self.tensor_parallel_size * self.data_parallel_size

    @property
    def whole_expert_ways(self) -> int:
        """Ranks among which whole experts are divided; the width is divided by what is left of the ranks."""
        if self.expert_parallel_size is not None:
            return self.expert_parallel_size
        return self.expert_ways if self.enable_expert_parallel else 1


ALONE = Parallel()


def on_rank(dim: Dim, parallel: Parallel, part: Part = Part.DENSE) -> int:
    """How much of one dimension the fullest rank has: parallel matrices must divide evenly, KV heads are
    replicated when there are fewer than ranks, the vocabulary is padded. Raises
    RefusedError(cannot-shard)."""
    ways = parallel.ways(part)
    if dim.split is Split.WHOLE:
        return dim.value
    if dim.split is Split.SHARED_EXPERT and parallel.divides_tokens:
        return dim.value
    if dim.split in (Split.EVEN, Split.SHARED_EXPERT):
        return max(dim.least, _divided(dim, dim.value, ways))
    if dim.split is Split.HEADS_KEPT:
        if dim.value >= ways:
            return _divided(dim, dim.value, ways)
        if ways % dim.value:
            raise _cannot(dim, dim.value, ways)
        return 1
    if dim.split is Split.VOCABULARY:
        return _divided(dim, round_up(dim.value, parallel.vocabulary_multiple), ways)
    if dim.split is Split.EXPERTS:
        return ceil_div(dim.value + parallel.redundant_experts, parallel.whole_expert_ways)
    ways, tp = parallel.expert_ways // parallel.whole_expert_ways, parallel.tensor_parallel_size
    if ways == 1:
        return dim.value
    # The width is padded for tensor-parallel ranks alone (vllm/models/kimi_k3/nvidia/model.py).
    padded = tp > 1 and dim.value // tp < dim.least
    return _divided(dim, dim.least * tp if padded else dim.value, ways)


def _divided(dim: Dim, value: int, ways: int) -> int:
    if value % ways:
        raise _cannot(dim, value, ways)
    return value // ways


def _cannot(dim: Dim, value: int, ways: int) -> RefusedError:
    return RefusedError(
        "cannot-shard",
        f"{dim.name} is {value:,} and cannot be divided among {ways} GPUs",
        help=f"take a number of GPUs that divides {value:,}",
    )


def stage_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each pipeline stage: what is left over goes, one each, to the stages before the last.

    Source: vllm-project/vllm vllm/distributed/utils.py get_pp_indices. Raises RefusedError(cannot-shard).
    """
    if stages > max(layers, 1):
        raise RefusedError(
            "cannot-shard", f"{layers} layers cannot be divided among {stages} pipeline stages"
        )
    counts = [layers // stages] * stages
    for place in range(2, layers % stages + 2):
        counts[-place] += 1
    return tuple(counts)


def element_packing(tensor: Tensor, dtype: Packing, parallel: Parallel = ALONE) -> Packing:
    """The packing of one number of an unquantised tensor."""
    if tensor.dtype is None:
        return dtype
    if tensor.dtype == ROUTER_FLOAT32:
        return dtype if parallel.has_router_kernels else FLOAT32
    if tensor.dtype in INT_BYTES:
        return Packing(tensor.dtype, 1, INT_BYTES[tensor.dtype])
    return scalar(tensor.dtype)


@lru_cache(maxsize=65536)
def elements_on_rank(tensor: Tensor, parallel: Parallel) -> int:
    """Numbers of one tensor on the fullest rank."""
    part = part_of(tensor.name, tensor.role)
    return prod(on_rank(dim, parallel, part) for dim in (*tensor.stack, *tensor.rows, *tensor.columns))


@lru_cache(maxsize=65536)
def tensor_bytes(tensor: Tensor, parallel: Parallel, dtype: Packing) -> int:
    """Bytes of one tensor on the fullest rank, in the format that the checkpoint stores its module in."""
    form, kernel = tensor.form, parallel.kernel
    if tensor.role is Role.EXPERT and kernel is not None and kernel.keeps(form):
        return _kept_by(kernel, tensor, form, parallel, dtype)
    if form is None:
        return element_packing(tensor, dtype, parallel).bytes_for(elements_on_rank(tensor, parallel))
    if not parallel.group_indices:
        form = form.without_indices
    part = part_of(tensor.name, tensor.role)
    rows, columns, stack = (
        prod(on_rank(dim, parallel, part) for dim in dims)
        for dims in (tensor.rows, tensor.columns, tensor.stack)
    )
    if not tensor.columns:  # a bias stands beside its matrix, and is not quantised
        return element_packing(tensor, dtype, parallel).bytes_for(stack * rows)
    if tensor.role is Role.EXPERT and parallel.expert_blocks is not ExpertBlocks.AS_STORED:
        rows, columns, form = _whole_blocks(tensor, rows, columns, form, parallel.expert_blocks)
    return stack * form.bytes_for(rows, columns, dtype.bytes)


def _whole_blocks(
    tensor: Tensor, rows: int, columns: int, form: Format, how: ExpertBlocks
) -> tuple[int, int, Format]:
    """An expert's FP8 matrix as it is kept where its width on the rank is not made of whole blocks."""
    high, wide = form.block
    by_rows = any(dim.split is Split.EXPERT_WIDTH for dim in tensor.rows)
    width = rows if by_rows else columns
    if form.bits != 8 or high <= 1 or wide <= 1 or (width % high == 0 and width % wide == 0):
        return rows, columns, form
    if how is ExpertBlocks.SMALLER:
        step = gcd(high, wide, rows, columns)
        return rows, columns, replace(form, block=(step, step)) if step >= SMALLEST_BLOCK else form
    return (round_up(rows, high), columns, form) if by_rows else (rows, round_up(columns, wide), form)


def _kept_by(kernel: Kernel, tensor: Tensor, form: Format | None, parallel: Parallel, dtype: Packing) -> int:
    """An expert's matrix or bias: padded, its table of scales rearranged and padded again."""
    steps = {Split.EXPERT_WIDTH: kernel.width, Split.WHOLE: kernel.hidden}
    rows, columns = (
        prod(round_up(on_rank(dim, parallel), steps.get(dim.split, 1)) for dim in dims)
        for dims in (tensor.rows, tensor.columns)
    )
    stack = prod(on_rank(dim, parallel) for dim in tensor.stack)
    if form is None:
        return element_packing(tensor, dtype, parallel).bytes_for(stack * rows * columns)
    if not tensor.columns:
        return stack * rows * (kernel.bias_bytes or dtype.bytes)
    if kernel.unpacked:
        return dtype.bytes_for(stack * rows * columns)
    joint = any(dim.split is Split.EXPERT_WIDTH for dim in tensor.rows)
    scales = round_up(rows, max(1, kernel.scale_rows // 2) if joint else kernel.scale_rows)
    scales *= round_up(ceil_div(columns, form.block[1] or columns), kernel.scale_columns)
    loaded = rows * ceil_div(columns, form.block[1] or columns)
    tables = scales + (loaded if kernel.keeps_scales else 0)
    numbers = ceil_div(rows * columns * form.bits, 8)
    return stack * (numbers + tables * (form.scale_bytes or 0) + form.matrix_bytes)


@lru_cache(maxsize=1024)
def bytes_by_stage(
    inventory: Inventory, parallel: Parallel = ALONE, dtype: Packing = BFLOAT16
) -> tuple[int, ...]:
    """Bytes of weights on the fullest rank of each pipeline stage. Raises RefusedError(cannot-shard)."""
    stages = parallel.pipeline_parallel_size
    counts = stage_layers(len(inventory.layers), stages)
    totals = []
    start = 0
    for stage, count in enumerate(counts):
        total = sum(
            entry.times * tensor_bytes(entry.tensor, parallel, dtype)
            for entry in inventory.ends
            if lies_on(entry.place, stage, stages)
        )
        total += sum(
            block_bytes(block.tensors, parallel, dtype) for block in inventory.layers[start : start + count]
        )
        totals.append(total)
        start += count
    return tuple(totals)


def tower_bytes(
    inventory: Inventory, parallel: Parallel = ALONE, dtype: Packing = BFLOAT16
) -> tuple[int, ...]:
    """Bytes of the encoders of images and sound on the fullest rank of each pipeline stage."""
    return _ends(inventory, parallel, dtype, lambda tensor: part_of(tensor.name, tensor.role) is Part.TOWER)


def head_bytes(
    inventory: Inventory, parallel: Parallel = ALONE, dtype: Packing = BFLOAT16
) -> tuple[int, ...]:
    """Bytes of an output head of its own on the fullest rank of each pipeline stage."""
    return _ends(inventory, parallel, dtype, lambda tensor: tensor.role is Role.HEAD)


def _ends(
    inventory: Inventory, parallel: Parallel, dtype: Packing, meant: Callable[[Tensor], bool]
) -> tuple[int, ...]:
    stages = parallel.pipeline_parallel_size
    entries = [entry for entry in inventory.ends if meant(entry.tensor)]
    return tuple(
        sum(
            entry.times * tensor_bytes(entry.tensor, parallel, dtype)
            for entry in entries
            if lies_on(entry.place, stage, stages)
        )
        for stage in range(stages)
    )


def lookup_bytes(
    inventory: Inventory, parallel: Parallel = ALONE, dtype: Packing = BFLOAT16
) -> tuple[int, ...]:
    """Bytes of the tables of n-grams, which are only looked up, on the fullest rank of each stage."""
    found, start = [], 0
    for count in stage_layers(len(inventory.layers), parallel.pipeline_parallel_size):
        tensors = (tensor for block in inventory.layers[start : start + count] for tensor in block.tensors)
        tables = (tensor for tensor in tensors if tensor.name == NGRAM_TABLE)
        found.append(sum(tensor_bytes(tensor, parallel, dtype) for tensor in tables))
        start += count
    return tuple(found)


@lru_cache(maxsize=4096)
def block_bytes(tensors: tuple[Tensor, ...], parallel: Parallel = ALONE, dtype: Packing = BFLOAT16) -> int:
    """Bytes of one layer on the fullest rank."""
    return sum(tensor_bytes(tensor, parallel, dtype) for tensor in tensors)


def lies_on(place: Place, stage: int, stages: int) -> bool:
    """Whether a tensor of this place lies on the stage (counted from 0)."""
    first, last = stage == 0, stage == stages - 1
    return {
        Place.FIRST: first,
        Place.LAST: last,
        Place.TIED: first or last,
        Place.EVERY: True,
    }[place]
