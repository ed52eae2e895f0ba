"""One request while TensorRT-LLM serves it, and what a step computes."""

from __future__ import annotations

from kvplan.simulate.chain import Chain
from kvplan.simulate.trtllm.blocks import Block


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
