"""A model of torch's caching allocator on one stream: what a row of allocations comes to, to the byte. Pure.

Mirrors pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp (round_size, get_pool, get_allocation_size,
get_free_block, should_split, free_block, release_cached_blocks) and c10/core/AllocatorConfig.h, 2.6 to 2.13.
Every figure is bytes. A configuration that changes these rules is named by `why_unpredictable`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from kvplan.record import Json
from kvplan.units import MIB, round_up

MIN_BLOCK = 512
SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
MIN_LARGE = 10 * MIB
LARGE_STEP = 2 * MIB
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_HARMLESS = ("garbage_collection_threshold", "pinned_", "release_lock_on_cudamalloc")
"""Settings that do not change how a row of allocations without a shortage is laid out."""


def rounded(size: int) -> int:
    """Bytes of the block that a request takes at least."""
    return max(MIN_BLOCK, round_up(size, MIN_BLOCK))


def segment_of(block: int) -> int:
    """Bytes that are asked of the driver for a block of this (rounded) size."""
    if block <= SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if block < MIN_LARGE else round_up(block, LARGE_STEP)


class _Block:
    """A piece of a segment, with its neighbours there."""

    __slots__ = ("address", "after", "before", "free", "size", "small")

    def __init__(
        self, size: int, address: int, small: bool, before: _Block | None = None, after: _Block | None = None
    ) -> None:
        self.size, self.address, self.small = size, address, small
        self.free, self.before, self.after = True, before, after


class Allocator:
    """Requests, blocks and segments as they stand; ``malloc`` answers with a handle for ``free``.

    max_split: bytes, None where it is not set. there: segments as torch.cuda.memory_snapshot lists them.
    Those of graphs' pools and of other streams serve no request of this stream, and are left out.
    """

    def __init__(self, there: Sequence[Json] = (), *, max_split: int | None = None) -> None:
        self.max_split = max_split
        self.requested = self.allocated = self.reserved = 0
        self.peak_allocated = self.peak_reserved = 0
        self._next_handle = self._next_address = 0
        self._held: dict[int, tuple[_Block, int]] = {}
        # Free blocks in the order of (size, address), the small and the large apart.
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._at: dict[int, _Block] = {}
        for segment in there:
            if segment.get("stream", 0) == 0 and tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0):
                self._seen(segment)

    def _seen(self, segment: Json) -> None:
        """A segment that is there, with its blocks in the order of their addresses."""
        address, small = int(segment["address"]), segment["segment_type"] == "small"
        self.reserved += int(segment["total_size"])
        self._next_address = max(self._next_address, address + int(segment["total_size"]))
        before: _Block | None = None
        for entry in segment["blocks"]:
            block = _Block(int(entry["size"]), address, small, before)
            address += block.size
            if before is not None:
                before.after = block
            before = block
            self._at[block.address] = block
            block.free = entry["state"] == "inactive"
            if block.free:
                self._put(block)
            else:
                self.allocated += block.size

    def malloc(self, size: int) -> int:
        """A block for ``size`` bytes; 0 bytes take none."""
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        if size == 0:
            return handle
        wanted = rounded(size)
        block = self._found(wanted) or self._segment(wanted)
        self._split(block, wanted)
        block.free = False
        self._held[handle] = (block, size)
        self.requested += size
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return handle

    def free(self, handle: int) -> None:
        """Give a block back to the cache."""
        if handle not in self._held:
            return
        block, size = self._held.pop(handle)
        self.requested -= size
        self.allocated -= block.size
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._take(other)
                block = self._joined(block, other)
        self._put(block)

    def empty_cache(self) -> None:
        """Give wholly free segments back to the driver."""
        for small, blocks in self._free.items():
            kept = []
            for size, address in blocks:
                block = self._at[address]
                if block.before is None and block.after is None:
                    self.reserved -= size
                    del self._at[address]
                else:
                    kept.append((size, address))
            self._free[small] = kept

    def _found(self, wanted: int) -> _Block | None:
        """The smallest free block that is large enough, the lower address first."""
        blocks = self._free[wanted <= SMALL]
        at = bisect_left(blocks, (wanted, -1))
        if at == len(blocks) or not _serves(blocks[at][0], wanted, self.max_split):
            return None
        return self._at[blocks.pop(at)[1]]

    def _segment(self, wanted: int) -> _Block:
        size = segment_of(wanted)
        block = _Block(size, self._next_address, wanted <= SMALL)
        self._next_address += size
        self._at[block.address] = block
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _split(self, block: _Block, wanted: int) -> None:
        left = block.size - wanted
        if not _splits(left, wanted, self.max_split):
            return
        rest = _Block(left, block.address + wanted, block.small, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = wanted, rest
        self._at[rest.address] = rest
        self._put(rest)

    def _joined(self, one: _Block, other: _Block) -> _Block:
        first, second = (one, other) if one.address < other.address else (other, one)
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        first.free = True
        del self._at[second.address]
        return first

    def _put(self, block: _Block) -> None:
        insort(self._free[block.small], (block.size, block.address))

    def _take(self, block: _Block) -> None:
        blocks = self._free[block.small]
        del blocks[bisect_left(blocks, (block.size, block.address))]


def _serves(block: int, wanted: int, max_split: int | None) -> bool:
    """get_free_block: whether the smallest block that is large enough is taken. A request of max_split takes
    one at most 20 MiB larger, a smaller request none of that size."""
    if max_split is None or wanted <= SMALL:
        return True
    return block < wanted + LARGE_SEGMENT if wanted >= max_split else block < max_split


def _splits(left: int, wanted: int, max_split: int | None) -> bool:
    """Where at least 512 bytes (small) or more than 1 MiB (large) would be left."""
    if wanted <= SMALL:
        return left >= MIN_BLOCK
    return left > SMALL and (max_split is None or wanted < max_split)


def allocated(sizes: Iterable[int], max_split: int | None = None) -> int:
    """Bytes that count as allocated once tensors of these sizes are made, in this order.

    As nothing is given back, of the free blocks their sizes alone matter.
    """
    free: dict[bool, list[int]] = {True: [], False: []}
    total = 0
    for size in filter(None, sizes):
        wanted = rounded(size)
        blocks = free[wanted <= SMALL]
        at = bisect_left(blocks, wanted)
        found = at < len(blocks) and _serves(blocks[at], wanted, max_split)
        block = blocks.pop(at) if found else segment_of(wanted)
        left = block - wanted
        if _splits(left, wanted, max_split):
            insort(blocks, left)
            block = wanted
        total += block
    return total


def reserved_for(sizes: Iterable[int], there: Sequence[Json] = ()) -> int:
    """Bytes that the allocator asks of the driver for tensors of these sizes, made in this order and kept.

    there: what it holds already (torch.cuda.memory_snapshot): what is free in it is used first.
    """
    allocator = Allocator(there)
    before = allocator.reserved
    for size in sizes:
        allocator.malloc(size)
    return allocator.reserved - before


def why_unpredictable(environment: Mapping[str, str]) -> str | None:
    """The setting of torch's allocator that changes its rules, as written, or None where they hold."""
    for variable in VARIABLES:
        for entry in environment.get(variable, "").split(","):
            name, _, value = (part.strip() for part in entry.partition(":"))
            if not name or name.startswith(_HARMLESS):
                continue
            plain = {"expandable_segments": "False", "backend": "native"}
            if plain.get(name) != value:
                return f"{variable}={environment[variable]}"
    if environment.get("PYTORCH_NO_CUDA_MEMORY_CACHING") not in (None, "", "0"):
        return "PYTORCH_NO_CUDA_MEMORY_CACHING"
    return None
