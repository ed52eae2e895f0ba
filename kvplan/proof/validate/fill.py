"""Write the pattern through slot mappings and read it back, in bounded chunks, whole blocks at a time.

A full block is one contiguous run of bytes wherever heads and tokens lie densely in it; then blocks that
follow each other are reached in place, and one indexed copy moves many of the others. What is left (first and
last block of a request, pages with other layers' bytes between the tokens) goes state by state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kvplan.engines.tensors.base import View
from kvplan.proof.tensor import Tensor
from kvplan.proof.validate.blocks import Copy
from kvplan.proof.validate.memory import Cache
from kvplan.proof.validate.pattern import columns, narrowed, width_of
from kvplan.proof.validate.slots import Slots
from kvplan.record import record
from kvplan.units import MIB

CHUNK_BYTES = {"cpu": 2 * MIB}
"""Bytes staged at a time: what a CPU's cache holds; on a device, enough to fill it with work."""
CHUNK_BYTES_ON_DEVICE = 64 * MIB
LONG_RUN = 4
"""A run of blocks is worth a call of its own from this part of a chunk on."""
MOST_MISMATCHES = 16
"""How many are named; all are counted."""
Tick = Callable[[int], None]
"""Called after each chunk with its bytes; may raise to stop."""


@record()
class Mismatch:
    """A state that did not read back as written, with its first differing byte (``byte``: in its content)."""

    request: int
    layer: int
    head: int
    position: int
    component: str
    block: int
    byte: int
    written: int
    found: int


@dataclass(slots=True)
class Checked:
    """states compared, bytes compared, states that differ and the first of them by name."""

    states: int = 0
    bytes: int = 0
    wrong: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)


class Window:
    """One view as words: whole pages where they are contiguous, single states anywhere."""

    def __init__(self, cache: Cache, view: View) -> None:
        self.cache, self.view, self.width = cache, view, width_of(view)
        self.columns = columns(view, cache.device)
        self.heads, self.words = self.columns.shape
        flat = cache.words(view.allocation, self.width)
        block, head, state = (
            stride // self.width for stride in (view.block_stride, view.head_stride, view.state_stride)
        )
        offset = view.offset // self.width
        self.by_state = flat.as_strided(
            (view.blocks, view.states, self.heads, self.words), (block, state, head, 1), offset
        )
        row = self.heads * self.words
        tokens_outside = (head == self.words or self.heads == 1) and (state == row or view.states == 1)
        heads_outside = state == self.words and head == view.states * self.words
        self.heads_outside = heads_outside and not tokens_outside
        self.pages = None
        if tokens_outside or heads_outside:
            self.pages = flat.as_strided((view.blocks, view.states * row), (block, 1), offset)

    @property
    def state_bytes(self) -> int:
        return self.view.heads * self.view.content

    def expected_pages(self, block_rows: Tensor, out: Tensor) -> Tensor:
        """[n, page words] in the order in which they lie in memory, written to ``out``."""
        import torch

        if self.heads_outside:
            left, right = block_rows[:, None, :, None], self.columns[:, None, :]
            shape = (block_rows.shape[0], self.heads, self.view.states, self.words)
        else:
            left, right = block_rows[:, :, None, None], self.columns
            shape = (block_rows.shape[0], self.view.states, self.heads, self.words)
        if self.width == 8:
            torch.bitwise_xor(left, right, out=out.view(shape))
        else:
            out.copy_(narrowed(left ^ right, self.width).reshape(out.shape))
        return out

    def room(self, name: str, pages: int) -> Tensor:
        """[pages, page words] beside the cache."""
        size = pages * self.state_bytes * self.view.states
        return self.cache.room(name, size).view(self.by_state.dtype).view(pages, -1)

    def expected_states(self, single_rows: Tensor) -> Tensor:
        """[n, heads, words]."""
        return narrowed(single_rows[:, None, None] ^ self.columns, self.width)


def _limit(device: str) -> int:
    return CHUNK_BYTES.get(device.partition(":")[0], CHUNK_BYTES_ON_DEVICE)


def _chunks(count: int, each: int, device: str) -> Iterable[slice]:
    size = max(1, _limit(device) // max(each, 1))
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _parts(slots: Slots, page: int, wide: int, device: str) -> Iterator[tuple[slice, int | None]]:
    """The full blocks in chunks: a long run by itself, with its first block, for it can be reached without an
    index; the short ones between two of them together."""
    starts = slots.runs
    alone = starts.diff() * (page if wide == 1 else 0) >= _limit(device) // LONG_RUN
    begins = alone.clone()
    begins[:1] = True
    begins[1:] |= alone[:-1]
    bounds = [*starts[:-1][begins].tolist(), int(slots.blocks.numel())]
    for (start, end), run in zip(pairwise(bounds), alone[begins].tolist(), strict=True):
        first = int(slots.blocks[start]) if run else None
        for part in _chunks(end - start, page * wide, device):
            yield slice(start + part.start, start + part.stop), first + part.start if run else None


def write(cache: Cache, view: View, slots: Slots, tick: Tick | None = None) -> int:
    """Write every state of the slots in one view; the number of bytes."""
    window = Window(cache, view)
    wide = 8 // window.width
    if window.pages is not None:
        page = window.state_bytes * view.states
        for part, first in _parts(slots, page, wide, cache.device):
            blocks, block_rows = slots.blocks[part], slots.block_rows[part]
            count = int(blocks.numel())
            if first is not None:
                window.expected_pages(block_rows, out=window.pages[first : first + count])
            else:
                expected = window.expected_pages(block_rows, out=window.room("expected", count))
                window.pages.index_copy_(0, blocks, expected)
            if tick is not None:
                tick(count * page)
    for place, blocks, single_rows, _ in _singles(slots, window, wide, cache.device):
        window.by_state[place] = window.expected_states(single_rows)
        if tick is not None:
            tick(int(blocks.numel()) * window.state_bytes)
    return slots.count * window.state_bytes


def check(cache: Cache, view: View, slots: Slots, checked: Checked, tick: Tick | None = None) -> None:
    """Gather every state of the slots in one view and compare it; what differs is added to ``checked``."""
    import torch

    window = Window(cache, view)
    wide = 8 // window.width
    if window.pages is not None:
        page = window.state_bytes * view.states
        for part, first in _parts(slots, page, wide, cache.device):
            blocks, block_rows = slots.blocks[part], slots.block_rows[part]
            count = int(blocks.numel())
            if first is not None:
                found = window.pages[first : first + count]
            else:
                found = torch.index_select(window.pages, 0, blocks, out=window.room("found", count))
            expected = window.expected_pages(block_rows, out=window.room("expected", count))
            if _differ(found, expected):
                expected = window.expected_pages(block_rows, out=expected)
                _name_pages(window, slots, part, found, expected, checked)
            if tick is not None:
                tick(count * page)
    for place, blocks, single_rows, owner in _singles(slots, window, wide, cache.device):
        found, expected = window.by_state[place], window.expected_states(single_rows)
        if not torch.equal(found, expected):
            _name(window, blocks, owner, found, expected, checked)
        if tick is not None:
            tick(int(blocks.numel()) * window.state_bytes)
    checked.states += slots.count
    checked.bytes += slots.count * window.state_bytes


def _differ(found: Tensor, expected: Tensor) -> bool:
    """Whether any bit differs; ``expected`` is used up. On a CPU twice as fast as torch.equal."""
    import torch

    return bool(torch.bitwise_xor(expected, found, out=expected).view(torch.uint8).any())


def copy_blocks(cache: Cache, copies: Sequence[Copy]) -> None:
    """Copy-on-write: every layer of the group copies the block, padding left out."""
    for copy in copies:
        for view in cache.layout.views:
            if view.group == copy.group:
                found = cache.bytes_of(view)
                found[copy.target].copy_(found[copy.source])


def _singles(
    slots: Slots, window: Window, wide: int, device: str
) -> Iterator[tuple[tuple[Tensor, Tensor], Tensor, Tensor, Tensor]]:
    """(index, blocks, rows, owners) of the states that are not in full blocks; all where pages have gaps."""
    each = window.state_bytes * wide
    if window.pages is None:
        for part in _chunks(int(slots.blocks.numel()), each * slots.states, device):
            blocks = slots.blocks[part].repeat_interleave(slots.states)
            places = _places(slots).repeat(blocks.numel() // slots.states)
            owner = slots.block_owner[part].repeat_interleave(slots.states, 0)
            owner[:, 1] += places * slots.step
            yield (blocks, places), blocks, slots.block_rows[part].reshape(-1), owner
    count, start = int(slots.single_blocks.numel()), 0
    if len(slots.single_runs) * (_limit(device) // LONG_RUN) <= count * each:
        for block, first, length in slots.single_runs:
            for part in _chunks(length, each, device):
                index = (block, slice(first + part.start, first + part.stop))
                part = slice(start + part.start, start + part.stop)
                yield index, slots.single_blocks[part], slots.single_rows[part], slots.single_owner[part]
            start += length
        return
    for part in _chunks(count, each, device):
        blocks = slots.single_blocks[part]
        yield (blocks, slots.single_places[part]), blocks, slots.single_rows[part], slots.single_owner[part]


def _places(slots: Slots) -> Tensor:
    import torch

    return torch.arange(slots.states, device=slots.blocks.device)


def _name_pages(
    window: Window, slots: Slots, part: slice, found: Tensor, expected: Tensor, checked: Checked
) -> None:
    """Differing pages, state by state."""
    states = slots.states
    shape = (
        (-1, window.heads, states, window.words)
        if window.heads_outside
        else (-1, states, window.heads, window.words)
    )
    pages = (found != expected).any(1).nonzero().flatten()
    for page in pages.tolist():
        seen, meant = (side[page].reshape(shape)[0] for side in (found, expected))
        if window.heads_outside:
            seen, meant = seen.transpose(0, 1), meant.transpose(0, 1)
        owner = slots.block_owner[part][page].repeat(states, 1)
        owner[:, 1] += _places(slots) * slots.step
        _name(window, slots.blocks[part][page].repeat(states), owner, seen, meant, checked)


def _name(
    window: Window, blocks: Tensor, owner: Tensor, found: Tensor, expected: Tensor, checked: Checked
) -> None:
    """Count the differing states and name the first."""
    import torch

    wrong = (found != expected).flatten(1).any(1)
    checked.wrong += int(wrong.sum())
    for index in wrong.nonzero().flatten().tolist():
        if len(checked.mismatches) >= MOST_MISMATCHES:
            return
        sides = [
            side[index].contiguous().view(torch.uint8).reshape(window.heads, -1) for side in (found, expected)
        ]
        place = int((sides[0] != sides[1]).flatten().nonzero()[0])
        head, byte = divmod(place, window.view.content)
        request, position = owner[index].tolist()
        checked.mismatches.append(
            Mismatch(
                request=request,
                layer=window.view.layer,
                head=head,
                position=position,
                component=_component(window.view, byte),
                block=int(blocks[index]),
                byte=byte,
                written=int(sides[1].flatten()[place]),
                found=int(sides[0].flatten()[place]),
            )
        )


def _component(view: View, byte: int) -> str:
    for component in view.components:
        if component.offset <= byte < component.offset + component.bytes:
            return component.name
    return view.name
