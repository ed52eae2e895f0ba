"""TensorRT-LLM's blocks: a tree of those that can be found again, and a queue of those that nobody holds.

NVIDIA/TensorRT-LLM around 1.2, cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp (WindowBlockManager,
KVCacheBlock) and evictionPolicy.cpp (LRUEvictionPolicy): read, never run. The source goes from block to
block; here blocks in a row that have one fate are a `Span`, so that a prompt of a thousand blocks is a few of
them. tests/simulation/trtllm_by_blocks.py says the same a block at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.errors import KvplanError
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.trtllm.settings import TrtllmEngine
from kvplan.simulation.trtllm.span import Span

if TYPE_CHECKING:
    from kvplan.simulation.trtllm.request import Request


class Blocks:
    """fresh: blocks that were never used; idle: the others that nobody holds; line: where their queue begins
    and ends."""

    def __init__(self, engine: TrtllmEngine) -> None:
        self.size, self.caching, self.partial = engine.block, engine.caching, engine.partial
        self.fresh, self.idle = engine.blocks, 0
        self.line = Span(0, 0)
        self.line.before = self.line.after = self.line
        self.root = Span(0, 0)
        self.pool = self  # a watched replica looks at ``memory.pool.free``

    @property
    def free(self) -> int:
        return self.fresh + self.idle

    def take(self, count: int) -> None:
        """Blocks for something else (getFreeBlock), what was let go first before the others, for all have one
        priority; what was in them is lost, and their children leave the tree and keep their place
        (freeChildren)."""
        if count > self.fresh + self.idle:
            raise KvplanError(
                "engine-fails", "a step needs a block and none is left: TensorRT-LLM stops here",
                help="a larger pool",
            )  # fmt: skip
        if count <= self.fresh:
            self.fresh -= count
            return
        count -= self.fresh
        self.fresh = 0
        self.idle -= count
        while count:
            span = self.line.after
            assert span is not None
            blocks = span.stop - span.start
            if blocks > count:  # its last ones
                span.stop -= count
                span.behead()
                return
            span.quit()
            span.detach()
            count -= blocks

    def _retake(self, span: Span) -> None:
        """Somebody holds a span of the queue again."""
        span.quit()
        self.idle -= span.stop - span.start

    def _below(self, node: Span, chain: Chain, place: int, limit: int) -> tuple[Span, int] | None:
        """The span that goes on alike below ``node``, and up to which place, at most ``limit``."""
        if place >= limit or not node.children:
            return None
        size = self.size
        start = place * size
        alike = node.children.get(chain.run_at(start))
        child = alike.get((chain.run_at(start + size - 1), size)) if alike else None
        if child is None:
            return None
        stop = min(child.stop, limit)
        if stop - place > 1:
            assert child.chain is not None
            stop = chain.alike(child.chain, start, stop * size) // size
        return child, stop

    # --- a request comes ---

    def enter(self, request: Request) -> int:
        """Blocks for its whole prompt (addSequence, loadOrAllocateBlocks); how many of its tokens were found.
        The last token is always computed."""
        size, chain, usable = self.size, request.chain, request.prompt - 1
        count = -(-request.prompt // size)
        place, found, own = 0, 0, 0
        if self.caching:
            node = self.root
            while below := self._below(node, chain, place, usable // size):
                node, stop = below
                if stop < node.stop:
                    node.cut(stop, size)
                if node.after is not None:
                    self._retake(node)
                node.holders[request] = None
                request.spans.append(node)
                place = stop
            request.known = place
            part, tokens = self._part(node, chain, place * size, min((place + 1) * size, usable))
            found = place * size + tokens
            if part is not None and not part.holders and not part.children and part.stop - part.start == 1:
                self._retake(part)  # else it is copied
                part.detach()
                own = 1
        self.take(count - place - own)
        rest = Span(place, count)
        rest.holders[request] = None
        request.spans.append(rest)
        request.held, request.written = count, request.prompt
        return found

    def _part(self, node: Span, chain: Chain, start: int, stop: int) -> tuple[Span | None, int]:
        """The child that shares most of these tokens, and how many (findMatchingBlock); of equal ones the
        first stored, where the source takes whichever its hash table has first."""
        if stop <= start or not node.children:
            return None, 0
        alike = node.children.get(chain.run_at(start))
        if alike is None:
            return None, 0
        exact = alike.get((chain.run_at(stop - 1), stop - start))
        if exact is not None:
            return exact, stop - start
        best, most = None, 0
        for other in alike.values() if self.partial else ():
            assert other.chain is not None
            common = chain.alike(other.chain, start, min(stop, start + other.key[1])) - start
            if common > most:
                best, most = other, common
        return best, most

    def next_new(self, request: Request) -> tuple[int, int] | None:
        """The first full block of its prompt that is not in the tree (findNewContextBlock)."""
        node, size, chain, place = self.root, self.size, request.chain, 0
        limit = request.prompt // size
        while below := self._below(node, chain, place, limit):
            node, place = below
            if place < node.stop:
                break
        if place >= limit:
            return None
        end = (place + 1) * size
        return chain.run_at(end - 1), end

    # --- what can be found again ---

    def store(self, request: Request, tokens: int, *, partial: bool) -> None:
        """Its first so many tokens but the last can be found from now on (storeBlocks)."""
        if not self.caching:
            return
        size, chain, usable = self.size, request.chain, tokens - 1
        limit, rest = divmod(usable, size)
        node, place = self.root, 0
        if request.known:
            known = request.spans[request.at(request.known - 1)]
            if known.parent is not None:
                node, place = known, known.stop
        while below := self._below(node, chain, place, limit):
            node, stop = below
            if stop < node.stop and (stop < limit or (partial and rest)):
                node.cut(stop, size)
            place = stop
            if request in node.holders:  # what it holds stays what it is
                request.known = place
        if place < limit:
            node = self._attach(request, node, place, limit)
        if partial and rest:
            start = limit * size
            alike = node.children.get(chain.run_at(start)) if node.children else None
            if alike is None or (chain.run_at(usable - 1), rest) not in alike:
                self._own(request, limit, limit + 1)[0].attach(node, chain, size, rest)

    def _attach(self, request: Request, node: Span, place: int, limit: int) -> Span:
        """Its blocks from ``place`` on go on below ``node``."""
        for span in self._own(request, place, limit):
            span.attach(node, request.chain, self.size, self.size)
            node = span
        request.known = limit
        return node

    def _own(self, request: Request, start: int, stop: int) -> list[Span]:
        """The spans that are its blocks of these places, and nothing else."""
        for place in (start, stop):
            if place < request.spans[-1].stop:
                span = request.spans[request.at(place)]
                if span.start < place:
                    span.cut(place, self.size)
        first = request.at(start)
        return [span for span in request.spans[first:] if span.stop <= stop]

    def leave(self, request: Request) -> None:
        """Let all of its blocks go, the last one first (releaseBlocks); what it has computed can be found."""
        self.store(request, request.tokens, partial=True)
        for span in reversed(request.spans):
            del span.holders[request]
            if not span.holders:
                span.enter(self.line)
                self.idle += span.stop - span.start
        request.spans, request.held = [], 0
