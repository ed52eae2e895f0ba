"""Prefix caches of a fixed size under other orders of eviction than an engine's own: hits, no time.

A request is a chain of block identities; it hits the longest beginning of it that the cache has, and stores
the rest. Only a chain's last stored block may be evicted (sgl-project/sglang
python/sglang/srt/mem_cache/radix_cache.py evicts leaves), and never one of the request that is served; with
LRU that is vLLM's own order, tails first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush

from kvplan.errors import KvplanError
from kvplan.simulation.sglang import flat
from kvplan.simulation.time.refusals import unknown

Chain = Sequence[Hashable]
Rank = tuple[int, ...]

NEVER = 1 << 62


class Block:
    """One stored block. depth: its place in chains; leaves: stored blocks that follow it; used, stored:
    counts of requests; uses: how often; next: when it is used again (belady); held: of the request that is
    served; gone: evicted; rank: the smallest is evicted first."""

    __slots__ = (
        "depth",
        "gone",
        "held",
        "leaves",
        "name",
        "next",
        "parent",
        "rank",
        "stored",
        "used",
        "uses",
    )

    def __init__(self, name: Hashable, parent: Block | None, depth: int, now: int) -> None:
        self.name, self.parent, self.depth, self.stored = name, parent, depth, now
        self.leaves = self.used = self.uses = self.next = 0
        self.held = self.gone = False
        self.rank: Rank = ()


RANKS: dict[str, Callable[[Block], Rank]] = {
    "lru": lambda block: (block.used, -block.depth),  # the longest not used
    "fifo": lambda block: (block.stored, -block.depth),  # the longest there
    "lfu": lambda block: (block.uses, block.used, -block.depth),  # the least often used
    "belady": lambda block: (-block.next, -block.depth),  # used again last: the optimum
}
POLICIES = tuple(RANKS)
KNOWN = (*POLICIES, flat.RADIX)
"""With SGLang's own tree, which evicts whole runs."""


class Cache:
    """A prefix cache of ``size`` blocks. KvplanError for an unknown policy or a size below 1."""

    def __init__(self, policy: str, size: int) -> None:
        if policy not in RANKS:
            raise unknown("eviction", policy, POLICIES)
        if size < 1:
            raise KvplanError("bad-eviction", f"a cache of {size} blocks", help="give it at least one block")
        self.size, self.rank = size, RANKS[policy]
        self.blocks: dict[Hashable, Block] = {}
        self.heap: list[tuple[Rank, int, Block]] = []
        self.now = self.pushed = 0

    def match(self, chain: Chain) -> int:
        """How many of its first blocks the cache has now; nothing changes."""
        found = 0
        for name in chain:
            if name not in self.blocks:
                break
            found += 1
        return found

    def serve(self, chain: Chain, following: Sequence[int] = ()) -> int:
        """How many of its blocks the cache has; the rest is stored as far as there is room. following: of
        each when it is used again (belady)."""
        hits = self.match(chain)
        self.now += 1
        held: list[Block] = []
        parent: Block | None = None
        for depth, name in enumerate(chain):
            block = self.blocks.get(name)
            if block is None:
                if len(self.blocks) >= self.size and not self._evict(depth):
                    break
                block = self.blocks[name] = Block(name, parent, depth, self.now)
                if parent is not None:
                    parent.leaves += 1
            block.used, block.held = self.now, True
            block.uses += 1
            block.next = following[depth] if following else 0
            held.append(block)
            parent = block
        for block in reversed(held):  # the deepest is the first to go again
            block.rank = self.rank(block)
            block.held = False
            if not block.leaves:
                self._free(block)
        return hits

    def _free(self, block: Block) -> None:
        """It may be evicted again, for nobody holds or follows it."""
        self.pushed += 1
        heappush(self.heap, (block.rank, self.pushed, block))

    def _evict(self, held: int) -> bool:
        """Make room; not where all blocks are of the request itself."""
        while self.heap and held < self.size:
            rank, _, block = heappop(self.heap)
            if not block.gone and rank == block.rank and not block.held and not block.leaves:
                self._drop(block)
                return True
        return False

    def _drop(self, block: Block) -> None:
        block.gone = True
        del self.blocks[block.name]
        parent = block.parent
        if parent is not None:
            parent.leaves -= 1
            if not parent.leaves and not parent.held:
                self._free(parent)


def replay(policy: str, size: int, chains: Sequence[Chain]) -> list[int]:
    """Hits of each request, one after another, in blocks."""
    if policy == flat.RADIX:
        return flat.replay(size, chains)
    cache = Cache(policy, size)
    if policy != "belady":
        return [cache.serve(chain) for chain in chains]
    return [cache.serve(chain, later) for chain, later in zip(chains, _following(chains))]


def check_policy(policy: str) -> None:
    """Raise KvplanError(bad-eviction) for one that `replay` does not know."""
    if policy not in KNOWN:
        raise unknown("eviction", policy, KNOWN)


def _following(chains: Sequence[Chain]) -> list[list[int]]:
    """Of each block of each chain when it is used again."""
    again: dict[Hashable, int] = {}
    found: list[list[int]] = []
    for place in range(len(chains) - 1, -1, -1):
        chain = chains[place]
        found.append([again.get(name, NEVER) for name in chain])
        again.update(dict.fromkeys(chain, place))
    found.reverse()
    return found
