"""Multi-head latent attention: one latent and one rope key per token, the same for all heads."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage, kept_tokens
from kvplan.record import record
from kvplan.terms import Factor, Term


@record()
class MultiHeadLatentAttention(Family):
    """kv_lora_rank + qk_rope_head_dim numbers per token, replicated over tensor parallelism.

    With ``sliding_window`` only the newest tokens are kept (``library_window``: by transformers alone).
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    num_heads: int = 0
    qk_nope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int | None = None
    library_window: int | None = None

    family: ClassVar[str] = "mla"
    kind: ClassVar[Kind] = Kind.MLA
    formula: ClassVar[str] = "tokens · (kv_lora_rank + qk_rope_head_dim) · element"
    source: ClassVar[str] = "DeepSeek-V2 (arXiv 2405.04434) §2.1"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        kept = None if self.sliding_window is None else kept_tokens(store, self.sliding_window)
        rank, rope = self.kv_lora_rank, self.qk_rope_head_dim
        return (
            Term("latent", (Factor("kv_lora_rank", rank),), store.kv.latent_packing(rank), keep_last=kept),
            Term(
                "rope_key", (Factor("qk_rope_head_dim", rope),), store.kv.rope_packing(rope), keep_last=kept
            ),
        )
