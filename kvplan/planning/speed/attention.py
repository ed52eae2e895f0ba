"""Reads and operations of attention, or of a state: bytes from the terms, operations from the shapes.

Bytes are those of the terms (kvplan/terms.py) on one rank; a state is read and written. Operations of one
query against one key: 2 · heads · (width of the scores + width of the values). MLA decodes in the latent
(absorbed matrices) and prefills with expanded heads, as the engines do (vllm-project/vllm
vllm/v1/attention/backends/mla/common.py); behind an indexer it prefills in the latent too
(flashmla_sparse.py there, forward_mqa).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvplan.engines.base import rank_terms
from kvplan.errors import RefusedError
from kvplan.families import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Kind,
    MultiHeadLatentAttention,
    Part,
    SlidingWindow,
    SparseIndexer,
    Storage,
)
from kvplan.model import Layer, Model
from kvplan.record import Json, record
from kvplan.terms import Grows, Term
from kvplan.terms import Part as Held
from kvplan.units import ceil_div

STATE_FLOPS = 6
"""Operations on each number of a recurrent state for one token: decay, outer product and read-out, each a
multiplication and an addition (Dao & Gu, Mamba-2, arXiv 2405.21060, §3)."""


@record()
class Flops:
    """Operations of one query and one key while decoding and while prefilling, and of a token on a state."""

    decode: float
    prefill: float
    state: float = 0.0


@record()
class CacheRead:
    """Reads of one kind of part on one rank, for all ``count`` layers of a stage together."""

    fixed_bytes: int
    """per request, read and written once a step"""
    slopes: tuple[tuple[int, int | None], ...]
    """(bytes of a token, tokens kept or None)"""
    terms: tuple[tuple[Term, int], ...]
    """what follows no straight line"""
    flops: Flops
    span: int | None
    """keys that a query sees at most (None: all)"""
    encoder: bool = False
    """the keys are the encoder's"""
    context_ways: int = 1
    """ranks that decode context parallelism deals tokens over"""

    def held_bytes(self, tokens: int, encoder_tokens: int = 0) -> int:
        """Bytes that one request of this length holds, by the terms."""
        return self.fixed_bytes + self._grown(tokens, encoder_tokens)

    def step_bytes(self, tokens: int, encoder_tokens: int = 0) -> int:
        """Bytes that one decode step moves for one request: its cache, and its states twice."""
        return 2 * self.fixed_bytes + self._grown(tokens, encoder_tokens)

    def _grown(self, tokens: int, encoder_tokens: int) -> int:
        if self.context_ways > 1:  # tokens are dealt over ranks; the fullest has one more than the others
            tokens = ceil_div(tokens, self.context_ways)
        total = 0
        for size, kept in self.slopes:
            total += size * (tokens if kept is None or tokens < kept else kept)
        for term, count in self.terms:
            total += count * term.bytes_at(tokens, encoder_tokens)
        return total

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> float:
        """Operations of one new token after ``tokens`` others."""
        keys = encoder_tokens if self.encoder else tokens
        if self.span is not None and keys > self.span:
            keys = self.span
        return self.flops.decode * keys + self.flops.state

    def prefill_flops(self, tokens: float, before: int, encoder_tokens: int = 0) -> float:
        """Operations of ``tokens`` new tokens after ``before`` others, causal."""
        pairs = tokens * encoder_tokens if self.encoder else query_key_pairs(tokens, before, self.span)
        return self.flops.prefill * pairs + self.flops.state * tokens


def query_key_pairs(tokens: float, before: int, span: int | None) -> float:
    """Σ over i = 1 … tokens of min(before + i, span): what a causal mask leaves of queries × keys."""
    if span is None or before + tokens <= span:
        return tokens * before + tokens * (tokens + 1) / 2
    growing = max(0.0, float(span - before))
    return growing * before + growing * (growing + 1) / 2 + (tokens - growing) * span


def cache_reads(
    model: Model,
    layers: Iterable[tuple[Layer, int]],
    store_for: Callable[[Part], Storage],
    tensor_parallel_size: int,
    context_parallel_size: int,
) -> tuple[CacheRead, ...]:
    """One entry for each kind of part of these layers. Raises RefusedError(no-speed-rule)."""
    return tuple(
        _read(model, layer, part, count, store_for(part), tensor_parallel_size, context_parallel_size)
        for layer, count in layers
        for part in layer.parts
        if part.kind is not Kind.INDEXER or not _shares(layer)
    )


def readers_of(layers: list[Layer]) -> list[Layer]:
    """The layers with what they read: one that shares a cache reads that of the last layer which has one."""
    read: list[Layer] = []
    last: Layer | None = None
    for layer in layers:
        if _shares(layer):
            read.append(last if last is not None else layer)
        else:
            last = layer if layer.family != "no_cache" else last
            read.append(layer)
    return read


def _shares(layer: Layer) -> bool:
    return any(part.borrows for part in layer.parts)


def _read(
    model: Model, layer: Layer, part: Part, count: int, store: Storage, ways: int, context_ways: int
) -> CacheRead:
    terms = rank_terms(part, store, ways)
    fixed = sum(term.entry_bytes for term in terms if term.grows is Grows.REQUEST) * count
    slopes: dict[int | None, int] = {}
    others: list[tuple[Term, int]] = []
    limit = _sparse_span(model, layer, part)
    for term in terms:
        if term.grows is Grows.REQUEST:
            continue
        simple = term.grows is Grows.TOKEN and term.part is Held.ENTRIES and term.stride == 1
        if simple and not term.skip_last:
            kept = _least(term.keep_last, limit)
            slopes[kept] = slopes.get(kept, 0) + term.entry_bytes * count
        else:
            others.append((term, count))
    states = sum(term.elements for term in terms if term.grows is Grows.REQUEST) * STATE_FLOPS * count
    rule = FLOPS_OF.get(type(part))
    own = _NO_KEYS if rule is None else rule(model, part, ways)
    if limit is not None:  # each query has keys of its own choice: prompts are computed as answers are
        own = Flops(own.decode, own.decode)
    flops = Flops(own.decode * count / context_ways, own.prefill * count / context_ways, float(states))
    return CacheRead(
        fixed,
        tuple((size, kept) for kept, size in slopes.items()),
        tuple(others),
        flops,
        _least(part.span, limit),
        part.kind is Kind.CROSS,
        context_ways,
    )


def _least(*spans: int | None) -> int | None:
    known = [span for span in spans if span is not None]
    return min(known) if known else None


def _sparse_span(model: Model, layer: Layer, part: Part) -> int | None:
    """How many tokens an indexer lets through. Raises RefusedError(no-speed-rule) where no config says it."""
    if part.kind is not Kind.MLA or Kind.INDEXER not in layer.kinds:
        return None
    return _config_number(model, "index_topk")


def _config_number(model: Model, key: str) -> int:
    config: Json = model.config or {}
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RefusedError("no-speed-rule", f"{model.id} has sparse attention, and its config has no {key}")
    return value


def _heads(model: Model, ways: int) -> float:
    if model.num_attention_heads < 1:
        raise RefusedError("no-speed-rule", f"how many query heads {model.id} has is not known")
    return max(1.0, model.num_attention_heads / ways)


def _of_heads(
    model: Model, part: FullAttention | SlidingWindow | ChunkedAttention | CrossAttention, ways: int
) -> Flops:
    both = 2 * _heads(model, ways) * (part.key_width + part.value_width)
    return Flops(both, both)


def _of_latent(model: Model, part: MultiHeadLatentAttention, ways: int) -> Flops:
    heads = max(1.0, part.num_heads / ways) if part.num_heads else _heads(model, ways)
    absorbed = 2 * heads * (2 * part.kv_lora_rank + part.qk_rope_head_dim)
    expanded = 2 * heads * (part.qk_nope_head_dim + part.qk_rope_head_dim + part.v_head_dim)
    return Flops(absorbed, expanded if part.v_head_dim else absorbed)


def _of_indexer(model: Model, part: SparseIndexer, ways: int) -> Flops:
    both = 2.0 * _config_number(model, "index_n_heads") * part.index_head_dim
    return Flops(both, both)


def _of_compressed(model: Model, part: CompressedAttention, ways: int) -> Flops:
    per_key = 4 * _heads(model, ways) * part.head_dim / (part.compress_rate or 1)
    return Flops(per_key, per_key)


FLOPS_OF: dict[type[Part], Callable[[Model, Any, int], Flops]] = {
    FullAttention: _of_heads,
    SlidingWindow: _of_heads,
    ChunkedAttention: _of_heads,
    CrossAttention: _of_heads,
    MultiHeadLatentAttention: _of_latent,
    SparseIndexer: _of_indexer,
    CompressedAttention: _of_compressed,
}
"""Operations of one layer on one rank, for one query and one key, by its family; others have no keys."""
_NO_KEYS = Flops(0.0, 0.0)
