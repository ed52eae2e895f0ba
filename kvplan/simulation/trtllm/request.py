"""One request while TensorRT-LLM serves it, what a step computes, and prompts that are cut to fit into it.

NVIDIA/TensorRT-LLM around 1.2 cpp/tensorrt_llm/batch_manager/microBatchScheduler.cpp
(setCtxRequestsChunkSize) and utils/inflightBatchingUtils.cpp (sortRequests). Read, not asked.
"""

from __future__ import annotations

from kvplan.simulation.time.chain import Chain
from kvplan.simulation.trtllm.settings import EQUAL, TrtllmEngine
from kvplan.simulation.trtllm.span import Span


class Request:
    """number: place in the trace; order: in which it came; prompt: tokens to compute before it makes any,
    after a pause with those that it had made; asked: tokens of the answer from there on; made: of the whole
    answer, known; coming: of asked, scheduled; position: prompt tokens computed; reused: of them, found;
    chunk: of the next step; spans, held: its blocks; written: tokens with slots; known: leading blocks that
    are in the tree; ending: its last token is under way. While it is one of `Answers` these are as of when it
    joined."""

    __slots__ = (
        "asked", "at_ns", "chain", "chunk", "coming", "computed", "done", "ending", "held", "known", "made",
        "number", "order", "position", "prompt", "reused", "spans", "starts", "written",
    )  # fmt: skip

    def __init__(self, number: int, at_ns: int, prompt: int, answer: int, chain: Chain) -> None:
        self.number, self.at_ns, self.chain = number, at_ns, chain
        self.prompt, self.asked = prompt, answer
        self.made = self.coming = self.position = self.reused = self.chunk = self.written = 0
        self.computed = self.known = self.starts = self.held = self.order = 0
        self.spans: list[Span] = []
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
        return bool(self.spans)

    def at(self, place: int) -> int:
        """Which of its spans has the block of this place."""
        spans = self.spans
        found = len(spans) - 1
        while spans[found].start > place:
            found -= 1
        return found

    def pause(self) -> None:
        """Turn the tokens made so far into prompt."""
        more = self.made - self.starts
        self.prompt, self.asked, self.starts = self.prompt + more, self.asked - more, self.made
        self.coming = self.position = self.reused = self.written = self.known = 0


class Batch:
    """making: whose prompt ends with it; answers: how many further requests make a token; ended: of these,
    whose last one it is; stored: whose prompts are done."""

    __slots__ = (
        "admitted", "answers", "context", "count", "ended", "ends_ns", "making", "parts", "preempted",
        "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.making: list[Request] = []
        self.ended: list[Request] = []
        self.parts: list[tuple[Request, int]] = []
        self.admitted: list[tuple[Request, int]] = []
        self.preempted: list[Request] = []
        self.tokens = self.count = self.context = self.ends_ns = self.answers = 0


def cut(engine: TrtllmEngine, prompts: list[Request], room: int) -> list[Request]:
    """Those that have a chunk in a step with so much room; each one's ``chunk`` is set."""
    size, limit = engine.block, engine.batch
    if engine.chunking != EQUAL:
        for request in prompts:
            left = request.prompt - request.position
            chunk = min(room, limit, left)
            request.chunk = chunk if chunk == left else chunk // size * size
            room -= request.chunk
    else:
        _equal(prompts, room, size, limit)
    return _last_chunks_last([request for request in prompts if request.chunk])


def _equal(prompts: list[Request], room: int, size: int, limit: int) -> None:
    for request in prompts:
        request.chunk = 0
    given, more = 0, True
    while given < room and more:
        more = False
        for request in prompts:
            chunk = min(request.chunk + size, request.prompt - request.position)
            step = chunk - request.chunk
            if step and given + step <= room and chunk <= limit:
                request.chunk, given, more = chunk, given + step, True


def _last_chunks_last(prompts: list[Request]) -> list[Request]:
    """Prompts that go on before those that are done with this chunk, as std::partition swaps them."""
    found, low, high = list(prompts), 0, len(prompts)
    while True:
        while low < high and found[low].chunk < found[low].prompt - found[low].position:
            low += 1
        if low == high:
            return found
        high -= 1
        while low < high and not found[high].chunk < found[high].prompt - found[high].position:
            high -= 1
        if low == high:
            return found
        found[low], found[high] = found[high], found[low]
        low += 1
