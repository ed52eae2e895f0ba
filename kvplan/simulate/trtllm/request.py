"""One request while TensorRT-LLM serves it, and what a step computes."""

from __future__ import annotations

from kvplan.simulate.chain import Chain
from kvplan.simulate.trtllm.span import Span


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
        """What it has made becomes prompt."""
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
