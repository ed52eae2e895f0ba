"""SGLang's prefix cache of a model with windows: nodes have pages of the full pool, and of the pool of
windows as long as those are not gone.

sgl-project/sglang 0.5.23 python/sglang/srt/mem_cache/unified_cache/components/swa.py,
unified_tree_core.py and unified_radix_cache.py (_evict_components). A prefix is found up to a node behind
which a whole window still has its pages; a lock holds the last window alone; room in the pool of windows is
made in the order in which windows were used, of a leaf both its parts and of an inner node its windows.
"""

from __future__ import annotations

import heapq

from kvplan.record import record
from kvplan.simulation.sglang.tree import Node, Tree
from kvplan.simulation.time.chain import Chain


class WindowNode(Node):
    """window: whether its pages of windows are there; windows: locks on them; mark: of the lock that ends at
    it; newer, older: its neighbours among the nodes with windows, by use."""

    __slots__ = ("mark", "newer", "older", "window", "windows")

    def __init__(self, chain: Chain, start: int, stop: int, parent: Node | None, now: int) -> None:
        super().__init__(chain, start, stop, parent, now)
        self.window, self.windows = False, 0
        self.mark: object | None = None
        self.newer: WindowNode | None = None
        self.older: WindowNode | None = None


@record(eq=False)
class Lock:
    """The path to a node that a request holds, and of its windows those up to the node with the mark."""

    node: WindowNode
    mark: object | None


@record(eq=False)
class Inserted:
    """have: pages that were stored before; node: where they end; full, windows: pages that are free again."""

    have: int
    node: Node
    full: int
    windows: int


class WindowTree(Tree):
    """span: tokens of a window; page: tokens of a page; loose: pages of windows that nobody holds; freed,
    loosened: pages of the full pool and of windows that an eviction has given back."""

    def __init__(self, order: str, span: int, page: int) -> None:
        super().__init__(order)
        self.span, self.page = span, page
        self.tail = -(-span // page)
        self.loose = self.loosened = self.freed = 0
        self.ends = WindowNode(Chain((), 0), 0, 0, None, 0)
        self.ends.newer = self.ends.older = self.ends

    # --- the order of windows ---

    def _link(self, before: WindowNode, node: WindowNode) -> None:
        """``node`` was used just before ``before``."""
        after = before.older
        assert after is not None
        node.newer, node.older = before, after
        before.older = after.newer = node

    def _unlink(self, node: WindowNode) -> None:
        newer, older = node.newer, node.older
        assert newer is not None
        assert older is not None
        newer.older, older.newer = older, newer

    def _renew(self, node: WindowNode) -> None:
        """The windows behind a node are used: the node's last."""
        before, covered = self.ends, 0
        up: Node | None = node
        while isinstance(up, WindowNode) and up.parent is not None and covered < self.span + self.page:
            if up.window:
                self._unlink(up)
                self._link(before, up)
                before = up
            covered += (up.stop - up.start) * self.page
            up = up.parent

    def _keep(self, node: WindowNode) -> None:
        """Its windows are stored."""
        node.window = True
        self._link(self.ends, node)
        if not node.windows:
            self.loose += self._size(node)

    def _size(self, node: WindowNode) -> int:
        """Pages, or slots, that it takes of the second pool."""
        return node.stop - node.start

    def _lose(self, node: WindowNode) -> None:
        """Its windows, which nobody holds, are free again."""
        size = self._size(node)
        node.window = False
        self._unlink(node)
        self.loose -= size
        self.loosened += size

    # --- look-ups and insertions ---

    def _made(self, chain: Chain, start: int, stop: int, parent: Node | None, now: int) -> WindowNode:
        return WindowNode(chain, start, stop, parent, now)

    def _split(self, child: Node, place: int) -> Node:
        assert isinstance(child, WindowNode)
        parent = child.parent
        assert parent is not None
        new = self._made(child.chain, child.start, place, parent, self._tick(2))
        new.made, new.hits, new.held, new.priority = child.made, child.hits, child.held, child.priority
        self._divide(new, child)
        parent.children[child.chain.run_at(child.start)] = new
        child.start, child.parent = place, new
        new.children[child.chain.run_at(place)] = child
        if new.window:
            self._link(child, new)
        self._touch(child)
        return new

    def _divide(self, new: WindowNode, child: WindowNode) -> None:
        """Both have windows then, and the mark is that of the first."""
        new.windows, new.window = child.windows, child.window
        new.mark, child.mark = child.mark, None

    def find(self, chain: Chain, pages: int) -> tuple[int, Node, int]:
        """How many of its first pages are stored so that one can go on from there, the node in which they
        end, and the pages of which the full pool has more."""
        node, best, found = self.root, self.root, 0
        place = 0
        covered: float = float("inf")
        while place < pages:
            child = node.children.get(chain.run_at(place))
            if child is None:
                break
            place = child.chain.alike(chain, place, min(child.stop, pages))
            whole = place == child.stop
            node = child if whole else self._split(child, place)
            assert isinstance(node, WindowNode)
            covered = covered + (node.stop - node.start) * self.page if node.window else 0
            if covered >= self.span and node.window:
                best, found = node, place
            if not whole:
                break
        if isinstance(best, WindowNode):
            self._renew(best)
        self._renew_path(best)
        return found, best, place if place > found else 0

    def match(self, chain: Chain, pages: int) -> tuple[int, Node]:
        found, node, _ = self.find(chain, pages)
        return found, node

    def store(self, chain: Chain, pages: int, counted: int, kept: int, gone: int) -> Inserted:
        """Store the first pages of a request. kept: pages that are the tree's already; gone: pages whose
        windows the request has given back. Of what others have stored, its own copy is free again, but for
        windows that the tree had lost."""
        node: Node = self.root
        place = full = windows = 0
        self._touch(node)
        while place < pages:
            child = node.children.get(chain.run_at(place))
            if child is None:
                break
            self._touch(child)
            start, place = place, child.chain.alike(chain, place, min(child.stop, pages))
            node = self._split(child, place) if place < child.stop else child
            assert isinstance(node, WindowNode)
            own = place
            if kept < place and not node.window and max(start, gone) < place:
                own = max(start, gone)
                if own > start:
                    self._split(node, own)
                full += place - own
                self._keep(node)
            first = max(start, kept)
            if first < own:
                full += own - first
                windows += own - first - min(max(gone - first, 0), own - first)
            if place > counted:
                node.hits += 1
        have = place
        if place < pages:
            node = self._grow(node, chain, place, pages, counted, gone)
        if isinstance(node, WindowNode):
            self._renew(node)
        return Inserted(have, node, full, windows)

    def _grow(
        self, parent: Node, chain: Chain, place: int, pages: int, counted: int, gone: int
    ) -> WindowNode:
        """A new leaf; only its last windows are in the node that a lock on it holds."""
        new = self._made(chain, place, pages, parent, self._tick(2))
        parent.children[chain.run_at(place)] = new
        self.size += pages - place
        self.idle += pages - place
        self._covered(parent)
        self._note(new)
        start = max(place, gone)
        if start < pages:
            if start > place:
                self._split(new, start)
            if pages - start > self.tail:
                front = self._split(new, pages - self.tail)
                assert isinstance(front, WindowNode)
                self._keep(front)
            self._keep(new)
        if pages > counted:
            new.hits += 1
        return new

    # --- locks ---

    def lock(self, node: Node) -> Lock | None:
        """A request goes on from a node."""
        if node.parent is None:
            return None
        assert isinstance(node, WindowNode)
        super().hold(node)
        covered, mark = 0, None
        up: Node | None = node
        while isinstance(up, WindowNode) and up.parent is not None and covered < self.span:
            if not up.windows and up.window:
                self.loose -= up.stop - up.start
            up.windows += 1
            covered += (up.stop - up.start) * self.page
            if covered >= self.span:
                mark = up.mark = up.mark or object()
            up = up.parent
        return Lock(node, mark)

    def unlock(self, lock: Lock | None) -> None:
        """The request has ended, or goes on from another node."""
        if lock is None:
            return
        up: Node | None = lock.node
        while isinstance(up, WindowNode) and up.parent is not None:
            up.windows -= 1
            if not up.windows:
                if up.window:
                    self.loose += up.stop - up.start
                self._note(up)
            if lock.mark is not None and up.mark is lock.mark:
                break
            up = up.parent
        self.release(lock.node)

    def _note(self, node: Node) -> None:
        if not (isinstance(node, WindowNode) and node.windows):
            super()._note(node)

    # --- eviction ---

    def make_room(self, full: int, windows: int) -> tuple[int, int]:
        """Evict until so many pages more of either pool are free; the pages of both that are."""
        self.freed = self.loosened = 0
        if full > 0:
            while self.freed < full and (node := self._oldest()) is not None:
                self._drop(node)
        if self.loosened < windows:
            self._evict_windows(windows)
        return self.freed, self.loosened

    def _oldest(self) -> Node | None:
        """The leaf that is evicted first."""
        while self.heap:
            rank, _, node = heapq.heappop(self.heap)
            if not node.leaf:
                continue
            if self.order(node) == rank:
                return node
            if not self.sinks:
                self._push(node)
        return None

    def _drop(self, node: Node) -> None:
        """Evict a leaf from both pools."""
        assert isinstance(node, WindowNode)
        size, parent = node.stop - node.start, node.parent
        assert parent is not None
        self._covered(node)
        if node.window:
            self._lose(node)
        self.size -= size
        self.idle -= size
        self.freed += size
        del parent.children[node.chain.run_at(node.start)]
        self._note(parent)

    def _evict_windows(self, windows: int) -> None:
        node = self._unheld(self.ends)
        while self.loosened < windows and node is not None:
            following = self._unheld(node)
            if node.leaf:
                self._drop(node)
            else:
                self._lose(node)
            if following is None or not following.window:
                following = self._unheld(self.ends)
            node = following

    def _unheld(self, node: WindowNode) -> WindowNode | None:
        """The next that was used after it, and whose windows nobody holds."""
        up = node.newer
        while up is not None and up is not self.ends and up.windows:
            up = up.newer
        return None if up is self.ends else up
