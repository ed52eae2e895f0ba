"""SGLang's prefix cache: a tree whose edges are runs of identities, evicted leaf by leaf as a whole.

sgl-project/sglang 0.5.23 python/sglang/srt/mem_cache/radix_cache.py (RadixCache, TreeNode) and
evict_policy.py: a look-up and an insertion give every node on their way the time of the call, and split the
one in which they end; a node made by a split is as new as the call, and has the child's hits. Eviction takes
leaves that nobody holds in the policy's order until enough is free; a parent that is left without children
follows in its order. Vocabulary: identities here stand for pages there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence

from kvplan.errors import KvplanError
from kvplan.simulate.refusals import unknown

Chain = Sequence[Hashable]
RADIX = "radix"


class Node:
    """A run of identities. made, used: when; hits: insertions that went through it; held: by how many
    requests."""

    __slots__ = ("children", "held", "hits", "key", "made", "parent", "used")

    def __init__(self, key: Chain, parent: Node | None, now: int) -> None:
        self.key, self.parent = key, parent
        self.children: dict[Hashable, Node] = {}
        self.made = self.used = now
        self.hits = self.held = 0


ORDERS: dict[str, Callable[[Node], tuple[int, ...]]] = {
    "lru": lambda node: (node.used,),
    "lfu": lambda node: (node.hits, node.used),
    "fifo": lambda node: (node.made,),
    "mru": lambda node: (-node.used,),
    "filo": lambda node: (-node.made,),
}
"""--radix-eviction-policy."""


class RadixCache:
    """size: identities that are stored; leaves: what may be evicted, in a heap whose older entries are stale.
    Raises KvplanError(bad-eviction) for another order."""

    def __init__(self, order: str = "lru") -> None:
        if order not in ORDERS:
            raise unknown("eviction", order, ORDERS)
        self.order = ORDERS[order]
        self.now = self.size = 0
        self.root = Node((), None, 0)
        self.root.held = 1
        self.leaves: set[Node] = set()
        self.heap: list[tuple[tuple[int, ...], int, int, Node]] = []
        self.pushed = 0

    def _time(self) -> int:
        self.now += 1
        return self.now

    def match(self, chain: Chain) -> tuple[int, Node]:
        """How many of its first identities are stored, and the node in which they end."""
        now, node, place = self._time(), self.root, 0
        node.used = now
        while place < len(chain):
            child = node.children.get(chain[place])
            if child is None:
                break
            child.used = now
            alike = _alike(child.key, chain, place)
            place += alike
            if alike < len(child.key):
                return place, self._split(child, alike)
            node = child
        self._rank(node)
        return place, node

    def insert(self, chain: Chain) -> tuple[int, Node]:
        """Store it. How many of its first identities were stored before, and the node in which it ends."""
        now, node, place = self._time(), self.root, 0
        node.used = now
        while place < len(chain):
            child = node.children.get(chain[place])
            if child is None:
                break
            child.used = now
            alike = _alike(child.key, chain, place)
            place += alike
            node = self._split(child, alike) if alike < len(child.key) else child
            node.hits += 1
        if place < len(chain):
            new = Node(chain[place:], node, self._time())
            new.hits = 1
            node.children[chain[place]] = new
            self.size += len(new.key)
            self._note(node)
            self._note(new)
            node = new
        self._rank(node)
        return place, node

    def _split(self, child: Node, alike: int) -> Node:
        parent = child.parent
        assert parent is not None
        new = Node(child.key[:alike], parent, self._time())
        new.hits, new.held = child.hits, child.held
        child.key, child.parent = child.key[alike:], new
        new.children[child.key[0]] = child
        parent.children[new.key[0]] = new
        self._rank(child)
        return new

    def hold(self, node: Node) -> None:
        """A request uses all from the root to it."""
        while node.parent is not None:
            node.held += 1
            self._note(node)
            node = node.parent

    def release(self, node: Node) -> None:
        while node.parent is not None:
            node.held -= 1
            self._note(node)
            node = node.parent

    def evict(self, count: int) -> int:
        """Take out leaves until at least so many identities are gone; how many are."""
        gone = 0
        while gone < count and self.heap:
            rank, used, _, node = heapq.heappop(self.heap)
            if node not in self.leaves or used != node.used or rank != self.order(node):
                continue
            gone += len(node.key)
            parent = node.parent
            assert parent is not None
            del parent.children[node.key[0]]
            self.leaves.remove(node)
            self._note(parent)
        self.size -= gone
        return gone

    def _note(self, node: Node) -> None:
        """It may have become a leaf that nobody holds, or is no longer one."""
        if node.held or node.children:
            self.leaves.discard(node)
        elif node not in self.leaves:
            self.leaves.add(node)
            self._rank(node)

    def _rank(self, node: Node) -> None:
        """Its time or its hits have changed."""
        if node not in self.leaves:
            return
        if len(self.heap) > 4 * len(self.leaves) + 64:
            self.heap = [(self.order(one), one.used, number, one) for number, one in enumerate(self.leaves)]
            self.pushed = len(self.heap)
            heapq.heapify(self.heap)
        self.pushed += 1
        heapq.heappush(self.heap, (self.order(node), node.used, self.pushed, node))


def _alike(key: Chain, chain: Chain, start: int) -> int:
    """How many identities of a run the chain has from ``start`` on."""
    most = min(len(key), len(chain) - start)
    if key[:most] == chain[start : start + most]:
        return most
    return next(place for place in range(most) if key[place] != chain[start + place])


def replay(size: int, chains: Sequence[Chain], order: str = "lru") -> list[int]:
    """Hits of each request, one after another, in a cache of ``size`` identities: looked up, room made for
    what is new, held meanwhile, stored as a whole. One that is larger than the cache is not stored.

    Raises KvplanError(bad-eviction) for a size below 1."""
    if size < 1:
        raise KvplanError("bad-eviction", f"a cache of {size} blocks", help="give it at least one block")
    cache, found = RadixCache(order), []
    for row in chains:
        chain = tuple(row)
        hits, node = cache.match(chain)
        found.append(hits)
        if len(chain) > size:
            continue
        cache.hold(node)
        more = cache.size + len(chain) - hits - size
        if more > 0:
            cache.evict(more)
        _, end = cache.insert(chain)
        cache.release(node)
        assert end.parent is not None or not chain
    return found
