"""Sliding-window attention, with or without attention sinks (StreamingLLM)."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage, kept_tokens, kv_terms
from kvplan.record import record
from kvplan.terms import Term


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
    kind: ClassVar[Kind] = Kind.SLIDING
    formula: ClassVar[str] = (
        "min(tokens, sink_tokens + sliding_window) · num_kv_heads · (head_dim + v_head_dim) · element"
    )
    source: ClassVar[str] = (
        "Beltagy et al., Longformer (arXiv 2004.05150); sinks: Xiao et al. (arXiv 2309.17453)"
    )

    def terms(self, store: Storage) -> tuple[Term, ...]:
        kept = kept_tokens(store, self.sink_tokens + self.sliding_window)
        return kv_terms(
            store, self.num_kv_heads, self.head_dim, self.v_head_dim or self.head_dim, keep_last=kept
        )
