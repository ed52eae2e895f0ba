"""Invariants of block tables, and counts of them."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.engines.tensors.base import GroupKind, Layout
from kvplan.errors import KvplanError
from kvplan.proof.validate.blocks import BlockTables, Request
from kvplan.proof.validate.findings import Fragmentation
from kvplan.proof.validate.memory import Cache
from kvplan.proof.validate.slots import spans

MOST_GROWTH = 300
"""Tokens by which requests grow: over a block's end, unless blocks are longer."""


def missing(tables: BlockTables, request: Request) -> int:
    """States that the next token sees and that no block of the request holds, over all groups (one state a
    token)."""
    lacking = 0
    for index, group in enumerate(tables.groups):
        if group.kind in (GroupKind.STATE, GroupKind.CROSS):
            continue
        first = tables.visible(index, request.tokens)
        needed = tables.local(group, request.tokens) - tables.local(group, first)
        held = sum(span.count for span in spans(tables, request, index, group.block_size, start=first))
        lacking += needed - held
    return lacking


def untouched(cache: Cache) -> bool:
    """Blocks that are never handed out (vLLM's null block, SGLang's page 0) are as they were allocated."""
    for view in cache.layout.views:
        reserved = cache.layout.pools[cache.layout.groups[view.group].pool].first
        if reserved and bool(cache.bytes_of(view)[:reserved].any()):
            return False
    return True


def growth(layout: Layout, tokens: int) -> int:
    """Tokens by which every request can grow: past a block's end, within places that hold a whole request."""
    growing = [
        group
        for group in layout.groups
        if (group.fixed is None or group.ring) and group.kind is not GroupKind.CROSS
    ]
    if not growing:
        return 0
    room = [
        group.block_size * group.blocks(tokens) - tokens
        for group in layout.groups
        if group.ring and group.window is None
    ]
    most = max((group.block_size for group in growing if not group.ring), default=MOST_GROWTH) + 1
    return max(0, min([most, MOST_GROWTH, *room]))


def odd_length(layout: Layout, tokens: int) -> int:
    """A length near ``tokens`` that is charged the same blocks and ends inside a block of every group that
    grows by the token; ``tokens`` itself where there is none. Of several the middle one: such a request has
    tokens in its last block that a fork copies, and room there to grow."""

    def charges(length: int) -> list[int]:
        return [group.blocks(length, layout.encoder_tokens) for group in layout.groups]

    sizes = {
        group.block_size * group.shards
        for group in layout.groups
        if group.fixed is None and not group.ring and group.kind is not GroupKind.CROSS
    }
    wanted = charges(tokens)
    nearest = range(tokens, max(1, tokens - max(sizes, default=1)), -1)[:MOST_GROWTH]
    found = [one for one in nearest if charges(one) == wanted and all(one % size for size in sizes)]
    return found[len(found) // 2] if found else tokens


def capacity(layout: Layout, lengths: Sequence[int]) -> int:
    """How many requests of these lengths, over and over, the pools hold: each keeps what it is
    admitted with or (``layout.settles``) what it needs once it is computed.

    Raises KvplanError(bad-setting) for a length of no tokens, of which any number would fit.
    """
    if min(lengths) < 1:
        raise KvplanError(
            "bad-setting", f"a request of {min(lengths)} tokens", help="give lengths of at least 1"
        )
    left = [pool.usable for pool in layout.pools]
    number = 0
    while True:
        tokens = lengths[number % len(lengths)]
        for group in layout.groups:
            left[group.pool] -= layout.admitted(group, tokens, layout.encoder_tokens)
        if min(left, default=-1) < 0:
            return number
        number += 1
        if layout.settles:
            for group in layout.groups:
                context = layout.rank.context
                given = layout.admitted(group, tokens, layout.encoder_tokens)
                left[group.pool] += given - group.settled(tokens, layout.encoder_tokens, context=context)


def fragmentation(layout: Layout, tables: BlockTables) -> Fragmentation:
    """Slots and tokens of all groups, and the contiguous baseline from the first pool that runs out."""
    slots = used = 0
    for request in tables.requests.values():
        for index, group in enumerate(layout.groups):
            table = request.tables[index]
            if group.kind is GroupKind.STATE:
                continue
            held = (len(table.blocks) + len(table.spare)) * group.block_size
            tokens = tables.local(group, request.tokens)
            if group.kind is GroupKind.CROSS:
                tokens = request.encoder_tokens
            slots += held
            used += min(tokens - table.first * group.block_size, held)
    longest = [0] * len(layout.pools)
    for group in layout.groups:
        longest[group.pool] += group.blocks(layout.max_model_len, layout.encoder_tokens)
    contiguous = min(
        (pool.usable // need for pool, need in zip(layout.pools, longest, strict=True) if need), default=0
    )
    return Fragmentation(slots, used, contiguous)


def snapshot(tables: BlockTables) -> tuple[object, ...]:
    """Everything that a refused admission must leave alone."""
    return (
        tuple((pool.free, tuple(pool.references)) for pool in tables.pools),
        tuple(
            (
                number,
                tuple((table.first, tuple(table.blocks), tuple(table.spare)) for table in request.tables),
            )
            for number, request in tables.requests.items()
        ),
    )
