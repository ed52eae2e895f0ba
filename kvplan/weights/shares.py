"""Where a rank's share of a matrix ends inside a block of numbers that share a scale."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from math import prod

from kvplan.record import record
from kvplan.weights.formats import Format
from kvplan.weights.inventory import Dim, Inventory, Role, Split, Tensor
from kvplan.weights.parts import Part, part_of
from kvplan.weights.ranks import Parallel, on_rank


class Side(str, Enum):
    """The side of a matrix that is divided."""

    INPUTS = "inputs"
    OUTPUTS = "outputs"


@record()
class Cut:
    """A side of a matrix that is not made of whole blocks on a rank.

    name: the matrix's path in a layer. size: how much of the side the rank has; of an expert its width. step:
    of so many a scale is. other: the whole other side.
    """

    name: str
    role: Role
    form: Format
    side: Side
    size: int
    step: int
    other: int

    @property
    def is_expert(self) -> bool:
        return self.role is Role.EXPERT

    @property
    def in_blocks(self) -> bool:
        """Bytes with a scale for a block of outputs and inputs, as FP8 checkpoints have them."""
        return self.form.bits == 8 and self.form.block[0] > 1

    @property
    def in_groups(self) -> bool:
        """Integers with a scale for a group of inputs, of the model's own element type."""
        return self.form.block[0] == 1 and self.form.scale_bytes is None

    @property
    def in_nvfp4(self) -> bool:
        """Four bits with a scale of one byte for each 16 inputs."""
        return self.form.bits == 4 and self.form.block[0] == 1 and self.form.scale_bytes == 1

    @property
    def words(self) -> str:
        """The divided side, in words for a sentence."""
        what = "the width of an expert" if self.is_expert else f"the {self.side.value} of {self.name}"
        return f"{what} would be {self.size:,} on a GPU, where {self.step} share a scale"


@lru_cache(maxsize=1024)
def cuts(inventory: Inventory, parallel: Parallel) -> tuple[Cut, ...]:
    """Every cut of the layers; drafts, encoders and the vocabulary's tables left out.

    Of experts the width counts though it is whole: a scale is of gate or of up. Raises
    RefusedError(cannot-shard).
    """
    kinds = dict.fromkeys(block.tensors for block in inventory.layers)
    return tuple(cut for tensors in kinds for cut in _of_layer(tensors, parallel))


@lru_cache(maxsize=4096)
def _of_layer(tensors: tuple[Tensor, ...], parallel: Parallel) -> tuple[Cut, ...]:
    return tuple(cut for tensor in tensors for cut in _of(tensor, parallel))


def _of(tensor: Tensor, parallel: Parallel) -> Iterator[Cut]:
    form, part = tensor.form, part_of(tensor.name, tensor.role)
    if form is None or not tensor.columns or part is Part.TOWER:
        return
    both = ((Side.INPUTS, tensor.columns, tensor.rows, 1), (Side.OUTPUTS, tensor.rows, tensor.columns, 0))
    for side, dims, others, axis in both:
        step = form.block[axis]
        if step <= 1:
            continue
        if tensor.role is Role.EXPERT:
            widths = [on_rank(dim, parallel, part) for dim in dims if dim.split is Split.EXPERT_WIDTH]
            size, divided = prod(widths), bool(widths)
        else:
            size = prod(on_rank(dim, parallel, part) for dim in dims)
            divided = size < _whole(dims)
        if divided and size % step:
            yield Cut(tensor.name, tensor.role, form, side, size, step, _whole(others))


def _whole(dims: tuple[Dim, ...]) -> int:
    return prod(dim.value for dim in dims)
