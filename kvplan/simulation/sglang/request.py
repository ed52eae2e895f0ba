"""One request while SGLang serves it, and what one step computes."""

from __future__ import annotations

from kvplan.simulation.sglang.tree import Node
from kvplan.simulation.sglang.window_tree import Lock
from kvplan.simulation.time.chain import Chain


class Request:
    """number: place in the trace; answer: tokens that it makes; made: of these, known to the scheduler;
    filled: tokens of prompt and answer when its row was last built; prefix: tokens that are computed before
    the next chunk; end: after it; computed: in a step's view; written: tokens with slots; kept: tokens whose
    slots are the tree's; stored: pages that it has stored before; node: where its prefix ends; lock: what it
    holds; chunks: of its prompt under way, but the last; matched: tokens found when the queue was ordered."""

    __slots__ = (
        "answer", "at_ns", "branch", "buffered", "chain", "chunks", "computed", "decoded", "done",
        "end", "filled", "gone", "kept", "lock", "made", "matched", "node", "number", "prefix",
        "prompt", "retracted", "rows", "saved", "state", "stored", "words", "written",
    )  # fmt: skip

    def __init__(
        self, number: int, at_ns: int, prompt: int, answer: int, chain: Chain, words: Chain | None = None
    ) -> None:
        self.number, self.at_ns, self.prompt, self.answer = number, at_ns, prompt, answer
        self.chain, self.words = chain, words or chain
        self.made = self.filled = self.prefix = self.end = self.computed = 0
        self.written = self.kept = self.stored = self.chunks = self.matched = 0
        self.saved = 0  # tokens whose state was saved last
        self.state = self.buffered = False  # which slots it has
        self.gone = self.decoded = 0  # tokens whose windows it has given back; steps since its prompt
        self.branch = 0  # tokens up to which the full pool has its prefix, and the windows have not
        self.node: Node | None = None
        self.lock: Node | Lock | None = None
        self.rows = self.retracted = self.done = False

    @property
    def tokens(self) -> int:
        """Prompt and what is made of the answer."""
        return self.prompt + self.made


class Batch:
    """The work of one step: prompts, or one token for each running request, or (mixed) both.

    requests: in its rows' order; prompts: whether it computes any; cut: whose prompt goes on after it;
    beside: of a mixed one, those that only make an answer; admitted: with the tokens that the cache had.
    """

    __slots__ = (
        "admitted", "beside", "context", "count", "cut", "ends_ns", "parts", "preempted", "prompts",
        "requests", "tokens",
    )  # fmt: skip

    def __init__(self, requests: list[Request], *, prompts: bool) -> None:
        self.requests, self.prompts = requests, prompts
        self.cut: Request | None = None
        self.beside: set[Request] = set()
        self.parts: list[tuple[Request, int]] = []
        self.admitted: list[tuple[Request, int]] = []
        self.preempted: list[Request] = []
        self.tokens = self.count = self.context = self.ends_ns = 0
