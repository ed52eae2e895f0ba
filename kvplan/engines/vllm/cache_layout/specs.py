"""A layer's request to the planner: a ``Spec`` (vllm-project/vllm 0.32 vllm/v1/kv_cache_interface.py).

A page is the memory of one block of one layer: ``block_size // tokens_per_state`` states of ``state_bytes``
(a state layer: one state whatever the block size), rounded up to ``alignment`` or padded to ``padded``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kvplan.record import KeptHash, record, replace
from kvplan.terms import Term
from kvplan.units import ceil_div, round_up

if TYPE_CHECKING:
    from kvplan.engines.vllm.start.resolve import Resolved
    from kvplan.engines.vllm.start.versions import Rules

Shape = tuple[object, ...]


class SpecKind(str, Enum):
    """vLLM's own words (KVCacheSpecKind)."""

    FULL = "full_attention"
    MLA = "mla_attention"
    SLIDING = "sliding_window"
    SLIDING_MLA = "sliding_window_mla"
    CHUNKED = "chunked_local_attention"
    MAMBA = "mamba"
    CROSS = "cross_attention"
    RING = "circular_buffer"
    MIXED = "unknown"


FULL_KINDS = frozenset({SpecKind.FULL, SpecKind.MLA})
SLIDING_KINDS = frozenset({SpecKind.SLIDING, SpecKind.SLIDING_MLA})
LOCAL_KINDS = frozenset({*SLIDING_KINDS, SpecKind.CHUNKED})


@record()
class Spec(KeptHash):
    """One layer's cache."""

    kind: SpecKind
    block_size: int
    state_bytes: int
    shape: Shape
    """what must be equal for two layers to be the same kind of layer (heads, widths, element types)"""
    tokens_per_state: int = 1
    padded: int | None = None
    alignment: int | None = None
    window: int | None = None
    """a sliding window's or a chunk's length"""
    kept_window: int | None = None
    """the window that a layer promoted to full attention still computes with"""
    slots: int | None = None
    """states that one request holds (state layers only), with every_block beside one for each of its
    blocks"""
    every_block: bool = False
    promoted: bool = False
    """a window that was made full (`Rules.promoted_merge`)"""
    dcp_sharded: bool = True
    stride: int = 1
    """bytes of which blocks that hold several layers' pages must be whole multiples
    (block_stride_alignment)"""
    strided: bool = True
    """the kernel follows the stride of blocks, so that a page may be padded (indexes_kv_by_block_stride,
    0.24 to 0.28)"""
    replicated: bool = False
    """a state that every tensor-parallel rank has whole"""

    @property
    def real_page_bytes(self) -> int:
        if self.slots is not None:
            return self.state_bytes
        return self.block_size // self.tokens_per_state * self.state_bytes

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of this layer, padding included."""
        real = self.real_page_bytes
        if self.padded is not None:
            return max(self.padded, real)
        return real if self.alignment is None else round_up(real, self.alignment)

    @property
    def attention(self) -> Shape:
        """Fields that two attention layers of one group must share (AttentionSpec's)."""
        own = (self.block_size, self.dcp_sharded, self.shape, self.page_bytes, self.tokens_per_state)
        return (*own, self.promoted, self.strided)

    def with_block_size(self, block_size: int) -> Spec:
        return replace(self, block_size=block_size)


@record()
class Charge:
    """Blocks that the engine reserves for one request of T tokens in one group.

    ``fixed`` blocks whatever the length; else ceil(ceil(min(T, limit) / shards) / block_size) + extra.
    """

    block_size: int
    limit: int | None = None
    extra: int = 0
    shards: int = 1
    fixed: int | None = None

    def blocks(self, tokens: int) -> int:
        if self.fixed is not None:
            return self.fixed
        held = tokens if self.limit is None else min(tokens, self.limit)
        if self.shards > 1:
            held = ceil_div(held, self.shards)
        return ceil_div(held, self.block_size) + self.extra


@record()
class Scheduling:
    """The meaning of the scheduler settings for the cache.

    in_flight: tokens that are scheduled but not settled; retained: tokens below a window that several
    draft modules still read; encoder_budget: encoder tokens of one batch; shards: decode context parallelism.
    """

    in_flight: int
    retained: int = 0
    encoder_budget: int = 0
    shards: int = 1


def charge_of(spec: Spec, scheduling: Scheduling) -> Charge:
    """max_memory_usage_bytes / page_size_bytes of the spec classes.

    A window holds its W - 1 newest settled tokens and all that are in flight, and may begin in the middle
    of a block (+ 1); a chunk begins at a block.
    """
    if spec.kind is SpecKind.MAMBA:
        if spec.every_block:
            return Charge(spec.block_size, extra=spec.slots or 0)
        return Charge(spec.block_size, fixed=spec.slots)
    if spec.kind is SpecKind.RING:
        return Charge(spec.block_size, fixed=1)
    if spec.kind is SpecKind.CROSS:
        return Charge(spec.block_size, fixed=ceil_div(scheduling.encoder_budget, spec.block_size))
    if spec.kind in SLIDING_KINDS:
        assert spec.window is not None
        limit = spec.window - 1 + scheduling.retained + scheduling.in_flight
        return Charge(spec.block_size, limit=limit, extra=1)
    if spec.kind is SpecKind.CHUNKED:
        assert spec.window is not None
        return Charge(spec.block_size, limit=spec.window + scheduling.in_flight)
    return Charge(spec.block_size, shards=scheduling.shards if spec.dcp_sharded else 1)


def shape_of(terms: tuple[Term, ...]) -> Shape:
    """Names, factors and packings of the terms: equal for layers that store the same things."""
    return tuple((term.name, term.factors, term.packing) for term in terms)


def state_bytes_of(terms: tuple[Term, ...]) -> int:
    """Bytes of one entry of every term: one token of an attention layer, or the whole state."""
    return sum(term.entry_bytes for term in terms)


@record()
class Steps(KeptHash):
    """The scheduler's settings, resolved."""

    batch: int
    """max_num_batched_tokens"""
    depth: int = 1
    """steps under way at once, the one that is scheduled among them"""
    stride: int = 1
    """steps from one token of a request to its next (pipeline stages)"""
    drafts: int = 0
    """tokens that a decoding request takes of a step beside its own"""
    gain: int = 1
    """tokens that it makes in a step"""
    flight: int = 1
    """its steps under way at once, whose drafts it keeps room for"""
    ahead: int = 0
    """slots beyond (num_lookahead_tokens)"""
    slots: int = 0
    """tokens of a step's budget that any request takes besides (max_num_new_slots_for_drafting)"""
    longest: int = 0
    """max_model_len, no slot lies beyond it, 0: none"""
    runway: int = 0
    """tokens before a prompt's end in which no part of it ends (num_prefill_lookahead_tokens)"""
    chunked: bool = True
    """whether prompts may be cut"""
    align: int = 0
    """tokens at whose multiples prompts are cut (state groups), 0: anywhere"""
    hashed: int = 0
    """tokens of the finest prefix hash"""
    drops: bool = False
    """whether a prefix hit drops its last block (EAGLE)"""
    encoder: int = 0
    """encoder, encoders: of an encoder-decoder, tokens of one request's encoder and what one step may
    encode"""
    encoders: int = 0


def steps_of(resolved: Resolved, rules: Rules, states: set[int]) -> Steps:
    """The scheduler's settings. states: block sizes of the state groups.

    Of a pipeline every stage works on a batch of its own, and a request gets its next token once the last has
    gone through all stages. Before 0.26 blocks were given back as soon as a step was scheduled.
    """
    under_way = resolved.pp + int(resolved.async_scheduling)
    if rules.in_flight_batches:
        under_way = resolved.in_flight // resolved.batch.tokens
    align = max(states, default=0) if resolved.mamba_mode == "align" else 0
    return Steps(
        batch=resolved.batch.tokens,
        depth=under_way if rules.in_flight_batches else 1,
        stride=resolved.pp,
        drafts=resolved.spec_tokens,
        flight=ceil_div(under_way, resolved.pp),
        ahead=resolved.lookahead,
        slots=resolved.draft_slots,
        runway=resolved.retained + 1 if resolved.retained else 0,
        chunked=resolved.chunked,
        align=align,
        hashed=align,
        drops=resolved.drops,
    )


def kept_below(kind: SpecKind, limit: int | None, in_flight: int) -> int | None:
    """Of a windowed group: tokens below the next one that it still needs; a chunk's length; else None."""
    if kind not in LOCAL_KINDS or limit is None:
        return None
    return limit - in_flight
