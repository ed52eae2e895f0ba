"""SGLang's prefix cache since 0.5.2x: one tree of runs of pages, evicted leaf by leaf as a whole.

sgl-project/sglang 0.5.23 python/sglang/srt/mem_cache/unified_radix_cache.py,
unified_cache/unified_tree_core.py (match_prefix, begin_insert, _split_node), components/full.py (locks,
eviction) and evict_policy.py, with full attention as the only component. Where it differs from the older
RadixCache: a look-up makes the whole path new, the deepest node newest; an
insertion node by node; and a split makes the part behind it new.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from kvplan.simulation.time.chain import Chain

DEPTH = 10**6
"""Nodes of one path are told apart within one tick of the clock."""
Rank = tuple[int, ...]


class Node:
    """Pages ``start`` to ``stop`` of a chain. made, used: when; hits: who stored it; held: locks."""

    __slots__ = (
        "chain", "children", "held", "hits", "leaf", "made", "parent", "priority", "start", "stop", "used",
    )  # fmt: skip

    def __init__(self, chain: Chain, start: int, stop: int, parent: Node | None, now: int) -> None:
        self.chain, self.start, self.stop, self.parent = chain, start, stop, parent
        self.children: dict[int, Node] = {}
        self.used, self.made = now * DEPTH, (now + 1) * DEPTH
        self.hits = self.held = self.priority = 0
        self.leaf = False


ORDERS: dict[str, Callable[[Node], Rank]] = {
    "lru": lambda node: (node.used,),
    "lfu": lambda node: (node.hits, node.used),
    "fifo": lambda node: (node.made, node.used),
    "mru": lambda node: (-node.used,),
    "filo": lambda node: (-node.made, node.used),
    "priority": lambda node: (node.priority, node.used),
    "slru": lambda node: (node.hits >= 2, node.used),
}
"""--radix-eviction-policy; of equal ones the one that was used least lately."""


class Tree:
    """size: pages that are stored; idle: of these, held by nobody. heap: what may be evicted, with ranks as
    they were when pushed: they only grow, but for `mru`."""

    def __init__(self, order: str = "lru") -> None:
        self.order, self.sinks = ORDERS[order], order == "mru"
        self.now = self.size = self.idle = 0
        nothing = Chain((), 0)
        self.root = Node(nothing, 0, 0, None, self._tick(2))
        self.heap: list[tuple[Rank, int, Node]] = []
        self.pushed = self.leaves = 0

    def _tick(self, count: int = 1) -> int:
        now = self.now
        self.now += count
        return now

    def match(self, chain: Chain, pages: int) -> tuple[int, Node]:
        """How many of its first pages are stored, and the node in which they end."""
        node = self.root
        if not pages:
            return 0, node
        place = 0
        while place < pages:
            child = node.children.get(chain.run_at(place))
            if child is None:
                break
            place = child.chain.alike(chain, place, min(child.stop, pages))
            if place < child.stop:
                node = self._split(child, place)
                break
            node = child
        self._renew_path(node)
        return place, node

    def _renew_path(self, node: Node) -> None:
        """A look-up makes the whole path new, the deepest node newest."""
        now = self._tick() * DEPTH
        up: Node | None = node
        while up is not None:
            up.used = now
            now -= 1
            if self.sinks and up.leaf:
                self._push(up)
            up = up.parent

    def insert(self, chain: Chain, pages: int, counted: int, priority: int = 0) -> tuple[int, Node]:
        """Store its first pages. counted: of these, the request has stored before; how many were stored by
        anybody, and the node in which they end."""
        node, place = self.root, 0
        self._touch(node)
        node.priority = max(node.priority, priority)
        while place < pages:
            child = node.children.get(chain.run_at(place))
            if child is None:
                break
            self._touch(child)
            place = child.chain.alike(chain, place, min(child.stop, pages))
            node = self._split(child, place) if place < child.stop else child
            node.priority = max(node.priority, priority)
            if place > counted:
                node.hits += 1
        if place < pages:
            new = self._made(chain, place, pages, node, self._tick(2))
            new.priority = priority
            node.children[chain.run_at(place)] = new
            self.size += pages - place
            self.idle += pages - place
            self._covered(node)
            if pages > counted:
                new.hits = 1
            self._note(new)
            node = new
        return place, node

    def _made(self, chain: Chain, start: int, stop: int, parent: Node | None, now: int) -> Node:
        return Node(chain, start, stop, parent, now)

    def _touch(self, node: Node) -> None:
        node.used = self._tick() * DEPTH
        if self.sinks and node.leaf:
            self._push(node)

    def _split(self, child: Node, place: int) -> Node:
        parent = child.parent
        assert parent is not None
        new = Node(child.chain, child.start, place, parent, self._tick(2))
        new.made, new.hits, new.held, new.priority = child.made, child.hits, child.held, child.priority
        parent.children[child.chain.run_at(child.start)] = new
        child.start, child.parent = place, new
        new.children[child.chain.run_at(place)] = child
        self._touch(child)
        return new

    def hold(self, node: Node) -> Node:
        """A request uses all from the root to it."""
        up = node
        while up.parent is not None:
            if not up.held:
                self.idle -= up.stop - up.start
                self._covered(up)
            up.held += 1
            up = up.parent
        return node

    def release(self, node: Node | None) -> None:
        while node is not None and node.parent is not None:
            node.held -= 1
            if not node.held:
                self.idle += node.stop - node.start
                self._note(node)
            node = node.parent

    def unheld(self, node: Node) -> int:
        """Pages from the root to it that nobody holds."""
        found = 0
        up: Node | None = node
        while up is not None and not up.held:
            found += up.stop - up.start
            up = up.parent
        return found

    def evict(self, pages: int) -> int:
        """Take out leaves until at least so many pages are gone; how many are."""
        gone = 0
        while gone < pages and self.heap:
            rank, _, node = heapq.heappop(self.heap)
            if not node.leaf:
                continue
            now = self.order(node)
            if now != rank:
                if not self.sinks:
                    self._push(node)
                continue
            self._covered(node)
            gone += node.stop - node.start
            parent = node.parent
            assert parent is not None
            del parent.children[node.chain.run_at(node.start)]
            self._note(parent)
        self.size -= gone
        self.idle -= gone
        return gone

    def _note(self, node: Node) -> None:
        """It may have become a leaf that nobody holds."""
        if not node.held and not node.children and node.parent is not None and not node.leaf:
            node.leaf = True
            self.leaves += 1
            self._push(node)

    def _covered(self, node: Node) -> None:
        """It cannot be evicted."""
        self.leaves -= node.leaf
        node.leaf = False

    def _push(self, node: Node) -> None:
        if len(self.heap) > 4 * self.leaves + 64:
            leaves = {id(one): one for _, _, one in self.heap if one.leaf}
            self.heap = [(self.order(one), number, one) for number, one in enumerate(leaves.values())]
            heapq.heapify(self.heap)
        self.pushed += 1
        heapq.heappush(self.heap, (self.order(node), self.pushed, node))
