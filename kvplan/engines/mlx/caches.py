"""The caches of a request, layer by layer: one for each term, with the rule by which its rows grow.

ml-explore/mlx-lm 0.32.2 mlx_lm/models/cache.py: nbytes of KVCache, RotatingKVCache, QuantizedKVCache and
ArraysCache; a quantised row has 32-bit words of its numbers, and a scale and a bias of the model's element
type for each group (mlx.core.quantize).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kvplan.dtypes import FLOAT32, KvDtype, Packing, VectorFormat, kv_dtype
from kvplan.engines.mlx.models import EXPANDED, MODEL_STATES, quantises, rotates, type_of
from kvplan.engines.mlx.rows import Course, chunked_rows, growing_rows, rotating_rows
from kvplan.errors import RefusedError
from kvplan.families import (
    ChunkedAttention,
    FullAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    Kind,
    Mamba1,
    Mamba2,
    MultiHeadLatentAttention,
    NoCache,
    Part,
    SharedKv,
    ShortConvolution,
    SlidingWindow,
    SparseIndexer,
    Storage,
    unwindowed,
)
from kvplan.model import Layer, Model
from kvplan.record import record, replace
from kvplan.terms import Factor, Term


class Grows(str, Enum):
    """How a cache's rows grow."""

    WHOLE = "full"
    ROTATING = "window"
    CHUNKED = "chunk"
    STATE = "state"


@record()
class Cache:
    """One term of so many layers. size: rows of a rotating cache."""

    term: Term
    grows: Grows
    layers: int
    size: int = 0

    def rows(self, course: Course) -> int:
        """Entries that its array has room for."""
        if self.grows is Grows.STATE:
            return 1
        if self.grows is Grows.CHUNKED:
            return chunked_rows(course, self.size)
        return growing_rows(course) if self.grows is Grows.WHOLE else rotating_rows(course, self.size)

    def bytes(self, course: Course) -> int:
        """rows · bytes of an entry · layers."""
        return self.rows(course) * self.term.entry_bytes * self.layers


@record()
class Kept:
    """How a request's cache is kept: element is the model's type; bits and group of a quantised one;
    max_size: what ``max_kv_size`` bounds each layer to."""

    element: Packing
    bits: int | None = None
    group: int = 64
    max_size: int | None = None

    def stored(self) -> KvDtype:
        """K, V and latents."""
        if self.bits is None:
            return kv_dtype(self.element.name)
        form = VectorFormat(self.bits, self.group, 2 * self.element.bytes)
        return KvDtype(f"{self.bits} bits, groups of {self.group}", form, form, form, form)


def caches_of(model: Model, kept: Kept) -> tuple[Cache, ...]:
    """The caches of every layer. Raises RefusedError(unsupported-model) for a family without a rule."""
    layers = model.distinct().items()
    return tuple(cache for layer, count in layers for cache in of_layer(model, layer, kept, count))


def of_layer(model: Model, layer: Layer, kept: Kept, count: int = 1) -> list[Cache]:
    """The caches of so many layers of one kind. Raises as `caches_of`."""
    found = []
    for part in layer.parts:
        kept_part, grows, size = _rule(model, part, kept)
        found += [Cache(term, grows, count, size) for term in terms_of(model, kept_part, kept)]
    return found


def _rule(model: Model, part: Part, kept: Kept) -> tuple[Part, Grows, int]:
    """The part with the tokens that mlx-lm keeps of it, how its rows grow, and the rows that bound it."""
    if type(part) not in TERMS_OF and type(unwindowed(part)) not in TERMS_OF:
        raise RefusedError(
            "unsupported-model",
            f"how mlx-lm keeps {part.family} is not known here",
            help=("--engine llamacpp", "--engine generic"),
        )
    bound = part.window
    if bound is not None and part.kind is Kind.SLIDING and rotates(model):
        return part, Grows.ROTATING, bound
    if bound is not None and part.kind is Kind.CHUNKED:
        return part, Grows.CHUNKED, bound
    part = unwindowed(part)
    if part.kind is Kind.STATE:
        return part, Grows.STATE, 0
    if kept.max_size is not None:
        return part, Grows.ROTATING, kept.max_size
    return part, Grows.WHOLE, 0


def terms_of(model: Model, part: Part, kept: Kept) -> tuple[Term, ...]:
    """The terms of a part as mlx-lm stores them."""
    plain = kv_dtype(kept.element.name)
    store = Storage(
        kv=kept.stored() if quantises(model) else plain,
        dtype=kept.element,
        conv_state=kept.element,
        recurrent_state=kept.element if type_of(model) in MODEL_STATES else FLOAT32,
        index_key=plain,
    )
    return TERMS_OF[type(part)](part, store, type_of(model))


def _as_they_are(part: Part, store: Storage, name: str) -> tuple[Term, ...]:
    return part.terms(store)


def _latent(part: MultiHeadLatentAttention, store: Storage, name: str) -> tuple[Term, ...]:
    if name not in EXPANDED:
        return part.terms(store)
    heads = FullAttention(
        part.num_heads, part.qk_nope_head_dim + part.qk_rope_head_dim, v_head_dim=part.v_head_dim
    )
    return heads.terms(store)


def _index_key(part: SparseIndexer, store: Storage, name: str) -> tuple[Term, ...]:
    """The indexer's KVCache gets its keys as values too (deepseek_v32.py, Indexer)."""
    (key,) = part.terms(store)
    return (replace(key, factors=(Factor("k_and_v", 2), *key.factors)),)


def _shared(part: SharedKv, store: Storage, name: str) -> tuple[Term, ...]:
    """hunyuan_v1_dense.py knows no sharing."""
    heads = part.library_kv_heads
    return FullAttention(heads, part.library_head_dim).terms(store) if heads else ()


TERMS_OF: dict[type[Part], Callable[..., tuple[Term, ...]]] = {
    **dict.fromkeys((FullAttention, SlidingWindow, ChunkedAttention, NoCache), _as_they_are),
    **dict.fromkeys((GatedDeltaNet, KimiDeltaAttention, Mamba1, Mamba2, ShortConvolution), _as_they_are),
    MultiHeadLatentAttention: _latent,
    SparseIndexer: _index_key,
    SharedKv: _shared,
}
"""Families that mlx-lm's classes keep."""
