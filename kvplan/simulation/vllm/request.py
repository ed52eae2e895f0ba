"""One request while it is served, and the queues in which it waits."""

from __future__ import annotations

import heapq
from collections import deque

from kvplan.simulation.vllm.block_table import BlockTable, Path


class Request:
    """number: place in the trace; tokens: prompt and answer so far; computed: of these, scheduled; flight:
    tokens of steps that have not ended; ahead: answer tokens that are scheduled and not known yet (async);
    stale: tokens in flight of before a preemption; end: tokens after which it leaves; most: the same without
    max_model_len; junction: tokens up to which some groups have its prefix and others have not; order: of
    admission; path: the one of paths where there is one; own: its block from which on nobody else has names;
    known: the same in tokens, of all paths; writes: whether it only decodes and writes runs that others have
    names in; reached, stuck: its tokens when it last ran alone and was preempted, and how often again;
    decode_only, base, joined: as in `DecodeOnly`."""

    __slots__ = (
        "ahead",
        "at_ns",
        "base",
        "computed",
        "decode_only",
        "end",
        "flight",
        "held",
        "joined",
        "junction",
        "known",
        "most",
        "number",
        "order",
        "own",
        "path",
        "paths",
        "priority",
        "prompt",
        "reached",
        "running",
        "stale",
        "stuck",
        "tokens",
        "writes",
    )  # fmt: skip

    def __init__(self, number: int, at_ns: int, prompt: int, answer: int, limit: int, priority: int) -> None:
        self.number, self.at_ns, self.prompt, self.priority = number, at_ns, prompt, priority
        self.tokens, self.most = prompt, prompt + answer
        self.end = min(self.most, limit)
        self.computed = self.flight = self.ahead = self.stale = self.junction = self.order = 0
        self.base = self.joined = self.own = self.known = self.reached = self.stuck = 0
        self.running = self.decode_only = self.writes = False
        self.paths: dict[int, Path] = {}
        self.path: Path = []
        self.held: list[BlockTable] = []

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
