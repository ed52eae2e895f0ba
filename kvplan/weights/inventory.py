"""Which tensors a model has, what their sizes are made of, and how each is divided among GPUs.

A ``Tensor`` is ``rows × columns`` numbers (times ``stack`` for experts); every ``Dim`` is a named whole
number that says how an engine splits it. Names are the checkpoint's, so that a quantisation config's
lists of modules can be matched with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError
from kvplan.record import KeptHash, record

if TYPE_CHECKING:
    from kvplan.weights.formats import Format

ROUTER_FLOAT32 = "float32 where no router kernel"
"""A router that vLLM keeps in float32 unless the GPU is of compute capability 9.0 or 10.x
(fused_moe/router/gate_linear.py, force_fp32_compute)."""


class Split(str, Enum):
    """How tensor parallelism divides one dimension.

    WHOLE: every rank has all of it. EVEN: n / tp, which must be whole. HEADS_KEPT: n / tp, but at
    least one (KV heads and state-space groups are replicated when there are fewer than ranks).
    VOCABULARY: padded to the engine's multiple, then divided. EXPERTS: divided under expert
    parallelism only. EXPERT_WIDTH: divided unless the experts are. SHARED_EXPERT: n / tp, but whole where
    tokens instead of matrices are divided (sequence-parallel experts: expert and data parallelism with
    more than one tensor parallel rank).
    """

    WHOLE = "replicated"
    EVEN = "divided"
    HEADS_KEPT = "divided, at least one"
    VOCABULARY = "padded and divided"
    EXPERTS = "divided by expert parallelism"
    EXPERT_WIDTH = "divided unless experts are"
    SHARED_EXPERT = "divided unless tokens are"


@record()
class Dim:
    """One factor of a tensor's size. least: the smallest share of a divided dimension (padded up to it).

    Raises KvplanError(bad-config) for a size below 0.
    """

    name: str
    value: int
    split: Split = Split.WHOLE
    least: int = 0

    def __post_init__(self) -> None:
        if self.value < 0:
            raise KvplanError("bad-config", f"{self.name} would be {self.value:,}: no tensor has such a size")


class Role(str, Enum):
    """The treatment of a tensor by a quantisation config."""

    LINEAR = "linear"
    EXPERT = "expert"
    HEAD = "head"
    EMBEDDING = "embedding"
    OTHER = "other"


class Place(str, Enum):
    """On which pipeline stages a tensor outside the layers lies.

    TIED: on the first stage, and on the last one too (the embedding that is also the output head);
    counted once where they are the same stage.
    """

    FIRST = "first"
    LAST = "last"
    TIED = "first and last"
    EVERY = "every"


@record()
class Tensor(KeptHash):
    """rows × columns numbers for each entry of the stack.

    name: the checkpoint's module path, relative to its block. dtype: the element type where the engine
    fixes it (a router in float32), None for the model's own. form: how the checkpoint stores a quantised
    matrix, None for one as it was trained.
    """

    name: str
    rows: tuple[Dim, ...]
    columns: tuple[Dim, ...] = ()
    stack: tuple[Dim, ...] = ()
    role: Role = Role.OTHER
    dtype: str | None = None
    form: Format | None = None

    @property
    def elements(self) -> int:
        """The product of all factors, undivided and unpadded."""
        return prod(dim.value for dim in (*self.stack, *self.rows, *self.columns))


@record()
class Block:
    """One layer: the path of its modules and its tensors."""

    path: str
    tensors: tuple[Tensor, ...]


@record()
class Placed:
    """A tensor outside the layers. times: how many blocks of a tower have it, named by the first one's path
    (``visual.blocks.0.attn.qkv``).
    """

    place: Place
    tensor: Tensor
    times: int = 1

    def names(self) -> Iterator[str]:
        """The paths of all of them."""
        name = self.tensor.name
        return (name.replace(".0.", f".{index}.", 1) if index else name for index in range(self.times))


@record(eq=False)
class Inventory:
    """Every tensor of a model. Compared and hashed by identity: build once, ask often."""

    ends: tuple[Placed, ...]
    """embeddings, final norms, output head, vision towers"""
    layers: tuple[Block, ...]
    """the decoder's layers in order, as a pipeline divides them"""
    draft: tuple[Block, ...] = ()
    """the multi-token-prediction layers that the checkpoint carries and an engine loads with a speculative
    method only"""
    dtype: str | None = None
    quantisation: str = ""
    """the checkpoint's word for its method"""

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its full path, drafts left out."""
        for entry in self.ends:
            for name in entry.names():
                yield name, entry.tensor
        for block in self.layers:
            for tensor in block.tensors:
                yield f"{block.path}.{tensor.name}", tensor

    @property
    def parameters(self) -> int:
        """How many numbers the model has, tied embeddings once, drafts left out."""
        return _parameters(self)

    @property
    def in_matrices(self) -> int:
        """How many numbers the matrices of the layers have, tables of embeddings among them left out."""
        kinds = _kinds_of_layers(self).items()
        return sum(
            times * tensor.elements
            for tensors, times in kinds
            for tensor in tensors
            if tensor.columns and tensor.role is not Role.EMBEDDING
        )


def _kinds_of_layers(inventory: Inventory) -> dict[tuple[Tensor, ...], int]:
    """The tensors of a layer → how many layers have them."""
    counts: dict[tuple[Tensor, ...], int] = {}
    for block in inventory.layers:
        counts[block.tensors] = counts.get(block.tensors, 0) + 1
    return counts


@lru_cache(maxsize=1024)
def _parameters(inventory: Inventory) -> int:
    kinds = _kinds_of_layers(inventory).items()
    inside = sum(times * sum(tensor.elements for tensor in tensors) for tensors, times in kinds)
    return inside + sum(entry.times * entry.tensor.elements for entry in inventory.ends)


@lru_cache(maxsize=1024)
def expert_forms(inventory: Inventory) -> frozenset[Format | None]:
    """How the checkpoint stores routed experts; None: as they were trained."""
    tensors = (tensor for block in inventory.layers for tensor in block.tensors)
    return frozenset(tensor.form for tensor in tensors if tensor.role is Role.EXPERT)
