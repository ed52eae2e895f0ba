"""Prefix caches of a fixed size under other orders of eviction than an engine's own: hits, no time.

A request is a chain of block identities; it hits the longest beginning of it that the cache has, and stores
the rest. Only a chain's last stored block may be evicted (sgl-project/sglang
python/sglang/srt/mem_cache/radix_cache.py evicts leaves), and never one of the request that is served; with
LRU that is vLLM's own order, tails first. On chains of one block the orders are the flat ones:

    lru      the longest not used                     fifo    the longest there
    lfu      the least often used, then lru           ttl     lru; unused for ``window`` requests: gone
    slru     four segments, up one with each use      s3fifo  a small queue, a main one, a ghost of what left
    cost     GreedyDual: what it costs to compute it again, aged by what was evicted
    belady   the one that is used again last: the bound (it knows the trace)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kvplan.errors import KvplanError
from kvplan.simulation.cache_only.orders import GONE, NEW, ORDERS, Block
from kvplan.simulation.sglang import flat
from kvplan.simulation.time.refusals import unknown

Chain = Sequence[Hashable]

NEVER = 1 << 62
POLICIES = tuple(ORDERS)
KNOWN = (*POLICIES, flat.RADIX)
"""With SGLang's own tree, which evicts whole runs."""


class Cache:
    """A prefix cache of ``size`` blocks. window: of ttl, in requests; slope: of cost, what a block costs more
    than the first for each before it; KvplanError for another policy or a size below 1."""

    def __init__(self, policy: str, size: int, *, window: int = NEVER, slope: float = 0.001) -> None:
        if policy not in ORDERS:
            raise unknown("eviction", policy, POLICIES)
        if size < 1:
            raise KvplanError("bad-eviction", f"a cache of {size} blocks", help="give it at least one block")
        self.size, self.window = size, window if policy == "ttl" else NEVER
        self.order = ORDERS[policy](size, slope)
        self.blocks: dict[Hashable, Block] = {}
        self.now = 0

    def match(self, chain: Chain) -> int:
        """How many of its first blocks the cache has now; nothing changes."""
        found = 0
        for name in chain:
            block = self.blocks.get(name)
            if block is None or self.now + 1 - block.used > self.window:
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
            if block is not None and depth >= hits:  # unused for too long: stored anew
                block.stored, block.uses = self.now, 0
            if block is None:
                self.order.coming(name)
                if len(self.blocks) >= self.size and not self._evict(depth):
                    break
                block = Block(name, parent, depth)
                block.stored = self.now
                self.blocks[name] = block
                if parent is not None:
                    parent.leaves += 1
                block.place = NEW
            block.used, block.held = self.now, True
            block.uses += 1
            block.next = following[depth] if following else 0
            held.append(block)
            parent = block
        for block in reversed(held):  # the deepest is the first to go again
            if block.place == NEW:
                block.place = 0
                self.order.stored(block)
            else:
                self.order.used(block)
            block.held = False
            if not block.leaves:
                self.order.free(block)
        return hits

    def _evict(self, held: int) -> bool:
        """Make room; not where all blocks are of the request itself."""
        if held >= self.size:
            return False
        victim = self.order.victim()
        if victim is None:
            return False
        self._drop(victim)
        return True

    def _drop(self, block: Block) -> None:
        block.place = GONE
        del self.blocks[block.name]
        parent = block.parent
        if parent is not None:
            parent.leaves -= 1
            if not parent.leaves and not parent.held:
                self.order.free(parent)


def replay(
    policy: str, size: int, chains: Sequence[Chain], *, window: int = NEVER, slope: float = 0.001
) -> list[int]:
    """Hits of each request, one after another, in blocks."""
    if policy == flat.RADIX:
        return flat.replay(size, chains)
    cache = Cache(policy, size, window=window, slope=slope)
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
