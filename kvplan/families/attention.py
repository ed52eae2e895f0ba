"""Attention with K and V of its own heads: full, windows, chunks, an encoder's; and layers that keep
nothing, because they read another layer's or have none.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeVar

from kvplan.families.base import Family, Kind, Storage, kept_tokens, kv_terms
from kvplan.record import record
from kvplan.terms import Grows, Term

P = TypeVar("P")


@record()
class FullAttention(Family):
    """K and V of every token.

    bytes per token = num_kv_heads * (head_dim + v_head_dim) * element size. ``broadcast_heads``: the
    transformers class repeats K and V to this many heads before it caches them (Falcon's new decoder
    architecture, transformers models/falcon/modeling_falcon.py). ``library_window``: transformers' cache
    keeps a window because the config has a stray ``sliding_window``, which the model itself never reads
    (cache_utils.py, get_layer_types_and_kwargs).
    """

    num_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    broadcast_heads: int | None = None
    library_window: int | None = None

    family: ClassVar[str] = "full_attention"
    kind: ClassVar[Literal[Kind.FULL]] = Kind.FULL
    formula: ClassVar[str] = "tokens · num_kv_heads · (head_dim + v_head_dim) · element"
    source: ClassVar[str] = "Ainslie et al., GQA (arXiv 2305.13245); Shazeer, MQA (arXiv 1911.02150)"

    @property
    def key_width(self) -> int:
        return self.head_dim

    @property
    def value_width(self) -> int:
        return self.v_head_dim or self.head_dim

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return kv_terms(store, self.num_kv_heads, self.head_dim, self.value_width)


@record()
class SlidingWindow(Family):
    """K and V of the newest ``sliding_window`` tokens, and of ``sink_tokens`` first ones.

    bytes = min(tokens, sink_tokens + sliding_window) * num_kv_heads * (head_dim + v_head_dim) * element
    size. transformers keeps sliding_window - 1 tokens between steps (cache_utils.py,
    DynamicSlidingWindowLayer). ``library_window``: the transformers class counts the window otherwise
    (models/mimo_v2_flash adds the token itself).
    """

    num_kv_heads: int
    head_dim: int
    sliding_window: int
    v_head_dim: int | None = None
    sink_tokens: int = 0
    library_window: int | None = None

    family: ClassVar[str] = "sliding_window"
    kind: ClassVar[Literal[Kind.SLIDING]] = Kind.SLIDING
    formula: ClassVar[str] = (
        "min(tokens, sink_tokens + sliding_window) · num_kv_heads · (head_dim + v_head_dim) · element"
    )
    source: ClassVar[str] = (
        "Beltagy et al., Longformer (arXiv 2004.05150); sinks: Xiao et al. (arXiv 2309.17453)"
    )

    @property
    def key_width(self) -> int:
        return self.head_dim

    @property
    def value_width(self) -> int:
        return self.v_head_dim or self.head_dim

    @property
    def window(self) -> int | None:
        return self.sliding_window

    @property
    def span(self) -> int | None:
        return self.sink_tokens + self.sliding_window

    def terms(self, store: Storage) -> tuple[Term, ...]:
        kept = kept_tokens(store, self.sink_tokens + self.sliding_window)
        return kv_terms(store, self.num_kv_heads, self.head_dim, self.value_width, keep_last=kept)


@record()
class ChunkedAttention(Family):
    """K and V of at most ``attention_chunk_size`` tokens.

    bytes = min(tokens, attention_chunk_size) * num_kv_heads * 2 * head_dim * element size. transformers
    keeps attention_chunk_size - 1 between steps, as for a window.
    """

    num_kv_heads: int
    head_dim: int
    attention_chunk_size: int

    family: ClassVar[str] = "chunked_attention"
    kind: ClassVar[Literal[Kind.CHUNKED]] = Kind.CHUNKED
    formula: ClassVar[str] = "min(tokens, attention_chunk_size) · num_kv_heads · 2 · head_dim · element"
    source: ClassVar[str] = "huggingface/transformers models/llama4/modeling_llama4.py"

    @property
    def key_width(self) -> int:
        return self.head_dim

    @property
    def window(self) -> int | None:
        return self.attention_chunk_size

    def terms(self, store: Storage) -> tuple[Term, ...]:
        kept = kept_tokens(store, self.attention_chunk_size)
        return kv_terms(store, self.num_kv_heads, self.head_dim, self.head_dim, keep_last=kept)


@record()
class CrossAttention(Family):
    """bytes = encoder_tokens * num_kv_heads * 2 * head_dim * element size, constant while decoding."""

    num_kv_heads: int
    head_dim: int

    family: ClassVar[str] = "cross_attention"
    kind: ClassVar[Literal[Kind.CROSS]] = Kind.CROSS
    formula: ClassVar[str] = "encoder_tokens · num_kv_heads · 2 · head_dim · element"
    source: ClassVar[str] = "Vaswani et al. (arXiv 1706.03762)"

    @property
    def key_width(self) -> int:
        return self.head_dim

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return kv_terms(store, self.num_kv_heads, self.head_dim, self.head_dim, grows=Grows.ENCODER_TOKEN)


@record()
class SharedKv(Family):
    """Reads the cache of an earlier layer (Gemma-3n, Gemma-4, Hunyuan CLA): 0 bytes.

    ``library_kv_heads`` and ``library_head_dim``: the transformers class ignores the sharing and
    keeps K and V all the same (models/hunyuan_v1_dense, models/hunyuan_v1_moe).
    """

    library_kv_heads: int = 0
    library_head_dim: int = 0

    family: ClassVar[str] = "shared_kv"
    kind: ClassVar[Literal[Kind.NONE]] = Kind.NONE
    borrows: ClassVar[bool] = True
    formula: ClassVar[str] = "0"
    source: ClassVar[str] = "Brandon et al., Cross-Layer Attention (arXiv 2405.12981); Gemma-3n report"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return ()


@record()
class NoCache(Family):
    """A layer without attention or state (MLP or experts only, a skipped block): 0 bytes."""

    family: ClassVar[str] = "no_cache"
    kind: ClassVar[Literal[Kind.NONE]] = Kind.NONE
    formula: ClassVar[str] = "0"
    source: ClassVar[str] = "Puzzle (arXiv 2411.19146); Nemotron-H (arXiv 2504.03624)"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return ()


def unwindowed(part: P) -> P | FullAttention:
    """A window's heads, with every token kept; another part as it is."""
    if not isinstance(part, SlidingWindow):
        return part
    return FullAttention(part.num_kv_heads, part.head_dim, v_head_dim=part.v_head_dim)


def in_window(part: P, window: int) -> P | SlidingWindow:
    """The heads of a layer that keeps every token, in a window; another part as it is."""
    if not isinstance(part, FullAttention):
        return part
    return SlidingWindow(part.num_kv_heads, part.head_dim, window, v_head_dim=part.v_head_dim)
