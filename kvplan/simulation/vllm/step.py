"""The work of one step."""

from __future__ import annotations

from kvplan.simulation.vllm.request import Request


class Step:
    """parts: tokens of the requests that were visited; ready: whether they make a
    token; late: requests that were decode_only when it was scheduled and have left since; count, tokens,
    context: of all; drafted: of parts the
    tokens that are a draft's; clock: `DecodeOnly`'s once it is scheduled; admitted: with the tokens that the
    prefix cache had."""

    __slots__ = (
        "admitted", "clock", "context", "count", "drafted", "ends_ns", "late", "parts", "preempted", "ready",
        "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.parts: list[tuple[Request, int]] = []
        self.ready: list[bool] = []
        self.late: list[Request] = []
        self.drafted: dict[Request, int] = {}
        self.admitted: list[tuple[Request, int]] = []
        self.preempted: list[Request] = []
        self.tokens = self.count = self.context = self.clock = self.ends_ns = 0
