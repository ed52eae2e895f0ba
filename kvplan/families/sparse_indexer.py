"""The token indexer beside sparse attention: one small key per token (DeepSeek-V3.2, GLM-5)."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage
from kvplan.record import record
from kvplan.terms import Factor, Term


@record()
class SparseIndexer(Family):
    """index_head_dim numbers per token, replicated; fp8 with one fp32 scale in the serving engines.

    The transformers classes keep the key in the model's dtype (``float32_key``: always fp32), and
    ``position_rows`` int64 rows of positions beside it (models/qwen4_exp). Of GLM-5.3-Flash they keep every
    token's key, gate and flag, so the width is twice the key's and one; an engine that pools keeps one key of
    every ``kpool`` tokens (`pooled_width`). Qwen4-Exp's keys are of ``group`` tokens once the group is full;
    until then an engine that groups keeps the tokens' own keys, with ``axes`` int64 positions each.
    """

    index_head_dim: int
    float32_key: bool = False
    position_rows: int = 0
    kpool: int = 1
    group: int = 1
    axes: int = 0

    family: ClassVar[str] = "sparse_indexer"
    kind: ClassVar[Kind] = Kind.INDEXER
    formula: ClassVar[str] = "tokens · (index_head_dim · element + scale)"
    source: ClassVar[str] = "DeepSeek-V3.2-Exp report; vllm-project/vllm DeepseekV32IndexerCache"

    @property
    def pooled_width(self) -> int:
        """Numbers of one key where keys are pooled: the width without gate and flag."""
        width: int = self.index_head_dim
        return (width - 1) // 2 if self.kpool > 1 else width

    def terms(self, store: Storage) -> tuple[Term, ...]:
        width = self.index_head_dim
        return (Term("index_key", (Factor("index_head_dim", width),), store.index_key.key_packing(width)),)
