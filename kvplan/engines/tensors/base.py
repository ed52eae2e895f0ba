"""The allocation of one rank, as values: raw allocations, strided views on them, block pools and groups.

Every cache of every engine is a window of bytes ``[blocks, heads, states, content]`` on a raw
allocation: a *state* is one stored entry (a token's K and V of one head, a latent, a whole recurrent state),
``content`` its bytes. The axes are vLLM's logical ``[B, H, N, C]`` (vllm-project/vllm 0.32
vllm/v1/kv_cache_interface.py); the other engines' tensors are the same window with other strides.
"""

from __future__ import annotations

from enum import Enum
from math import prod

from kvplan.record import record
from kvplan.units import ceil_div


class GroupKind(str, Enum):
    """How a group's block table behaves as a request grows."""

    FULL = "full"
    WINDOW = "window"
    CHUNK = "chunk"
    STATE = "state"
    CROSS = "cross"


@record()
class Rank:
    """Which GPU of a replica: pipeline stage, tensor-parallel rank, decode-context rank within it."""

    stage: int = 0
    tensor: int = 0
    context: int = 0


@record()
class Allocation:
    """One tensor as the engine asks torch (or ggml) for it. dtype: a torch name, or a ggml block type.

    bytes: what shape and dtype come to; kept beside them because a ggml block type has no torch dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


@record()
class Component:
    """A part of a state's content: K, V, scales, latent, rope key, conv or recurrent state.

    offset and bytes lie within the content of one state (of one head); ``dtype`` is how the bytes are read
    ("uint8" for packed formats, whose bits mean nothing by themselves).
    """

    name: str
    offset: int
    bytes: int
    dtype: str


@record()
class View:
    """One layer's window on an allocation. Byte (b, h, n, c) lies at offset + b·block_stride + h·head_stride
    + n·state_stride + c. ``layer``: number in the model; ``group``: index into Layout.groups."""

    name: str
    layer: int
    group: int
    allocation: int
    offset: int
    blocks: int
    heads: int
    states: int
    content: int
    block_stride: int
    head_stride: int
    state_stride: int
    components: tuple[Component, ...]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (self.blocks, self.heads, self.states, self.content)

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """In bytes."""
        return (self.block_stride, self.head_stride, self.state_stride, 1)

    @property
    def bytes(self) -> int:
        """Bytes addressed, padding between blocks left out."""
        return prod(self.shape)

    @property
    def end(self) -> int:
        """One past the last byte addressed."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return self.offset + last + 1


@record()
class BlockPool:
    """Block ids 0 … num_blocks - 1 that groups draw from; ids below ``first`` are never handed out.

    first: 1 where block 0 is the null block (vLLM) or the padding slot (SGLang). slots: a block is a whole
    request's place (llama.cpp's streams, transformers' rows of a batch).
    """

    name: str
    num_blocks: int
    first: int = 0

    @property
    def usable(self) -> int:
        return self.num_blocks - self.first


@record()
class Group:
    """Layers with one block table."""

    name: str
    kind: GroupKind
    pool: int
    layers: int
    block_size: int
    """tokens of one block (on this rank)"""
    window: int | None = None
    """tokens visible, the newest included (a chunk's length for chunks)"""
    limit: int | None = None
    """the most tokens of one request that hold blocks at a time (None: all)"""
    extra: int = 0
    """blocks beside those"""
    fixed: int | None = None
    """blocks of a request whatever its length"""
    shards: int = 1
    """decode-context ranks that tokens are dealt over"""
    ring: bool = False
    """a request's positions wrap around its blocks, which are never given back before it ends"""
    kept: int | None = None
    """of ``fixed`` blocks, those that a request keeps once its prompt is computed (None: all)"""

    def visible(self, tokens: int) -> int:
        """The first position that the token after ``tokens`` sees."""
        if self.window is None or self.kind in (GroupKind.STATE, GroupKind.CROSS):
            return 0
        if self.kind is GroupKind.CHUNK:
            return tokens // self.window * self.window
        return max(0, tokens - self.window + 1)

    def asked(self, tokens: int, encoder_tokens: int = 0) -> int:
        """Blocks that must be free to admit a request where the engine settles: of a window no more than its
        tokens take; of states one for each block of the prompt, up to what is charged."""
        charge = self.blocks(tokens, encoder_tokens)
        if self.kept is not None:
            blocks = max(1, ceil_div(tokens, self.block_size * self.shards))
            return min(charge, min(blocks, max(1, charge - self.kept)) + self.kept - 1)
        if self.window is None or self.fixed is not None or self.ring or self.kind is GroupKind.CROSS:
            return charge
        return min(charge, ceil_div(ceil_div(tokens, self.shards), self.block_size))

    def settled(self, tokens: int, encoder_tokens: int = 0, *, context: int = 0) -> int:
        """Blocks that a request keeps on a context rank once its tokens are computed and nothing is in
        flight: those of a window that the next token sees, of states the newest."""
        charge = self.blocks(tokens, encoder_tokens)
        if self.fixed is not None:
            return charge if self.kept is None else min(charge, self.kept)
        if self.window is None or self.ring or self.kind is GroupKind.CROSS:
            return charge
        needed = ceil_div(self.local(tokens, context), self.block_size)
        covered = min(charge, needed)
        unseen = self.local(self.visible(tokens), context) // self.block_size - (needed - covered)
        # One stays: what the newest token saw goes when the next one is computed.
        return covered - max(0, min(unseen, covered - 1))

    def local(self, tokens: int, context: int) -> int:
        """How many of the first ``tokens`` lie on this context rank (dealt one by one)."""
        return ceil_div(max(0, tokens - context % self.shards), self.shards)

    def blocks(self, tokens: int, encoder_tokens: int = 0) -> int:
        """Blocks that one request of this length is charged for."""
        if self.kind is GroupKind.CROSS:
            return ceil_div(encoder_tokens, self.block_size)
        if self.fixed is not None:
            return self.fixed
        held = tokens if self.limit is None else min(tokens, self.limit)
        return ceil_div(ceil_div(held, self.shards), self.block_size) + self.extra


@record()
class Layout:
    """All of one rank."""

    engine: str
    version: str
    rank: Rank
    allocations: tuple[Allocation, ...]
    views: tuple[View, ...]
    pools: tuple[BlockPool, ...]
    groups: tuple[Group, ...]
    predicted_bytes: int
    """what the engine's rules say that the allocations take"""
    tokens: int
    encoder_tokens: int
    requests: int
    """how many requests of ``tokens`` (and ``encoder_tokens``) they say fit"""
    max_model_len: int
    num_attention_heads: int = 0
    """query heads of the rank, for the attention probe (0: not known)"""
    settles: bool = False
    """whether a request gives back what was reserved for its prompt before the next is admitted, and is
    admitted by its tokens alone"""

    def admitted(self, group: Group, tokens: int, encoder_tokens: int) -> int:
        """Blocks that a request takes of a group when it is admitted."""
        return (group.asked if self.settles else group.blocks)(tokens, encoder_tokens)

    @property
    def bytes(self) -> int:
        return sum(allocation.bytes for allocation in self.allocations)
