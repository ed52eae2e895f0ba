"""One request while it is served, and the queues in which it waits."""

from __future__ import annotations

import heapq
from collections import deque

from kvplan.simulation.vllm.block_table import BlockTable, Path


class Request:
    """One request; a comment beside each slot says what it is."""

    __slots__ = (
        "ahead",  # answer tokens that are scheduled and not known yet (async)
        "at_ns",
        "base",  # as in `DecodeOnly`
        "computed",  # tokens that are scheduled
        "decode_only",  # as in `DecodeOnly`
        "drafted",  # tokens that its next step is to verify
        "end",  # tokens after which it leaves
        "flight",  # tokens of steps that have not ended
        "held",
        "joined",  # as in `DecodeOnly`
        "junction",  # tokens up to which some groups have its prefix and others have not
        "known",  # `own` in tokens, of all paths
        "most",  # `end` without max_model_len
        "number",  # place in the trace
        "order",  # of admission
        "own",  # its block from which on nobody else has names
        "path",  # the one of paths where there is one
        "paths",
        "priority",
        "prompt",
        "prompting",  # its last step left tokens of its prompt (drafts only)
        "reached",  # its tokens when it last ran alone and was preempted
        "running",
        "saved",  # whether its last blocks have one for the state at the prompt's last boundary
        "stale",  # tokens in flight of before a preemption
        "stuck",  # how often again
        "tokens",  # prompt and answer so far
        "writes",  # it only decodes and writes runs that others have names in
    )  # fmt: skip

    def __init__(self, number: int, at_ns: int, prompt: int, answer: int, limit: int, priority: int) -> None:
        self.number, self.at_ns, self.prompt, self.priority = number, at_ns, prompt, priority
        self.tokens, self.most = prompt, prompt + answer
        self.end = min(self.most, limit)
        self.computed = self.flight = self.ahead = self.stale = self.junction = self.order = 0
        self.drafted = self.base = self.joined = self.own = self.known = self.reached = self.stuck = (
            self.saved
        ) = 0
        self.running = self.decode_only = self.writes = self.prompting = False
        self.paths: dict[int, Path] = {}
        self.path: Path = []
        self.held: list[BlockTable] = []

    @property
    def prefill_end(self) -> int:
        """Tokens up to which it is computed as a prompt: after a preemption its answer so far as well."""
        return max(self.prompt, self.tokens - 1)

    def rank(self) -> tuple[int, int, str]:
        return self.priority, self.at_ns, str(self.number)


class Fifo(deque[Request]):
    """First come, first served; a preempted request stands before all others."""

    __slots__ = ()

    add, put_back, take = deque.append, deque.appendleft, deque.popleft

    def head(self) -> Request:
        return self[0]

    def put_back_all(self, skipped: list[Request]) -> None:
        """Requests that were passed over, in order."""
        self.extendleft(reversed(skipped))


class Ranked:
    """By priority, then arrival (a smaller number is served first; of equal ones vLLM compares the names)."""

    __slots__ = ("heap",)

    def __init__(self) -> None:
        self.heap: list[tuple[tuple[int, int, str], int, Request]] = []

    def add(self, request: Request) -> None:
        heapq.heappush(self.heap, (request.rank(), request.number, request))

    put_back = add

    def head(self) -> Request:
        return self.heap[0][2]

    def take(self) -> Request:
        return heapq.heappop(self.heap)[2]

    def put_back_all(self, skipped: list[Request]) -> None:
        for request in skipped:
            self.add(request)

    def remove(self, request: Request) -> None:
        self.heap.remove((request.rank(), request.number, request))
        heapq.heapify(self.heap)

    def __len__(self) -> int:
        return len(self.heap)
