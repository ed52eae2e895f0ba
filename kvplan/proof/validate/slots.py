"""Slot mappings: which states of which blocks hold a request's tokens, as few runs of many slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvplan.engines.tensors.base import GroupKind
from kvplan.proof.tensor import Tensor
from kvplan.proof.validate.blocks import BlockTables, Request
from kvplan.proof.validate.pattern import rows
from kvplan.record import record


@record()
class Span:
    """``count`` states in a row: state i lies in block ``blocks[(offset + i) // states]`` at (offset + i) %
    states, and stands for position ``position + i · step`` of the content."""

    request: int
    content: int
    blocks: tuple[int, ...]
    states: int
    offset: int
    count: int
    position: int
    step: int


def spans(tables: BlockTables, request: Request, index: int, states: int, *, start: int = 0) -> list[Span]:
    """The slots of one request in a group whose blocks hold ``states`` states, a span for each content.

    start: only tokens from this position on (what the next token sees, what was appended). A block of
    block_size tokens holds ``states`` states, each of block_size / states tokens; a state that is not
    finished is not stored, and is stored when its last token comes.
    """
    group, table = tables.groups[index], request.tables[index]
    if group.kind is GroupKind.STATE:
        count = len(table.blocks) * states
        content = request.contents[-1][1]
        own = Span(request.number, content, tuple(table.blocks), states, 0, count, 0, 1)
        return [own] if count else []
    cross = group.kind is GroupKind.CROSS
    held = request.encoder_tokens if cross else tables.local(group, request.tokens)
    rate = group.block_size // states
    room = len(table.blocks) * group.block_size
    first = max(held - room, 0) if group.ring else table.first * group.block_size
    first = max(first, 0 if cross else tables.local(group, start))
    number, last = first // rate, held // rate
    pieces = [(request.encoder_tokens, request.contents[0][1])] if cross else request.contents
    found = []
    for until, content in pieces:
        stop = min(last, -(-(until if cross else tables.local(group, until)) // rate))
        if stop <= number:
            continue
        found.append(_span(tables, request, index, states, number, stop, content))
        number = stop
    return found


def _span(
    tables: BlockTables, request: Request, index: int, states: int, number: int, stop: int, content: int
) -> Span:
    """States ``number`` to ``stop`` (exclusive) of the request on this context rank."""
    group, table = tables.groups[index], request.tables[index]
    logical = range(number // states, -(-stop // states))
    if group.ring:
        blocks = tuple(table.blocks[block % len(table.blocks)] for block in logical)
    else:
        blocks = tuple(table.blocks[logical.start - table.first : logical.stop - table.first])
    rate = group.block_size // states
    shards = group.shards
    return Span(
        request=request.number,
        content=content,
        blocks=blocks,
        states=states,
        offset=number % states,
        count=stop - number,
        position=number * rate * shards + tables.context % shards,
        step=rate * shards,
    )


@dataclass(slots=True)
class Slots:
    """Spans as tensors: full blocks [n] with their rows [n, states], and single states [m].

    owner: request and position, of a full block's first state and of a single state, to name what differs.
    """

    states: int
    step: int
    runs: Tensor
    single_runs: list[tuple[int, int, int]]
    blocks: Tensor
    block_rows: Tensor
    block_owner: Tensor
    single_blocks: Tensor
    single_places: Tensor
    single_rows: Tensor
    single_owner: Tensor

    @property
    def count(self) -> int:
        return int(self.blocks.numel()) * self.states + int(self.single_blocks.numel())


def slots_of(found: Sequence[Span], states: int, device: str) -> Slots:
    """The tensors of spans whose blocks hold ``states`` states."""
    import torch

    whole: list[tuple[Tensor, ...]] = []
    single: list[tuple[Tensor, ...]] = []
    partial: list[tuple[int, int, int]] = []
    for span in found:
        index = torch.arange(span.count, dtype=torch.int64)
        place = index + span.offset
        blocks = torch.tensor(span.blocks, dtype=torch.int64)[place // states]
        position = span.position + index * span.step
        row = rows(torch.full_like(position, span.content), position)
        owner = torch.stack([torch.full_like(position, span.request), position], dim=1)
        head = min(-span.offset % states, span.count)
        tail = head + (span.count - head) // states * states
        if tail > head:
            # In the order of memory: an engine's free queue hands blocks out last to first.
            order = blocks[head:tail:states].argsort(stable=True)
            full = (blocks[head:tail:states], row[head:tail].reshape(-1, states), owner[head:tail:states])
            whole.append(tuple(part[order] for part in full))
        partial += [
            (span.blocks[0], span.offset, head),
            (span.blocks[-1], (span.offset + tail) % states, span.count - tail),
        ]
        single += [
            (blocks[part], place[part] % states, row[part], owner[part])
            for part in (slice(0, head), slice(tail, None))
        ]
    empty = torch.empty(0, dtype=torch.int64)
    whole.append((empty, empty.reshape(0, states), empty.reshape(0, 2)))
    single.append((empty, empty, empty, empty.reshape(0, 2)))
    joined = [torch.cat(parts).to(device) for parts in zip(*whole, strict=True)]
    loose = [torch.cat(parts).to(device) for parts in zip(*single, strict=True)]
    runs = _runs(torch.cat([one[0] for one in whole]))
    kept = [one for one in partial if one[2]]
    return Slots(states, found[0].step if found else 1, runs, kept, *joined, *loose)


def _runs(blocks: Tensor) -> Tensor:
    """Where a run of blocks that follow each other begins, and the number of blocks at the end."""
    import torch

    breaks = (blocks[1:] - blocks[:-1] != 1).nonzero().flatten() + 1
    ends = torch.tensor([0, blocks.numel()] if blocks.numel() else [0])
    return torch.cat([ends[:1], breaks, ends[1:]])


def loosened(slots: Slots) -> Slots:
    """All states as single ones, in the order of their positions."""
    import torch

    count = int(slots.blocks.numel())
    place = torch.arange(slots.states, device=slots.blocks.device)
    owner = slots.block_owner.repeat_interleave(slots.states, 0)
    owner[:, 1] += place.repeat(count) * slots.step
    blocks = torch.cat([slots.blocks.repeat_interleave(slots.states), slots.single_blocks])
    places = torch.cat([place.repeat(count), slots.single_places])
    owners = torch.cat([owner, slots.single_owner])
    order = torch.argsort(owners[:, 1])
    return replace(
        slots,
        runs=slots.runs[:1],
        single_runs=[],
        blocks=slots.blocks[:0],
        block_rows=slots.block_rows[:0],
        block_owner=slots.block_owner[:0],
        single_blocks=blocks[order],
        single_places=places[order],
        single_owner=owners[order],
    )
