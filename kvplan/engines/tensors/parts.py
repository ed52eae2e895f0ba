"""Shared by the engines' layouts: element types as torch names them, and terms as heads times content."""

from __future__ import annotations

from math import prod

from kvplan.dtypes import Packing
from kvplan.engines.base import Engine
from kvplan.engines.tensors.base import Component
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.results import Pool, SizeResult
from kvplan.settings import Settings
from kvplan.terms import Term

TORCH_NAMES = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float64": "float64",
    "int64": "int64",
    "int8": "int8",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}
"""kvplan's packing names → torch's; every other packing holds scales or shares bytes and is read as bytes."""
PACKED = "uint8"
WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "int64": 8}
"""Bytes of a torch element; 1 where it is not listed."""


def torch_name(packing: Packing) -> str:
    """The torch dtype of a packing of one number in its own bytes, else uint8."""
    plain = packing.elements == 1 and packing.bytes == WIDTHS.get(packing.name, 1)
    return TORCH_NAMES.get(packing.name, PACKED) if plain else PACKED


@record()
class Stored:
    """A term on one rank as ``heads`` times ``content`` bytes: the sharded factor is the head axis.

    heads is 1 where a head's numbers are no whole packs (several heads share a pack) or no factor is sharded.
    shape: the factors behind the heads, for the engine's own tensor.
    """

    name: str
    heads: int
    content: int
    dtype: str
    packing: Packing
    shape: tuple[int, ...]

    def whole(self) -> Stored:
        """All heads as one content."""
        return replace(self, heads=1, content=self.heads * self.content, shape=(self.heads, *self.shape))

    def component(self, offset: int = 0) -> Component:
        return Component(self.name, offset, self.content, self.dtype)


def stored(term: Term) -> Stored:
    """The term's entry, divided over its heads. Two numbers a head are not a head axis of their own."""
    packing = term.packing
    factors = [factor for factor in term.factors if factor.sharded]
    heads = factors[0].value if len(factors) == 1 and term.factors[0].sharded else 1
    per_head = term.elements // heads
    if heads * packing.bytes_for(per_head) != term.entry_bytes:
        heads, per_head = 1, term.elements
    rest = tuple(factor.value for factor in (term.factors[1:] if heads > 1 else term.factors))
    return Stored(term.name, heads, term.entry_bytes // heads, torch_name(packing), packing, rest)


def side_by_side(parts: list[Stored]) -> tuple[Component, ...]:
    """The components of one content: each part behind the one before it."""
    found, offset = [], 0
    for part in parts:
        found.append(part.component(offset))
        offset += part.content
    return tuple(found)


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a torch dtype."""
    return WIDTHS.get(dtype, 1)


def allocated_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """prod(shape) elements of a torch dtype."""
    return prod(shape) * element_bytes(dtype)


def pooled(engine: Engine, model: Model, settings: Settings, version: str) -> tuple[SizeResult, Pool]:
    """The engine's answer and its pool. Raises KvplanError(no-memory, engine-refuses)."""
    result = engine.size(model, settings, version)
    if result.refusal is not None:
        raise KvplanError("engine-refuses", result.refusal.message, help=result.refusal.help)
    if result.pool is None:
        raise KvplanError(
            "no-memory", "how much memory the cache may take was not given", help="--kv-cache-memory 16GiB"
        )
    return result, result.pool
