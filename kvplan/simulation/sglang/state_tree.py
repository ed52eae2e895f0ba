"""SGLang's prefix cache of a model with states: a node may have the state at its end, in a slot of its own.

sgl-project/sglang 0.5.23 python/sglang/srt/mem_cache/unified_cache/components/mamba.py. A prefix is found up
to the deepest node with a state; a lock holds the state of its node alone; slots are freed in the order in
which states were used, of a leaf with its pages and of an inner node alone.
"""

from __future__ import annotations

from kvplan.simulation.sglang.tree import DEPTH, Node, Tree
from kvplan.simulation.sglang.window_tree import Lock, WindowNode, WindowTree
from kvplan.simulation.time.chain import Chain


class StateTree(WindowTree):
    """``window`` of a node says whether its state is there; loose, loosened: states, not pages."""

    def __init__(self, order: str, page: int) -> None:
        super().__init__(order, 0, page)

    def _size(self, node: WindowNode) -> int:
        return 1

    def _divide(self, new: WindowNode, child: WindowNode) -> None:
        """The state is the one at the end: it stays behind."""

    def insert_state(self, chain: Chain, pages: int, counted: int) -> tuple[int, Node, bool]:
        """Store the first pages of a request with the state behind them: how many were stored before, the
        node, and whether its state is taken (else it had one)."""
        have, node = self.insert(chain, pages, counted)
        if not isinstance(node, WindowNode) or node.parent is None:
            return have, node, False
        if not node.window:
            self._keep(node)
            if have == pages:
                node.used = self._tick() * DEPTH
            return have, node, True
        self._unlink(node)
        self._link(self.ends, node)
        self._touch(node)
        return have, node, False

    def lock(self, node: Node) -> Lock | None:
        if not isinstance(node, WindowNode):
            return None
        Tree.hold(self, node)
        if not node.windows and node.window:
            self.loose -= 1
        node.windows += 1
        return Lock(node, None)

    def unlock(self, lock: Lock | None) -> None:
        if lock is None:
            return
        node = lock.node
        node.windows -= 1
        if not node.windows and node.window:
            self.loose += 1
        self.release(node)
