"""What one step of SGLang computes: prompts, or one token for each running request, or (mixed) both."""

from __future__ import annotations

from kvplan.simulate.sglang.request import Request


class Batch:
    """requests: in its rows' order; prompts: whether it computes any; cut: whose prompt goes on after it;
    beside: of a mixed one, those that only make an answer; admitted: with the tokens that the cache had."""

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
