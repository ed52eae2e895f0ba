"""The terms and element types of transformers' cache classes (huggingface/transformers 5.24.0
src/transformers/cache_utils.py), which are not always what the architecture needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from kvplan.dtypes import FLOAT32, INT64, Packing, scalar
from kvplan.engines.transformers.versions import Rules
from kvplan.families import (
    CompressedAttention,
    FullAttention,
    MultiHeadLatentAttention,
    Part,
    SharedKv,
    SlidingWindow,
    SparseIndexer,
    Storage,
    in_window,
)
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import Serving
from kvplan.terms import Factor, Term
from kvplan.terms import Part as Kept


@lru_cache(maxsize=8192)
def library_terms(part: Part, store: Storage, rules: Rules) -> tuple[Term, ...]:
    """The terms of a part as the transformers class of a release keeps them, which is not always what the
    architecture needs.

    cache_utils.py slices a window as ``[-(window - 1):]``, which keeps everything for a window of one token.
    """
    rule = TERMS_OF.get(type(part))
    terms = part.terms(store) if rule is None else rule(part, store, rules)
    return tuple(replace(term, keep_last=None) if term.keep_last == 0 else term for term in terms)


def _heads(part: FullAttention, store: Storage, rules: Rules) -> tuple[Term, ...]:
    if part.broadcast_heads:
        # K and V are repeated to all heads before they are cached (models/falcon).
        part = replace(part, num_kv_heads=part.broadcast_heads)
    window = part.library_window
    return (in_window(part, window) if window else part).terms(store)


def _window(part: SlidingWindow, store: Storage, rules: Rules) -> tuple[Term, ...]:
    return replace(part, sliding_window=part.library_window or part.sliding_window).terms(store)


def _latent(part: MultiHeadLatentAttention, store: Storage, rules: Rules) -> tuple[Term, ...]:
    terms = replace(part, sliding_window=part.library_window or part.sliding_window).terms(store)
    if rules.latent_kept:
        return terms
    kept, heads = terms[0].keep_last, Factor("num_heads", part.num_heads, sharded=True)
    qk, width = part.qk_nope_head_dim + part.qk_rope_head_dim, part.v_head_dim
    return (
        Term("k", (heads, Factor("qk_head_dim", qk)), store.kv.key_packing(qk), keep_last=kept),
        Term("v", (heads, Factor("v_head_dim", width)), store.kv.value_packing(width), keep_last=kept),
    )


def _shared(part: SharedKv, store: Storage, rules: Rules) -> tuple[Term, ...]:
    """Some classes ignore the sharing (models/hunyuan_v1_dense, models/hunyuan_v1_moe)."""
    heads = part.library_kv_heads
    return FullAttention(heads, part.library_head_dim).terms(store) if heads else ()


def _compressed(part: CompressedAttention, store: Storage, rules: Rules) -> tuple[Term, ...]:
    """Plain windows have an ordinary cache: the latent lies in it twice. A finished group's gate has its
    position bias added, and so the bias's type (DeepseekV4CSACache.update_overlap_state)."""
    terms = part.terms(store)
    if part.compress_rate is not None:
        if not rules.overlap_gate_float32:
            return terms
        return tuple(each for term in terms for each in (_gate_apart(term) if _overlaps(term) else (term,)))
    return tuple(replace(term, factors=(Factor("k_and_v", 2), *term.factors)) for term in terms)


def _overlaps(term: Term) -> bool:
    return term.part is Kept.FILLED


def _gate_apart(term: Term) -> tuple[Term, Term]:
    """The value of a finished group in the model's type, its gate in float32."""
    one = term.factors[1:]  # without value_and_gate
    return (
        replace(term, name=f"{term.name}_value", factors=one),
        replace(term, name=f"{term.name}_gate", factors=one, packing=FLOAT32),
    )


def _index_keys(part: SparseIndexer, store: Storage, rules: Rules) -> tuple[Term, ...]:
    (key,) = part.terms(store)
    key = replace(key, packing=FLOAT32) if part.float32_key else key
    rows = Factor("position_rows", part.position_rows)
    return (key, Term("index_positions", (rows,), INT64)) if part.position_rows else (key,)


TERMS_OF: dict[type[Part], Callable[..., tuple[Term, ...]]] = {
    FullAttention: _heads,
    SlidingWindow: _window,
    MultiHeadLatentAttention: _latent,
    SharedKv: _shared,
    CompressedAttention: _compressed,
    SparseIndexer: _index_keys,
}
"""Families that a class of the library may keep otherwise than the architecture needs."""


@lru_cache(maxsize=4096)
def part_store(part: Part, base: Storage) -> Storage:
    return replace(base, recurrent_state=FLOAT32 if part.library_state == "float32" else base.dtype)


def element_of(model: Model, settings: Serving) -> tuple[Packing, list[str]]:
    """The cache's element type: as asked, else the checkpoint's, else float32 (torch's default)."""
    if settings.dtype != "auto":
        return scalar(settings.dtype), []
    if model.dtype:
        return scalar(model.dtype), []
    return FLOAT32, ["the config states no dtype: float32, as transformers builds it; give --dtype"]
