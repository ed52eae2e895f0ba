"""Cross attention: K and V of the encoder's output, filled once per request."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage, kv_terms
from kvplan.record import record
from kvplan.terms import Grows, Term


@record()
class CrossAttention(Family):
    """bytes = encoder_tokens * num_kv_heads * 2 * head_dim * element size, constant while decoding."""

    num_kv_heads: int
    head_dim: int

    family: ClassVar[str] = "cross_attention"
    kind: ClassVar[Kind] = Kind.CROSS
    formula: ClassVar[str] = "encoder_tokens · num_kv_heads · 2 · head_dim · element"
    source: ClassVar[str] = "Vaswani et al. (arXiv 1706.03762)"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return kv_terms(store, self.num_kv_heads, self.head_dim, self.head_dim, grows=Grows.ENCODER_TOKEN)
