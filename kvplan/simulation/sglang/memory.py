"""SGLang's slots: pages that are free, in the tree, or a request's own.

sgl-project/sglang 0.5.23 python/sglang/srt/mem_cache/allocation.py (alloc_for_extend, alloc_for_decode),
common.py (checkpoint_kv_cache, release_kv_cache), allocator/base.py (evict_to_free_tokens,
check_decode_capacity), unified_radix_cache.py (checkpoint_into_tree).
"""

from __future__ import annotations

from kvplan.errors import KvplanError
from kvplan.simulation.sglang.request import Request
from kvplan.simulation.sglang.settings import SglangEngine
from kvplan.simulation.sglang.tree import Node, Tree
from kvplan.simulation.sglang.window_tree import Lock


class Memory:
    """free: pages; rows: requests that may still have some."""

    def __init__(self, engine: SglangEngine) -> None:
        self.engine, self.page, self.caching = engine, engine.block, engine.caching
        self.free, self.rows = engine.blocks, engine.sequences
        self.tree = Tree(engine.order)
        self.pool = self  # a watched replica looks at ``memory.pool.free``

    @property
    def reachable(self) -> int:
        """Tokens that are free or can be."""
        return (self.free + self.tree.idle) * self.page

    def match(self, request: Request, tokens: int) -> int:
        """Look for its first so many tokens; what is found is its prefix."""
        if self.caching:
            pages, request.node = self.tree.match(request.chain, tokens // self.page)
            request.prefix = pages * self.page
        else:
            request.prefix, request.node = 0, self.tree.root
        request.matched = min(request.prefix, max(request.tokens - 1, 0))
        return request.prefix

    def meet(self, request: Request, tokens: int) -> None:
        """The same for one that may be admitted."""
        self.match(request, tokens)

    def part(self, request: Request) -> None:
        """It is not admitted."""

    def passed(self, request: Request, tokens: int) -> None:
        """A step of answers has computed so many tokens of the request."""

    def make_room(self, pages: int) -> None:
        """Evict until so many pages are free, or nothing is left to evict."""
        if self.caching and pages > self.free:
            self.free += self.tree.evict(pages - self.free)

    def extend(self, requests: list[Request]) -> None:
        """Slots for chunks of prompts: to make room every request counts for a page more than it needs."""
        page, tokens, pages = self.page, 0, 0
        for request in requests:
            tokens += request.end - request.prefix
            pages += -(-request.end // page) + (-request.prefix // page)
            if not request.rows:
                request.rows = True
                self.rows -= 1
            request.written = request.end
        self.make_room(tokens if page == 1 else -(-tokens // page) + len(requests))
        if pages > self.least:
            raise KvplanError(
                "engine-fails",
                f"a step's prompts need {pages:,} pages and {self.least:,} can be had: SGLang stops here"
                " (Prefill out of memory)",
                help=("a smaller chunked_prefill_size", "a larger pool"),
            )
        self.spend(pages)

    @property
    def least(self) -> int:
        """Pages that are free."""
        return self.free

    def spend(self, pages: int) -> None:
        """Take so many pages, which are free."""
        self.free -= pages

    def needs(self, requests: list[Request]) -> int:
        """Pages for one token more of each."""
        page = self.page
        return len(requests) if page == 1 else sum(not request.written % page for request in requests)

    def suffices(self, requests: list[Request]) -> bool:
        """Whether one token more of each fits, with what can be evicted."""
        needed = self.needs(requests)
        self.make_room(needed)
        return self.least >= needed

    def decode(self, requests: list[Request]) -> None:
        needed = self.needs(requests)
        self.make_room(len(requests))
        self.spend(needed)
        for request in requests:
            request.written += 1

    def lasting(self, requests: list[Request], steps: int) -> tuple[int, int, int]:
        """Of so many steps of one token each, how many find room; the pages that all of these take, and
        those of all but the last."""
        count, page, room = len(requests), self.page, self.free + self.tree.idle
        if page == 1:
            steps = min(steps, room // count)
            return steps, steps * count, (steps - 1) * count
        begins = [0] * page  # requests that begin a page with a step, by the step's place in a page
        for request in requests:
            begins[-request.written % page] += 1
        whole = min(steps // page, room // count)
        pages = before = whole * count
        done = whole * page
        if done:
            before -= begins[page - 1]
        while done < steps and pages + begins[done % page] <= room:
            before = pages
            pages += begins[done % page]
            done += 1
        return done, pages, before

    def take(self, requests: list[Request], steps: int, pages: int, before: int) -> None:
        """Slots for so many steps; every step makes room for a page of each request first."""
        self.make_room(before + len(requests))
        self.free -= pages
        for request in requests:
            request.written += steps

    def checkpoint(self, request: Request, tokens: int) -> None:
        """Store its first tokens; what others had stored of them meanwhile is taken from the tree."""
        if not self.caching:
            return
        tree, page = self.tree, self.page
        pages = min(tokens, request.filled) // page
        have, node = tree.insert(request.chain, pages, request.stored)
        if pages:
            request.stored = max(request.stored, pages)
            prompt = request.prompt // page
            if 0 < prompt < pages:  # a prompt may stay when its answer is evicted
                tree.insert(request.chain, prompt, prompt, 1)
        self.free += max(0, have - request.kept // page)
        self._unlock(request)
        request.lock = request.node = tree.hold(node)
        request.kept = pages * page

    def leave(self, request: Request, *, store: bool) -> None:
        """Give back its row. store: what it has computed goes to the tree first."""
        page = self.page
        if store:
            request.filled = request.tokens
            self.checkpoint(request, min(request.written, request.tokens))
        self.free += -(-request.written // page) - request.kept // page
        self._unlock(request)
        request.lock = None
        request.rows, request.written = False, 0
        self.rows += 1

    def _unlock(self, request: Request) -> None:
        assert not isinstance(request.lock, Lock)
        self.tree.release(request.lock)

    def hold(self, request: Request) -> None:
        """It is admitted with its prefix."""
        assert request.node is not None
        request.lock = self.tree.hold(request.node) if self.caching else None

    def unheld(self, node: Node | None) -> int:
        """Tokens up to a node that count as free until a request holds them."""
        return self.tree.unheld(node) * self.page if node is not None and self.caching else 0
