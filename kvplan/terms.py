"""A term is one thing that a layer stores; every attention family is a list of terms.

    name · factors (named whole numbers) · packing · grows · keep_last · stride · shards

``Term.bytes_at(tokens, encoder_tokens)`` is what one request holds. Engines, explanations and tests
all read the same factors, so the number and its explanation cannot drift apart.
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from math import prod

from kvplan.dtypes import Packing
from kvplan.record import record, replace
from kvplan.units import Bytes, Count, Positive, ceil_div


class Grows(str, Enum):
    """The unit that counts an entry of the term."""

    TOKEN = "token"
    REQUEST = "request"
    ENCODER_TOKEN = "encoder_token"


class Part(str, Enum):
    """Which part of a strided (compressed) sequence a token term holds.

    ENTRIES: one entry per ``stride`` finished tokens; WAITING: the T mod stride tokens that no entry
    covers yet; FILLED: a fixed amount once the first entry exists (T >= stride).
    """

    ENTRIES = "entries"
    WAITING = "waiting"
    FILLED = "filled"


class Shards(str, Enum):
    """How tensor parallelism splits the term."""

    HEADS = "heads"
    REPLICATED = "replicated"


@record()
class Factor:
    """A named whole number; ``sharded`` marks the one that tensor parallelism divides."""

    name: str
    value: int
    sharded: bool = False


@record()
class Term:
    """One stored thing, before sharding: ``prod(factors)`` numbers an entry, packed as ``packing``."""

    name: str
    factors: tuple[Factor, ...]
    packing: Packing
    grows: Grows = Grows.TOKEN
    keep_last: Count | None = None
    """only the newest so many tokens are kept (a window), counted before `stride`"""
    skip_last: Count = 0
    """the newest so many tokens are held by another term, counted before `stride`"""
    stride: Positive = 1
    """one entry per so many tokens"""
    part: Part = Part.ENTRIES

    _JSON = (
        "name", "factors", "packing", "entry_bytes", "grows", "part", "keep_last", "skip_last", "stride",
        "shards",
    )  # fmt: skip

    @property
    def _json_factors(self) -> list[tuple[str, int]]:
        """names and values, in the order in which they are multiplied"""
        return [(factor.name, factor.value) for factor in self.factors]

    @property
    def shards(self) -> Shards:
        return Shards.HEADS if any(factor.sharded for factor in self.factors) else Shards.REPLICATED

    @property
    def elements(self) -> int:
        return prod(factor.value for factor in self.factors)

    @property
    def entry_bytes(self) -> Bytes:
        """packing.bytes_for(prod(factors)): whole packs, an entry never shares one."""
        return self.packing.bytes_for(self.elements)

    def on_rank(self, tensor_parallel_size: int) -> Term:
        """The share of one rank: a sharded factor is divided, at least 1 (heads are replicated beyond)."""
        if tensor_parallel_size == 1 or self.shards is Shards.REPLICATED:
            return self
        factors = tuple(
            replace(factor, value=max(1, ceil_div(factor.value, tensor_parallel_size)))
            if factor.sharded
            else factor
            for factor in self.factors
        )
        return replace(self, factors=factors)

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        """How many entries one request of this length holds."""
        if self.grows is Grows.REQUEST:
            return 1
        if self.grows is Grows.ENCODER_TOKEN:
            return encoder_tokens
        kept = max(0, tokens - self.skip_last)
        if self.keep_last is not None:
            kept = min(kept, self.keep_last)
        if self.part is Part.WAITING:
            return kept % self.stride
        if self.part is Part.FILLED:
            return int(kept >= self.stride)
        return kept // self.stride

    def bytes_at(self, tokens: int, encoder_tokens: int = 0) -> int:
        """entries(tokens) * entry_bytes."""
        return self.entries(tokens, encoder_tokens) * self.entry_bytes

    def growth_at(self, tokens: int) -> Fraction:
        """Bytes that one more token adds on average at this length: 0 in a full window.

        What waits for compression comes and goes, so WAITING and FILLED add nothing on average.
        """
        if self.grows is not Grows.TOKEN or self.part is not Part.ENTRIES or tokens < self.skip_last:
            return Fraction(0)
        if self.keep_last is not None and tokens - self.skip_last >= self.keep_last:
            return Fraction(0)
        return Fraction(self.entry_bytes, self.stride)
