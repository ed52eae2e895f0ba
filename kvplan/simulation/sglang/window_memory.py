"""SGLang's slots of a model with windows: pages of the full pool, and of a second one for windows.

sgl-project/sglang 0.5.23 python/sglang/srt/mem_cache/allocator/swa.py, common.py
(free_swa_out_of_window_slots), unified_cache/components/swa.py (prepare_for_caching_req,
cleanup_after_caching_req) and managers/schedule_batch.py (maybe_evict_swa). Every page is taken of both
pools; a request gives back those of windows that it has left behind.
"""

from __future__ import annotations

from kvplan.simulation.sglang.memory import Memory
from kvplan.simulation.sglang.request import Request
from kvplan.simulation.sglang.settings import SglangEngine
from kvplan.simulation.sglang.tree import Node
from kvplan.simulation.sglang.window_tree import WindowNode, WindowTree

INTERVAL = 128
"""Tokens behind a window that are given back together (SGLANG_SWA_EVICTION_INTERVAL)."""


class WindowMemory(Memory):
    """windows: free pages of the pool of windows."""

    tree: WindowTree

    def __init__(self, engine: SglangEngine) -> None:
        super().__init__(engine)
        self.windows, self.span = engine.window_blocks, engine.window
        self.behind = -(-max(self.span, self.page) // self.page) * self.page
        self.tree = WindowTree(engine.order, self.span, self.page)

    @property
    def windows_reachable(self) -> int:
        """Tokens of windows that are free or can be."""
        return (self.windows + self.tree.loose) * self.page

    @property
    def least(self) -> int:
        """Pages that are free in both pools."""
        return min(self.free, self.windows)

    def match(self, request: Request, tokens: int) -> int:
        pages, request.node, whole = self.tree.find(request.chain, tokens // self.page)
        request.prefix, request.branch = pages * self.page, whole * self.page
        request.matched = min(request.prefix, max(request.tokens - 1, 0))
        return request.prefix

    def make_room(self, pages: int) -> None:
        if pages > self.free or pages > self.windows:
            full, windows = self.tree.make_room(max(0, pages - self.free), max(0, pages - self.windows))
            self.free += full
            self.windows += windows

    def spend(self, pages: int) -> None:
        self.free -= pages
        self.windows -= pages

    def decode(self, requests: list[Request]) -> None:
        for request in requests:
            if request.decoded and request.tokens - 1 - self.span >= request.gone + INTERVAL:
                self._leave_behind(request, request.tokens - 1)
            request.decoded += 1
        super().decode(requests)

    def lasting(self, requests: list[Request], steps: int) -> tuple[int, int, int]:
        """The same, of the steps in which no windows need be evicted: which are is asked step by step."""
        steps, pages, before = super().lasting(requests, steps)
        count = len(requests)
        if before + count <= self.windows:
            return steps, pages, before
        return super().lasting(requests, min(steps, self.windows // count - 1))

    def take(self, requests: list[Request], steps: int, pages: int, before: int) -> None:
        super().take(requests, steps, pages, before)
        self.windows -= pages
        for request in requests:
            self._leave_behind_in(request, steps)
            request.decoded += steps

    def _leave_behind_in(self, request: Request, steps: int) -> None:
        """Give back what ``decode`` gives back in so many steps: a step looks once the interval is behind it,
        and finds a whole page now and then."""
        first = request.tokens - 1
        last, reached = first + steps - 1, first + (not request.decoded)
        while (reached := max(reached, request.gone + INTERVAL + self.span)) <= last:
            before = request.gone
            self._leave_behind(request, reached)
            if request.gone == before:  # until the next page is whole
                reached = max(reached + 1, before + self.page + self.behind)

    def _leave_behind(self, request: Request, reached: int) -> None:
        """Give back the windows' pages before the last window of ``reached`` tokens."""
        if reached - self.span < request.gone + 1:
            return
        before = request.gone = max(request.gone, request.kept)
        after = max(before, reached - self.behind) // self.page * self.page
        if after > before:
            self.windows += (after - before) // self.page
            request.gone = after

    def checkpoint(self, request: Request, tokens: int) -> None:
        tokens = min(tokens, request.filled)
        branch = request.branch if request.kept < request.branch <= tokens else 0
        whole = tokens
        if branch:
            tokens = branch
        if not request.done:
            self._leave_behind(request, tokens - 1)
        pages, page = tokens // self.page, self.page
        if tokens <= 0:
            return
        found = self.tree.store(
            request.chain, pages, request.stored, request.kept // page, request.gone // page
        )
        request.stored = max(request.stored, pages)
        self.free += found.full
        self.windows += found.windows
        self._unlock(request)
        request.lock, request.node = self.tree.lock(found.node), found.node
        request.kept = pages * page
        if branch:
            request.branch = 0
            if not request.done:
                self._leave_behind(request, whole - 1)

    def _unlock(self, request: Request) -> None:
        assert not isinstance(request.lock, Node)
        self.tree.unlock(request.lock)

    def leave(self, request: Request, *, store: bool) -> None:
        page = self.page
        if store:
            request.filled = request.tokens
            self.checkpoint(request, min(request.written, request.tokens))
        pages = -(-request.written // page)
        self.free += pages - request.kept // page
        self.windows += pages - max(request.gone, request.kept) // page
        self._unlock(request)
        request.lock = None
        request.rows, request.written = False, 0
        request.gone = request.decoded = request.branch = 0
        self.rows += 1

    def hold(self, request: Request) -> None:
        assert request.node is not None
        request.lock = self.tree.lock(request.node)

    def unheld_windows(self, node: Node | None) -> int:
        """Tokens of windows up to a node that count as free until a request holds them."""
        found, covered = 0, 0
        while isinstance(node, WindowNode) and node.parent is not None and covered < self.span:
            size = node.stop - node.start
            found += size if node.window and not node.windows else 0
            covered += size * self.page
            node = node.parent
        return found * self.page
