"""Chunked local attention (Llama 4): a token sees its own chunk only."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage, kept_tokens, kv_terms
from kvplan.record import record
from kvplan.terms import Term


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
    kind: ClassVar[Kind] = Kind.CHUNKED
    formula: ClassVar[str] = "min(tokens, attention_chunk_size) · num_kv_heads · 2 · head_dim · element"
    source: ClassVar[str] = "huggingface/transformers models/llama4/modeling_llama4.py"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        kept = kept_tokens(store, self.attention_chunk_size)
        return kv_terms(store, self.num_kv_heads, self.head_dim, self.head_dim, keep_last=kept)
