"""The free queue of one pool of blocks: who holds what, and which full blocks are known by their content.

vllm-project/vllm 0.32 v1/core/block_pool.py and v1/core/kv_cache_utils.py (FreeKVCacheBlockQueue).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kvplan.engines.tensors.base import BlockPool

Key = tuple[int, int]
"""(group, chained hash of everything up to the block's end)."""


class BlockError(Exception):
    """A rule of the block tables was broken: always a fault of the caller or of kvplan."""


class FreeBlocks:
    """The blocks of one pool: free queue, reference counts, and the hashes that full blocks are known by."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self._queue = deque(range(pool.first, pool.num_blocks))
        self._queued = bytearray(pool.num_blocks)
        self._queued[pool.first :] = b"\1" * pool.usable
        self._stale: dict[int, int] = {}
        self.free = pool.usable
        self.references = [0] * pool.num_blocks
        self._block_of: dict[Key, int] = {}
        self._key_of: dict[int, Key] = {}

    def allocate(self, count: int) -> list[int]:
        """The ``count`` blocks that were freed longest ago. Raises BlockError where there are fewer."""
        if count > self.free:
            raise BlockError(f"{count} blocks asked for, {self.free} free in {self.pool.name}")
        found: list[int] = []
        while len(found) < count:
            block = self._queue.popleft()
            if self._stale.get(block):
                # It was taken from the middle of the queue by a prefix hit; this is its old place.
                self._stale[block] -= 1
                continue
            self._queued[block] = 0
            self._forget(block)
            self.references[block] = 1
            found.append(block)
        self.free -= count
        return found

    def take(self, block: int) -> None:
        """One more holder of a block that is held or still known by its hash."""
        if self._queued[block]:
            self._queued[block] = 0
            self._stale[block] = self._stale.get(block, 0) + 1
            self.free -= 1
        elif not self.references[block]:
            raise BlockError(f"block {block} is not to be had")
        self.references[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One holder less of each; what nobody holds goes to the tail of the queue, the last block first."""
        for block in reversed(blocks):
            if not self.pool.first <= block < self.pool.num_blocks or not self.references[block]:
                raise BlockError(f"block {block} of {self.pool.name} is held by nobody")
            self.references[block] -= 1
            if not self.references[block]:
                self._queue.append(block)
                self._queued[block] = 1
                self.free += 1

    def known(self, key: Key) -> int | None:
        """The block with this content, held or waiting in the queue."""
        return self._block_of.get(key)

    def is_free(self, block: int) -> bool:
        return bool(self._queued[block])

    def remember(self, block: int, key: Key) -> None:
        """A full block may be found by its content; of two equal ones the first is."""
        if key not in self._block_of and block not in self._key_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def _forget(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]
