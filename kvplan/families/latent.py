"""Attention over latents that all heads share, whole or compressed, and the token indexer beside it."""

from __future__ import annotations

from typing import ClassVar, Literal

from kvplan.dtypes import VectorFormat
from kvplan.families.base import Family, Kind, Storage, kept_tokens
from kvplan.record import record
from kvplan.terms import Factor, Part, Term


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
    kind: ClassVar[Literal[Kind.MLA]] = Kind.MLA
    formula: ClassVar[str] = "tokens · (kv_lora_rank + qk_rope_head_dim) · element"
    source: ClassVar[str] = "DeepSeek-V2 (arXiv 2405.04434) §2.1"

    @property
    def key_width(self) -> int:
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def window(self) -> int | None:
        return self.sliding_window

    def terms(self, store: Storage) -> tuple[Term, ...]:
        kept = None if self.sliding_window is None else kept_tokens(store, self.sliding_window)
        rank, rope = self.kv_lora_rank, self.qk_rope_head_dim
        return (
            Term("latent", (Factor("kv_lora_rank", rank),), store.kv.latent_packing(rank), keep_last=kept),
            Term(
                "rope_key", (Factor("qk_rope_head_dim", rope),), store.kv.rope_packing(rope), keep_last=kept
            ),
        )


# 448 fp8 values, 7 E8M0 scales (one per 64) and one byte of padding; the 64 rope values stay bf16.
RECORD_NOPE = VectorFormat(8, 64, 1, align=8)


@record()
class CompressedAttention(Family):
    """One latent that serves as K and V: the window's, and one per ``compress_rate`` tokens.

    compress_rate None: window only. ``overlapping`` (sparse layers): two gated streams wait, and the last
    finished group is kept for the overlap.
    """

    head_dim: int
    sliding_window: int
    compress_rate: int | None = None
    overlapping: bool = False
    index_head_dim: int | None = None
    """the layer has an indexer, compressed in the same way. transformers models/deepseek_v4: window min(T,
    W-1) * head_dim, floor(T / m) * width entries, (T mod m) * 2 * width waiting (doubled when
    overlapping), 2 * m * width once T >= m. index_of_latent (DeepSeek-V4.1): index keys are made of the
    compressed latents, nothing waits for them."""
    qk_rope_head_dim: int = 64
    index_of_latent: bool = False

    family: ClassVar[str] = "compressed_attention"
    kind: ClassVar[Literal[Kind.COMPRESSED]] = Kind.COMPRESSED
    formula: ClassVar[str] = (
        "min(tokens, sliding_window) · head_dim + floor(tokens / compress_rate) · (head_dim + index_head_dim)"
        " + waiting tokens; all · element"
    )
    source: ClassVar[str] = (
        "huggingface/transformers models/deepseek_v4; vllm-project/vllm models/deepseek_v4"
    )

    @property
    def key_width(self) -> int:
        return self.head_dim

    @property
    def window(self) -> int | None:
        return self.sliding_window

    def terms(self, store: Storage) -> tuple[Term, ...]:
        kept = kept_tokens(store, self.sliding_window)
        if self.compress_rate is None:
            return (self._latent("window_latent", store, keep_last=kept),)
        terms = [self._latent("window_latent", store, keep_last=kept)]
        rate = self.compress_rate
        terms.append(self._latent("compressed_latent", store, stride=rate))
        if rate > 1:
            terms += self._waiting("latent", self.head_dim, store)
        if self.index_head_dim:
            width = Factor("index_head_dim", self.index_head_dim)
            packing = store.index_key.key_packing(self.index_head_dim)
            terms.append(Term("compressed_index_key", (width,), packing, stride=rate))
            if not self.index_of_latent:
                terms += self._waiting("index_key", self.index_head_dim, store)
        return tuple(terms)

    def _latent(
        self,
        name: str,
        store: Storage,
        *,
        keep_last: int | None = None,
        stride: int = 1,
    ) -> Term:
        packing = store.kv.latent_packing(self.head_dim)
        return Term(name, (Factor("head_dim", self.head_dim),), packing, keep_last=keep_last, stride=stride)

    def _waiting(self, name: str, width: int, store: Storage) -> list[Term]:
        """Tokens that no entry covers yet: their value and gate, for one or two streams."""
        assert self.compress_rate is not None
        rate = self.compress_rate
        streams = Factor("streams", 2 if self.overlapping else 1)
        wide = Factor("width", width)
        value_gate = Factor("value_and_gate", 2)
        waiting = [
            Term(f"{name}_waiting", (streams, value_gate, wide), store.dtype, stride=rate, part=Part.WAITING)
        ]
        if self.overlapping:
            overlap = (value_gate, Factor("compress_rate", rate), wide)
            waiting.append(Term(f"{name}_overlap", overlap, store.dtype, stride=rate, part=Part.FILLED))
        return waiting


@record()
class SparseIndexer(Family):
    """index_head_dim numbers per token, replicated; fp8 with one fp32 scale in the serving engines."""

    index_head_dim: int
    """of GLM-5.3-Flash twice the key's and one: transformers keeps every token's key, gate and flag"""
    float32_key: bool = False
    """the transformers class keeps it in fp32, not in the model's dtype"""
    position_rows: int = 0
    """int64 rows of positions that it keeps beside the key (models/qwen4_exp)"""
    kpool: int = 1
    """tokens of which an engine that pools keeps one key (`pooled_width`)"""
    group: int = 1
    """tokens of one key of Qwen4-Exp; until the group is full an engine that groups keeps the tokens' own"""
    axes: int = 0
    """int64 positions of each of those"""

    family: ClassVar[str] = "sparse_indexer"
    kind: ClassVar[Literal[Kind.INDEXER]] = Kind.INDEXER
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
