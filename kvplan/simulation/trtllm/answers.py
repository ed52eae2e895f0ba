"""Requests that do nothing but make answers: a clock for all of them, so that a step costs no visit to each.

Each step gives every one a token and, where its last block is full, a block. Blocks of an answer are its own
and like any other, so only their number matters: requests are sorted by the place of their next token in
a block. A request's own figures are as of when it joined; ``leave`` brings them up to date.
"""

from __future__ import annotations

from heapq import heappop, heappush

from kvplan.simulation.trtllm.blocks import Blocks
from kvplan.simulation.trtllm.request import Request

BEYOND = 1 << 62


class Answers:
    """clock: steps so far; bases: of all, written tokens less the clock; begins: how many begin a block at a
    step, by the step's place in a block; ends: the clock after which each has all of its tokens scheduled;
    promised: blocks that they, and those whose last token is under way, still take to their ends
    (getRemainingBlocksToCompletion)."""

    def __init__(self, memory: Blocks, length: int) -> None:
        self.memory, self.length = memory, length
        self.clock = self.bases = self.promised = 0
        self.begins: dict[int, int] = {}
        self.ends: list[tuple[int, int, Request]] = []
        self.requests: dict[Request, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def written(self) -> int:
        """Tokens with slots, of all together."""
        return self.bases + len(self.requests) * self.clock

    def to_come(self, request: Request) -> int:
        """Blocks that it still takes to its end; what the cache may have of it does not count."""
        tokens = min(request.prompt + request.asked, self.length)
        return -(-tokens // self.memory.size) - request.held

    def join(self, request: Request) -> None:
        base, end = request.written - self.clock, self.clock + request.asked - request.coming
        self.requests[request] = base, end
        self.bases += base
        place = -base % self.memory.size
        self.begins[place] = self.begins.get(place, 0) + 1
        heappush(self.ends, (end, request.order, request))

    def leave(self, request: Request) -> None:
        """It is to be visited again."""
        (base, _), size = self.requests.pop(request), self.memory.size
        self.bases -= base
        self.begins[-base % size] -= 1
        steps = base + self.clock - request.written
        request.written += steps
        request.coming += steps
        request.held = request.spans[-1].stop = max(request.held, -(-request.written // size))
        request.computed = request.written

    def needs(self, request: Request) -> bool:
        """Whether the next step takes a block for it."""
        return (self.requests[request][0] + self.clock) % self.memory.size == 0

    def needed(self, steps: int = 1) -> int:
        """Blocks that the next so many steps take."""
        size = self.memory.size
        if steps == 1:
            return self.begins.get(self.clock % size, 0)
        rounds, rest = divmod(steps, size)
        taken = rounds * len(self.requests)
        return taken + sum(
            count for place, count in self.begins.items() if (place - self.clock) % size < rest
        )

    def step(self, steps: int = 1) -> None:
        """So many tokens for each."""
        needed = self.needed(steps)
        if needed:
            self.memory.take(needed)
            self.promised -= needed
        self.clock += steps

    def until_end(self) -> int:
        """Steps up to the one that is somebody's last, that one among them."""
        return self._first() - self.clock

    def ended(self) -> list[Request]:
        """Those whose last token was scheduled just now, in their order; they leave."""
        found: list[Request] = []
        while self._first() <= self.clock:
            request = heappop(self.ends)[2]
            self.leave(request)
            found.append(request)
        return found

    def _first(self) -> int:
        """The first end; those of requests that have left meanwhile are forgotten."""
        ends = self.ends
        while ends:
            end, _, request = ends[0]
            if self.requests.get(request, (0, -1))[1] == end:
                return end
            heappop(ends)
        return BEYOND
