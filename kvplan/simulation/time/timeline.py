"""One engine in virtual time, whichever scheduler it has: requests arrive, steps last, columns are filled."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from kvplan.plans.arrival import Arrival
from kvplan.simulation.time.clock import Clock, Computed
from kvplan.simulation.time.names import Book, Names
from kvplan.simulation.time.refusals import check_arrivals, never_fits
from kvplan.simulation.time.results import Answer

if TYPE_CHECKING:
    from kvplan.simulation.vllm.offload.settings import Offload

BEYOND = 1 << 62
FRUITLESS = 200
"""Preemptions for each request at work, without one token, after which nobody will come further: requests
that preempt each other in turn do so for ever."""


LOOKS_EVERY = 50
"""After so many requests a run is looked at that may not miss more than so many targets."""


class AnyEngine(Protocol):
    """A scheduler's settings as far as all have them: blocks of its pool and their tokens, the longest
    request, the prompts it refuses, in words, whether prefixes are kept, tokens of one identity of them, and
    the multiple at which all its blocks end, by its rules, steps under way at once. with_caching: the same
    with prefixes kept, None where they are, or cannot be."""

    @property
    def blocks(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def refuses(self) -> str: ...
    @property
    def caching(self) -> bool: ...
    @property
    def hashed(self) -> int: ...
    @property
    def unit(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def caching_word(self) -> str: ...
    @property
    def release(self) -> str: ...
    @property
    def offload(self) -> Offload | None: ...
    def check(self) -> None: ...
    def takes(self, prompt: int) -> bool: ...
    def answered(self, prompt: int, answer: int) -> int: ...
    def with_caching(self) -> AnyEngine | None: ...
    def with_offload(self, offload: Offload) -> AnyEngine: ...


class Numbered(Protocol):
    number: int

    @property
    def tokens(self) -> int: ...


class Launched(Computed, Protocol):
    """A step that is under way."""

    ends_ns: int


class Trace:
    """Requests in order of arrival; ``wide``: tokens that one of their ids stands for. book: of names that
    other traces of the same requests share, so that a sweep over engines, rates or replicas pays once."""

    def __init__(self, arrivals: Sequence[Arrival], wide: int, book: Book | None = None) -> None:
        self.arrivals, self.wide = tuple(arrivals), wide
        self.book = Book() if book is None else book
        self._checked = False

    def check(self) -> None:
        """Raise KvplanError where a row is no request; once."""
        if not self._checked:
            check_arrivals(self.arrivals, self.wide)
            self._checked = True

    def names(self, hashed: int, block: int) -> Names:
        return self.book.names(self.arrivals, self.wide, hashed, block)


Hopeless = Callable[["Timeline"], bool]
"""Whether what was served until now says that the run need not be served to its end."""


@contextmanager
def uncollected() -> Iterator[None]:
    """The collector of cycles is off meanwhile: it would look again and again at what is in use, and what is
    not is freed without it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Timeline(ABC):
    """coming: the place of the next request; now: how far time has come; free_at: when the last step ends;
    until: when a further request may come."""

    def __init__(self, trace: Trace, engine: AnyEngine, time: Clock, *, jump: bool, rows: bool) -> None:
        self.trace, self.limits, self.time = trace, engine, time
        self.arrivals: Sequence[Arrival] = trace.arrivals
        self.answer = Answer(len(self.arrivals), rows)
        self.coming = self.now = self.free_at = 0
        self.fruitless = 0  # preemptions since the last token that any request was given
        self.until = BEYOND

    def run(self) -> Answer:
        """Serve everything."""
        with uncollected():
            self.advance()
        return self.answer

    def run_unless(self, hopeless: Hopeless) -> bool:
        """Serve everything, and say so: False where ``hopeless``, asked now and then, ended it before."""
        arrivals = self.arrivals
        with uncollected():
            for place in range(LOOKS_EVERY, len(arrivals), LOOKS_EVERY):
                self.advance(arrivals[place].at_ns)
                if hopeless(self):
                    return False
            self.advance()
        return not hopeless(self)

    @abstractmethod
    def advance(self, until: int = BEYOND) -> None:
        """Serve what has arrived. until: when a further request may come: no step is scheduled at or after
        that time, so that it is in time for the next one."""

    @abstractmethod
    def come(self, number: int, row: Arrival) -> None:
        """A request has arrived, and is taken."""

    def place(self, number: int) -> int:
        """In the whole trace, of a request that this replica is given."""
        return number

    @property
    @abstractmethod
    def free(self) -> int:
        """Blocks that nobody holds, though the cache may have something in them."""

    @property
    @abstractmethod
    def at_work(self) -> int:
        """Requests that have come and are not served to the end."""

    @property
    @abstractmethod
    def queued(self) -> int:
        """Requests that wait."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a step is to be scheduled."""

    @abstractmethod
    def launch(self, under_way: Any) -> Launched | None:
        """Schedule one step, after one that has not ended; None where there is nothing to do."""

    @abstractmethod
    def end(self, step: Any) -> None:
        """A step has ended."""

    @abstractmethod
    def wait(self) -> None:
        """Nothing can be scheduled: until the next request comes. Raises KvplanError where none does."""

    def due_ns(self) -> int:
        """When the next request that it has been given comes."""
        return self.arrivals[self.coming].at_ns if self.coming < len(self.arrivals) else BEYOND

    @abstractmethod
    def begun(self) -> list[tuple[int, int]]:
        """Of prompts that are partly computed how many tokens are, and all."""

    def next_ns(self) -> int:
        """When the next request may come."""
        coming = self.coming
        return self.arrivals[coming].at_ns if coming < len(self.arrivals) else self.until

    def arrive(self) -> None:
        arrivals = self.arrivals
        while self.coming < len(arrivals) and arrivals[self.coming].at_ns <= self.now:
            row = arrivals[self.coming]
            if self.limits.takes(row.prompt):
                self.come(self.coming, row)
            else:
                self.answer.columns["refused"][self.coming] = 1
            self.coming += 1

    def admitted(self, requests: Sequence[tuple[Numbered, int]], starts: int) -> None:
        """Requests that a step begins with, and the tokens that the cache had of them."""
        columns, steps = self.answer.columns, self.answer.steps
        for request, hit in requests:
            number = request.number
            if columns["admitted_step"][number] < 0:
                columns["admitted_step"][number] = steps
                columns["admitted_ns"][number] = starts
                columns["cached_tokens"][number] = hit
            else:
                columns["cached_again_tokens"][number] += hit

    def preempted(self, requests: Sequence[Numbered]) -> None:
        """Requests whose blocks are taken back."""
        for request in requests:
            self.answer.columns["preemptions"][request.number] += 1
        self.answer.preemptions += len(requests)
        self.fruitless += len(requests)
        if self.fruitless > FRUITLESS * (self.at_work + 1):
            worst = max(requests, key=lambda request: request.tokens)
            raise never_fits(worst.number, worst.tokens, self.limits.blocks)

    def made(self, made: Sequence[tuple[Numbered, bool]]) -> None:
        """Requests that have made a token now, and whether it was their last."""
        first, finished = self.answer.columns["first_token_ns"], self.answer.columns["finished_ns"]
        for request, done in made:
            self.fruitless = 0
            if first[request.number] < 0:
                first[request.number] = self.now
            if done:
                finished[request.number] = self.now
