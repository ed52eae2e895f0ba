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

Segments and queues as in 1a1a11a/libCacheSim (libCacheSim/cache/eviction/SLRU.c, S3FIFO.c).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush

from kvplan.errors import KvplanError, did_you_mean

Chain = Sequence[Hashable]
Key = tuple[float, ...]

NEVER = 1 << 62
_NEW, _GONE = -2, -1


class Block:
    """One stored block. depth: its place in chains; leaves: stored blocks that follow it; used, stored:
    counts of requests; uses: how often; next: when it is used again (belady); held: of the request that is
    served; rank: what decides, where a number does."""

    __slots__ = (
        "depth",
        "held",
        "leaves",
        "name",
        "next",
        "parent",
        "place",
        "rank",
        "stored",
        "used",
        "uses",
    )

    def __init__(self, name: Hashable, parent: Block | None, depth: int) -> None:
        self.name, self.parent, self.depth = name, parent, depth
        self.leaves = self.used = self.stored = self.uses = self.next = self.place = 0
        self.held = False
        self.rank: Key = ()


class Order:
    """What is evicted first. used: a stored block was hit; stored: one came in; victim: the next to go,
    taken out of the order; none of those that are held or followed."""

    def coming(self, name: Hashable) -> None:
        """A block that is not there is about to be stored."""

    def used(self, block: Block) -> None:
        raise NotImplementedError

    def stored(self, block: Block) -> None:
        raise NotImplementedError

    def free(self, block: Block) -> None:
        """It may be evicted again: nobody holds or follows it."""

    def victim(self) -> Block | None:
        raise NotImplementedError


class Ranked(Order):
    """By a number: the smallest goes first, of a request the deepest block first."""

    def __init__(self, rank: Callable[[Block], Key]) -> None:
        self.rank = rank
        self.heap: list[tuple[Key, int, Block]] = []
        self.count = 0

    def used(self, block: Block) -> None:
        block.rank = self.rank(block)

    stored = used

    def free(self, block: Block) -> None:
        self.count += 1
        heappush(self.heap, (block.rank, self.count, block))

    def victim(self) -> Block | None:
        while self.heap:
            rank, _, block = heappop(self.heap)
            if block.place != _GONE and rank == block.rank and not block.held and not block.leaves:
                return block
        return None


class Cost(Ranked):
    """GreedyDual: a block's value is what it costs plus the value of the last one evicted."""

    def __init__(self, slope: float) -> None:
        self.age = 0.0
        super().__init__(lambda block: (self.age + 1 + slope * block.depth, block.used, -block.depth))

    def victim(self) -> Block | None:
        block = super().victim()
        if block is not None:
            self.age = block.rank[0]
        return block


class Segments(Order):
    """SLRU: ``count`` equal segments; a use lifts a block one up, what overflows sinks one down."""

    def __init__(self, size: int, count: int = 4) -> None:
        self.most = size // count
        self.lines: list[OrderedDict[Block, None]] = [OrderedDict() for _ in range(count)]

    def stored(self, block: Block) -> None:
        block.place = next((place for place, line in enumerate(self.lines) if len(line) < self.most), 0)
        self.lines[block.place][block] = None

    def used(self, block: Block) -> None:
        del self.lines[block.place][block]
        block.place = place = min(block.place + 1, len(self.lines) - 1)
        self.lines[place][block] = None
        while place and len(self.lines[place]) > self.most:
            sinks, _ = self.lines[place].popitem(last=False)
            place -= 1
            sinks.place = place
            self.lines[place][sinks] = None

    def victim(self) -> Block | None:
        for line in self.lines:
            for block in line:
                if not block.held and not block.leaves:
                    del line[block]
                    return block
        return None


class Queues(Order):
    """S3-FIFO: what comes enters a small queue (a tenth); what was used there twice goes on to the main one,
    the rest leaves a ghost; ghosts that come again enter the main queue, where a use gives another round."""

    def __init__(self, size: int) -> None:
        self.small_most = max(1, size // 10)
        self.main_most = size - self.small_most
        self.ghosts_most = int(size * 0.9)
        self.small: OrderedDict[Block, None] = OrderedDict()
        self.main: OrderedDict[Block, None] = OrderedDict()
        self.ghosts: OrderedDict[Hashable, None] = OrderedDict()
        self.back: set[Hashable] = set()
        self.full = False

    def coming(self, name: Hashable) -> None:
        if name in self.ghosts:
            del self.ghosts[name]
            self.back.add(name)

    def used(self, block: Block) -> None:
        block.place += 1

    def stored(self, block: Block) -> None:
        block.place = 0
        if block.name in self.back:
            self.back.remove(block.name)
            self.main[block] = None
        elif not self.full and len(self.small) >= self.small_most:
            self.main[block] = None  # as long as nothing was evicted, there is room
        else:
            self.small[block] = None

    def victim(self) -> Block | None:
        self.full = True
        if len(self.main) > self.main_most and self._any(self.main):
            return self._from_main()
        while self._any(self.small):
            block, _ = self.small.popitem(last=False)
            if block.place >= 2:
                block.place = 0
                self.main[block] = None
            elif block.held or block.leaves:
                self.small[block] = None
            else:
                self.ghosts[block.name] = None
                while len(self.ghosts) > self.ghosts_most:
                    self.ghosts.popitem(last=False)
                return block
        return self._from_main()

    def _from_main(self) -> Block | None:
        while self._any(self.main):
            block, _ = self.main.popitem(last=False)
            if block.place:
                block.place = min(block.place, 3) - 1
            elif not block.held and not block.leaves:
                return block
            self.main[block] = None
        return None

    @staticmethod
    def _any(line: OrderedDict[Block, None]) -> bool:
        return any(not block.held and not block.leaves for block in line)


def _lru(block: Block) -> Key:
    return block.used, -block.depth


_ORDERS: dict[str, Callable[[int, float], Order]] = {
    "lru": lambda size, slope: Ranked(_lru),
    "ttl": lambda size, slope: Ranked(_lru),
    "fifo": lambda size, slope: Ranked(lambda block: (block.stored, -block.depth)),
    "lfu": lambda size, slope: Ranked(lambda block: (block.uses, block.used, -block.depth)),
    "belady": lambda size, slope: Ranked(lambda block: (-block.next, -block.depth)),
    "cost": lambda size, slope: Cost(slope),
    "slru": lambda size, slope: Segments(size),
    "s3fifo": lambda size, slope: Queues(size),
}
POLICIES = tuple(_ORDERS)


class Cache:
    """A prefix cache of ``size`` blocks. window: of ttl, in requests; slope: of cost, what a block costs more
    than the first for each before it; KvplanError for another policy or a size below 1."""

    def __init__(self, policy: str, size: int, *, window: int = NEVER, slope: float = 0.001) -> None:
        if policy not in _ORDERS:
            near = did_you_mean(policy, POLICIES)
            raise KvplanError(
                "bad-eviction", f"eviction {policy!r} is unknown",
                help=f"did you mean {near}?" if near else f"use one of {', '.join(POLICIES)}",
            )  # fmt: skip
        if size < 1:
            raise KvplanError("bad-eviction", f"a cache of {size} blocks", help="give it at least one block")
        self.size, self.window = size, window if policy == "ttl" else NEVER
        self.order = _ORDERS[policy](size, slope)
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
                block.place = _NEW
            block.used, block.held = self.now, True
            block.uses += 1
            block.next = following[depth] if following else 0
            held.append(block)
            parent = block
        for block in reversed(held):  # the deepest is the first to go again
            if block.place == _NEW:
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
        block.place = _GONE
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
    cache = Cache(policy, size, window=window, slope=slope)
    if policy != "belady":
        return [cache.serve(chain) for chain in chains]
    return [cache.serve(chain, later) for chain, later in zip(chains, _following(chains))]


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
