"""The terms and element types of transformers' cache classes (huggingface/transformers 5.23.0
src/transformers/cache_utils.py), which are not always what the architecture needs."""

from __future__ import annotations

from functools import lru_cache

from kvplan.dtypes import FLOAT32, INT64, Packing, scalar
from kvplan.families import (
    CompressedAttention,
    FullAttention,
    MultiHeadLatentAttention,
    Part,
    SharedKv,
    SlidingWindow,
    SparseIndexer,
    Storage,
)
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import Serving
from kvplan.terms import Factor, Term


@lru_cache(maxsize=8192)
def library_terms(part: Part, store: Storage, *, expanded: bool = False) -> tuple[Term, ...]:
    """The terms of a part as the transformers class keeps them, which is not always what the architecture
    needs. expanded: every head's K and V instead of MLA's latent (before 5.15).

    cache_utils.py slices a window as ``[-(window - 1):]``, which keeps everything for a window of one token.
    """
    terms = _as_built(part, store, expanded=expanded)
    return tuple(replace(term, keep_last=None) if term.keep_last == 0 else term for term in terms)


def _as_built(part: Part, store: Storage, *, expanded: bool) -> tuple[Term, ...]:
    if isinstance(part, (FullAttention, SlidingWindow, MultiHeadLatentAttention)) and part.library_window:
        part = _windowed(part, part.library_window)
    if isinstance(part, FullAttention) and part.broadcast_heads:
        # K and V are repeated to all heads before they are cached (models/falcon).
        part = replace(part, num_kv_heads=part.broadcast_heads)
    if isinstance(part, SharedKv) and part.library_kv_heads:
        # The class ignores the sharing (models/hunyuan_v1_dense, models/hunyuan_v1_moe).
        part = FullAttention(part.library_kv_heads, part.library_head_dim)
    terms = part.terms(store)
    if isinstance(part, MultiHeadLatentAttention) and expanded:
        kept, heads = terms[0].keep_last, Factor("num_heads", part.num_heads, sharded=True)
        qk, width = part.qk_nope_head_dim + part.qk_rope_head_dim, part.v_head_dim
        return (
            Term("k", (heads, Factor("qk_head_dim", qk)), store.kv.key_packing(qk), keep_last=kept),
            Term("v", (heads, Factor("v_head_dim", width)), store.kv.value_packing(width), keep_last=kept),
        )
    if isinstance(part, CompressedAttention) and part.compress_rate is None:
        # Plain windows have an ordinary cache: the latent lies in it twice.
        return tuple(replace(term, factors=(Factor("k_and_v", 2), *term.factors)) for term in terms)
    if isinstance(part, SparseIndexer):
        key = replace(terms[0], packing=FLOAT32) if part.float32_key else terms[0]
        rows = Factor("position_rows", part.position_rows)
        return (key, Term("index_positions", (rows,), INT64)) if part.position_rows else (key,)
    return terms


def _windowed(part: FullAttention | SlidingWindow | MultiHeadLatentAttention, window: int) -> Part:
    """The part with the window that the cache keeps, whatever the model reads."""
    if isinstance(part, FullAttention):
        heads = part.broadcast_heads or part.num_kv_heads
        return SlidingWindow(heads, part.head_dim, window, part.v_head_dim)
    return replace(part, sliding_window=window)


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
