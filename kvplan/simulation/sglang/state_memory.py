"""SGLang's slots of a model with states: pages, and slots of states for requests and for prefixes.

sgl-project/sglang 0.5.23 python/sglang/srt/mem_cache/unified_cache/components/mamba.py
(prepare_for_caching_req, cleanup_after_caching_req, finalize_match_result_in_cache), allocation.py
(ensure_mamba_capacity), memory_pool.py (HybridReqToTokenPool) and managers/schedule_batch.py
(_mamba_radix_cache_v2_req_prepare_for_extend). A request has a slot for its state and, with extra buffers,
two (one without overlap) into which steps save the state at a boundary, for the prefix cache.
"""

from __future__ import annotations

from math import lcm

from kvplan.errors import KvplanError
from kvplan.simulation.sglang.memory import Memory
from kvplan.simulation.sglang.request import Request
from kvplan.simulation.sglang.settings import SglangEngine
from kvplan.simulation.sglang.state_tree import StateTree
from kvplan.simulation.sglang.tree import Node
from kvplan.simulation.sglang.window_tree import WindowNode


class StateMemory(Memory):
    """slots: of states that are free; buffers: of a request, to save states in; chunk, interval: tokens at
    whose multiples prompts and answers save one; whole: a page has several chunks of the kernel."""

    tree: StateTree

    def __init__(self, engine: SglangEngine) -> None:
        super().__init__(engine)
        self.tree = StateTree(engine.order, self.page)
        self.slots, self.extra = engine.state_slots, engine.extra_buffer
        self.buffers = (2 if engine.overlap else 1) if self.extra else 0
        self.chunk = max(engine.state_chunk, self.page)
        self.whole = engine.state_chunk < self.page
        self.interval = lcm(self.chunk, engine.track_interval)

    # --- look-ups ---

    def match(self, request: Request, tokens: int) -> int:
        pages, request.node, whole = self.tree.find(request.chain, tokens // self.page)
        request.prefix = pages * self.page
        aligned = whole * self.page // self.chunk * self.chunk
        request.branch = aligned if aligned > request.prefix else 0
        request.matched = min(request.prefix, max(request.tokens - 1, 0))
        return request.prefix

    def meet(self, request: Request, tokens: int) -> None:
        """The state that is found is copied into a slot of its own at once."""
        self.match(request, tokens)
        node = request.node
        if isinstance(node, WindowNode) and node.window and not request.state:
            if not self.slots:
                lock = self.tree.lock(node)
                self._room(1)
                self.tree.unlock(lock)
            self._take(1)
            request.state = True

    def part(self, request: Request) -> None:
        """It was not admitted."""
        if request.state:
            request.state = False
            self.slots += 1

    # --- slots ---

    def make_room(self, pages: int) -> None:
        if pages > self.free:
            self._gain(pages - self.free, 0)

    def _gain(self, pages: int, states: int) -> None:
        full, slots = self.tree.make_room(pages, states)
        self.free += full
        self.slots += slots

    def _room(self, slots: int) -> None:
        if slots > self.slots:
            self._gain(0, slots - self.slots)

    def _take(self, slots: int) -> None:
        self._room(slots)
        if slots > self.slots:
            raise KvplanError(
                "engine-fails",
                f"{slots:,} slots of states are needed and {self.slots:,} can be had: SGLang stops here",
                help=("--max-mamba-cache-size", "a smaller --max-running-requests"),
            )
        self.slots -= slots

    def extend(self, requests: list[Request]) -> None:
        needed = sum((not one.state) + (0 if one.buffered else self.buffers) for one in requests)
        self._take(needed)
        for request in requests:
            request.state = request.buffered = True
        super().extend(requests)
        if self.extra:
            for request in requests:
                self._saves(request)

    def _saves(self, request: Request) -> None:
        """The boundary whose state this chunk saves."""
        length = request.end - request.prefix
        if length < self.chunk:
            return
        last = request.prefix + length // self.chunk * self.chunk
        before = last + 1 if self.whole else request.end
        branch = request.branch
        if request.prefix < branch < before and (branch - request.prefix) % self.chunk == 0:
            last = branch
        request.saved = last

    def passed(self, request: Request, tokens: int) -> None:
        """A step of answers has computed so many tokens of the request."""
        if self.extra and tokens % self.interval == 0:
            request.saved = tokens

    def take(self, requests: list[Request], steps: int, pages: int, before: int) -> None:
        super().take(requests, steps, pages, before)
        for request in requests:
            last = request.tokens + steps - 1
            if last - last % self.interval >= request.tokens:
                self.passed(request, last - last % self.interval)

    # --- the prefix cache ---

    def checkpoint(self, request: Request, tokens: int) -> None:
        tokens = min(tokens, request.filled)
        reach = min(tokens, request.saved) if self.extra else tokens
        if not request.done and reach:
            self._take(1)  # in place of the one that the prefix cache takes
        pages = reach // self.page
        taken = False
        if reach:
            have, node, taken = self.tree.insert_state(request.chain, pages, request.stored)
            request.stored = max(request.stored, pages)
            self.free += max(0, have - request.kept // self.page)
            self._unlock(request)
            request.lock, request.node = self.tree.lock(node), node
            request.kept = pages * self.page
        if request.done:
            self._end(request, taken)
        elif reach and not taken:
            self.slots += 1
        if not request.done:
            request.saved = 0

    def _end(self, request: Request, taken: bool) -> None:
        """All its slots are free, but for one that the prefix cache has."""
        self.slots += request.state + (self.buffers if request.buffered else 0) - taken
        request.state = request.buffered = False
        request.saved = 0

    def _unlock(self, request: Request) -> None:
        assert not isinstance(request.lock, Node)
        self.tree.unlock(request.lock)

    def leave(self, request: Request, *, store: bool) -> None:
        if not store:
            self._end(request, False)
        super().leave(request, store=store)
        request.branch = 0

    def hold(self, request: Request) -> None:
        assert request.node is not None
        request.lock = self.tree.lock(request.node)
