"""In which order blocks of a prefix cache are evicted (`evict.Cache`): lists, queues and ranks.

Segments and queues as in 1a1a11a/libCacheSim (libCacheSim/cache/eviction/SLRU.c, S3FIFO.c).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Protocol

Key = tuple[float, ...]
NEW, GONE = -2, -1


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


class Order(Protocol):
    """What is evicted first. coming: a block that is not there is to be stored; used: a stored block was
    hit; stored: one came in; free: it may be evicted again, for nobody holds or follows it; victim: the next
    to go, taken out of the order; none of those that are held or followed."""

    def coming(self, name: Hashable) -> None: ...

    def used(self, block: Block) -> None: ...

    def stored(self, block: Block) -> None: ...

    def free(self, block: Block) -> None: ...

    def victim(self) -> Block | None: ...


class Listed:
    """An order that is a list: who may go is seen when one is looked for."""

    def coming(self, name: Hashable) -> None:
        """Nothing is known of blocks that left."""

    def free(self, block: Block) -> None:
        """It has kept its place."""


class Ranked(Listed):
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
            if block.place != GONE and rank == block.rank and not block.held and not block.leaves:
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


class Segments(Listed):
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


class Queues(Listed):
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


ORDERS: dict[str, Callable[[int, float], Order]] = {
    "lru": lambda size, slope: Ranked(_lru),
    "ttl": lambda size, slope: Ranked(_lru),
    "fifo": lambda size, slope: Ranked(lambda block: (block.stored, -block.depth)),
    "lfu": lambda size, slope: Ranked(lambda block: (block.uses, block.used, -block.depth)),
    "belady": lambda size, slope: Ranked(lambda block: (-block.next, -block.depth)),
    "cost": lambda size, slope: Cost(slope),
    "slru": lambda size, slope: Segments(size),
    "s3fifo": lambda size, slope: Queues(size),
}
