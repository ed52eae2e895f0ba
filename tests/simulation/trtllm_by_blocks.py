"""TensorRT-LLM's blocks one at a time, as kvCacheManager.cpp goes about them: what
`kvplan.simulation.trtllm` says in spans, to be held against it."""

from __future__ import annotations

from collections import OrderedDict

from kvplan.errors import KvplanError
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.trtllm.settings import TrtllmEngine

Key = tuple[int, int]
"""Of a block under its parent: the run of its last token, and how many tokens it has."""


class Block:
    """holders: requests that hold it; parent, first, key: its place in the tree, where it has one; children:
    by the run of their first token, then by key."""

    __slots__ = ("chain", "children", "first", "holders", "key", "parent")

    def __init__(self) -> None:
        self.holders = 0
        self.parent: Block | None = None
        self.children: dict[int, dict[Key, Block]] | None = None
        self.chain: Chain | None = None
        self.first = 0
        self.key: Key = (0, 0)


class Blocks:
    """fresh: blocks that were never used; queue: the others that nobody holds, as they are taken."""

    def __init__(self, engine: TrtllmEngine) -> None:
        self.size, self.caching, self.partial = engine.block, engine.caching, engine.partial
        self.fresh = engine.blocks
        self.queue: OrderedDict[Block, None] = OrderedDict()
        self.root = Block()
        self.pool = self  # a watched replica looks at ``memory.pool.free``

    @property
    def free(self) -> int:
        return self.fresh + len(self.queue)

    def take(self) -> Block:
        """A block for something else; what was in it is lost."""
        if self.fresh:
            self.fresh -= 1
            return Block()
        if not self.queue:
            raise KvplanError(
                "engine-fails", "a step needs a block and none is left: TensorRT-LLM stops here",
                help="a larger pool",
            )  # fmt: skip
        block, _ = self.queue.popitem(last=False)
        self._detach(block)
        return block

    def _detach(self, block: Block) -> None:
        """It and what follows it can no longer be found."""
        going = [block]
        for one in going:
            if one.children:
                going += [child for alike in one.children.values() for child in alike.values()]
                one.children = None
            parent, one.parent = one.parent, None
            if parent is not None and parent.children and one.first in parent.children:
                alike = parent.children[one.first]
                alike.pop(one.key, None)
                if not alike:
                    del parent.children[one.first]

    def _key(self, chain: Chain, start: int, stop: int) -> tuple[int, Key]:
        return chain.run_at(start), (chain.run_at(stop - 1), stop - start)

    # --- a request comes ---

    def enter(self, request: Request) -> int:
        """Blocks for its whole prompt (addSequence); how many of its tokens were found. The last token is
        always computed."""
        size, count = self.size, -(-request.prompt // self.size)
        node: Block | None = self.root if self.caching else None
        found, usable = 0, request.prompt - 1
        for place in range(count):
            start, stop = place * size, min((place + 1) * size, usable)
            block, tokens, whole = None, 0, False
            if node is not None and stop > start:
                block, tokens, whole = self._match(node, request.chain, start, stop)
            if block is None:
                node, block = None, self.take()
            elif whole:
                self.queue.pop(block, None)
                node, request.node, request.known = block, block, place + 1
            else:
                node = None
                if block.holders or block.children:
                    block = self.take()  # a copy of what is alike
                else:
                    del self.queue[block]
                    self._detach(block)
            found += tokens
            block.holders += 1
            request.blocks.append(block)
        request.written = request.prompt
        return found

    def _match(self, node: Block, chain: Chain, start: int, stop: int) -> tuple[Block | None, int, bool]:
        """The child that goes on alike, how many tokens of it, and whether it is a full block and all of it
        is."""
        first, key = self._key(chain, start, stop)
        alike = node.children.get(first) if node.children else None
        if alike is None:
            return None, 0, False
        exact = alike.get(key)
        if exact is not None:
            return exact, stop - start, key[1] == self.size
        best, most = None, 0
        if self.partial:
            for other in alike.values():
                assert other.chain is not None
                common = chain.alike(other.chain, start, min(stop, start + other.key[1])) - start
                if common > most:
                    best, most = other, common
        return best, most, False

    def next_new(self, request: Request) -> tuple[int, int] | None:
        """The first full block of its prompt that is not in the tree (findNewContextBlock)."""
        node, size, chain = self.root, self.size, request.chain
        for place in range(request.prompt // size):
            start, stop = place * size, (place + 1) * size
            first, key = self._key(chain, start, stop)
            following = node.children.get(first, {}).get(key) if node.children else None
            if following is None:
                return key[0], stop
            node = following
        return None

    def grow(self, request: Request, steps: int = 1) -> None:
        """Room for so many further tokens (addToken)."""
        held = len(request.blocks)
        request.written += steps
        for _ in range(-(-request.written // self.size) - held):
            block = self.take()
            block.holders = 1
            request.blocks.append(block)

    # --- what can be found again ---

    def store(self, request: Request, tokens: int, *, partial: bool) -> None:
        """Its first so many tokens but the last can be found from now on (storeBlocks)."""
        if not self.caching:
            return
        size, chain, usable = self.size, request.chain, tokens - 1
        node, place = request.node, request.known
        if node is None or node.parent is None:
            node, place = self.root, 0
        searching = True
        while place * size < usable:
            start, stop = place * size, min((place + 1) * size, usable)
            if stop - start < size and not partial:
                break
            first, key = self._key(chain, start, stop)
            following = None
            if searching and node.children:
                following = node.children.get(first, {}).get(key)
            own = request.blocks[place]
            if following is None:
                searching, following = False, own
                self._detach(own)
                own.parent, own.chain, own.first, own.key = node, chain, first, key
                if node.children is None:
                    node.children = {}
                node.children.setdefault(first, {})[key] = own
            node = following
            place += 1
            if node is own and stop - start == size:  # what it holds stays what it is
                request.node, request.known = node, place

    def leave(self, request: Request) -> None:
        """Let all of its blocks go, the last one first; what it has computed can be found."""
        self.store(request, request.tokens, partial=True)
        queue = self.queue
        for block in reversed(request.blocks):
            block.holders -= 1
            if not block.holders:
                queue[block] = None
        request.blocks = []


class Request:
    """number: place in the trace; prompt: tokens to compute before it makes any, after a pause with those
    that it had made; asked: tokens of the answer from there on; made: of the whole answer, known; coming: of
    asked, scheduled; position: prompt tokens computed; reused: of them, found; chunk: of the next step;
    written: tokens with slots; known: leading blocks that are in the tree, up to node; ending: its last token
    is under way."""

    __slots__ = (
        "asked", "at_ns", "blocks", "chain", "chunk", "coming", "computed", "done", "ending", "known", "made",
        "node", "number", "position", "prompt", "reused", "starts", "written",
    )  # fmt: skip

    def __init__(self, number: int, at_ns: int, prompt: int, answer: int, chain: Chain) -> None:
        self.number, self.at_ns, self.chain = number, at_ns, chain
        self.prompt, self.asked = prompt, answer
        self.made = self.coming = self.position = self.reused = self.chunk = self.written = 0
        self.computed = self.known = self.starts = 0
        self.blocks: list[Block] = []
        self.node: Block | None = None
        self.ending = self.done = False

    @property
    def tokens(self) -> int:
        """Prompt and what is made of the answer."""
        return self.prompt + self.made - self.starts

    @property
    def prefilling(self) -> bool:
        return self.position < self.prompt

    @property
    def begun(self) -> bool:
        """Its prompt is partly computed, or all of it."""
        return bool(self.blocks)

    def pause(self) -> None:
        """What it has made becomes prompt."""
        more = self.made - self.starts
        self.prompt, self.asked, self.starts = self.prompt + more, self.asked - more, self.made
        self.coming = self.position = self.reused = self.written = self.known = 0
        self.node = None


class Batch:
    """requests: that compute; making: of these, who makes a token; stored: whose prompts are done."""

    __slots__ = (
        "admitted", "context", "count", "ends_ns", "making", "parts", "preempted", "stored", "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.making: list[Request] = []
        self.stored: list[Request] = []
        self.parts: list[tuple[Request, int]] = []
        self.admitted: list[tuple[Request, int]] = []
        self.preempted: list[Request] = []
        self.tokens = self.count = self.context = self.ends_ns = 0
