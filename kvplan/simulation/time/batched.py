"""Schedulers that make up one batch a turn, in virtual time: what SGLang's and TensorRT-LLM's have in common.

With the overlap scheduler a batch is made up while the one before it runs, without its results. Requests that
have arrived by then are in time. While running requests only make answers and nobody can join, steps are
taken together (``fast_forward``); ``jump=False`` takes them one by one and gives the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from kvplan.simulation.time.clock import Clock, Computed
from kvplan.simulation.time.refusals import never_fits
from kvplan.simulation.time.timeline import BEYOND, AnyEngine, Numbered, Timeline, Trace


class Made(Computed, Protocol):
    """A batch; admitted: with the tokens that the cache had of each."""

    ends_ns: int

    @property
    def admitted(self) -> Sequence[tuple[Numbered, int]]: ...
    @property
    def preempted(self) -> Sequence[Numbered]: ...


class Room(Protocol):
    @property
    def free(self) -> int: ...


B = TypeVar("B", bound=Made)


class Batching(Protocol[B]):
    """A scheduler. stuck: it has requests, and without a further one it will never make up a batch; aborted:
    requests that it gave up when it last scheduled."""

    unfinished: int

    @property
    def memory(self) -> Room: ...
    @property
    def aborted(self) -> Sequence[Numbered]: ...
    @property
    def waiting(self) -> Sequence[Numbered]: ...
    @property
    def running(self) -> Sequence[Numbered]: ...
    @property
    def stuck(self) -> bool: ...
    def idle(self) -> None: ...
    def schedule(self, queued: B | None) -> B | None: ...
    def update(self, batch: B) -> Sequence[tuple[Numbered, bool]]: ...


class Batched(Timeline, Generic[B]):
    """scheduler: of the engine; queue: batches under way. Rows keep every step: they are taken one by one."""

    def __init__(
        self, trace: Trace, engine: AnyEngine, time: Clock, scheduler: Batching[B], *, jump: bool, rows: bool,
        overlap: bool,
    ) -> None:  # fmt: skip
        super().__init__(trace, engine, time, jump=jump, rows=rows)
        self.serving = scheduler
        self.jump, self.overlap = jump and not rows, bool(overlap)
        self.queue: deque[B] = deque()

    @property
    def at_work(self) -> int:
        return self.serving.unfinished

    @property
    def queued(self) -> int:
        return len(self.serving.waiting)

    @abstractmethod
    def fast_forward(self) -> bool:
        """Take as many steps as nobody can join, ends or lacks room in; whether there were any."""

    def advance(self, until: int = BEYOND) -> None:
        scheduler, queue, depth, self.until = self.serving, self.queue, 1 + self.overlap, until
        while self.now < until:
            self.arrive()
            if not scheduler.unfinished and not queue:
                scheduler.idle()
                if self.coming >= len(self.arrivals):
                    break
                self.now = max(self.now, self.arrivals[self.coming].at_ns)
                continue
            if self.jump and self.fast_forward():
                continue
            batch = self.launch(queue[-1] if queue else None)
            if batch is not None:
                queue.append(batch)
                if len(queue) < depth:
                    continue
            elif not queue:
                if scheduler.stuck:
                    self.wait()
                continue
            self.end(queue.popleft())
        self.answer.end_ns = self.now

    @property
    def busy(self) -> bool:
        return self.serving.unfinished > 0

    def launch(self, under_way: B | None) -> B | None:
        scheduler = self.serving
        if not scheduler.unfinished:
            scheduler.idle()
            return None
        batch = scheduler.schedule(under_way)
        for request in scheduler.aborted:  # alone they did not fit: ended with an error
            self.answer.columns["refused"][request.number] = 1
        if batch is not None:
            self.note(batch)
        return batch

    def wait(self) -> None:
        """Nothing can be scheduled: until the next request comes."""
        following = self.next_ns()
        if following == BEYOND:
            head = [*self.serving.waiting, *self.serving.running][0]
            raise never_fits(head.number, head.tokens, self.limits.blocks)
        self.now = max(self.now, following)

    def note(self, batch: B) -> None:
        """A batch was made up: its columns, its row, when it ends."""
        answer = self.answer
        starts = max(self.now, self.free_at)
        if batch.admitted:
            self.admitted(batch.admitted, starts)
        if batch.preempted:
            self.preempted(batch.preempted)
        lasts = self.time.lasts(batch)
        batch.ends_ns = self.free_at = starts + lasts
        answer.tokens += batch.tokens
        answer.busy_ns += lasts
        answer.steps += 1
        if answer.rows is not None:
            answer.rows.append((
                starts, batch.tokens, batch.context, batch.count, len(self.serving.running),
                len(self.serving.waiting), self.least, len(batch.preempted),
            ))  # fmt: skip

    @property
    def least(self) -> int:
        """Free pages, of the pool that has fewest."""
        return self.serving.memory.free

    def end(self, batch: B) -> None:
        self.now = batch.ends_ns
        self.made(self.serving.update(batch))

    # --- steps that are taken together ---

    def in_time(self, steps: int, line: tuple[int, int, int], *, full: bool) -> int:
        """Of so many steps of a line's times how many are scheduled before another request comes; full: none
        may join."""
        first, more, most = line
        limit = self.until if full else min(self.next_ns(), self.until)
        before = _steps_within(limit - max(self.now, self.free_at), first, more)
        return min(steps, most, before + self.overlap)

    def taken(self, steps: int, count: int, line: tuple[int, int, int]) -> None:
        """So many steps of so many requests have passed."""
        first, more, _ = line
        lasts = steps * first + more * (steps * (steps + 1) // 2)
        self.now = self.free_at = max(self.now, self.free_at) + lasts
        if self.overlap:
            self.now -= first + more * steps
            self.queue[0].ends_ns = self.free_at
        self.answer.steps += steps
        self.answer.tokens += steps * count
        self.answer.busy_ns += lasts
        self.fruitless = 0


def _steps_within(span: int, first: int, more: int) -> int:
    """How many steps begin within so many ns."""
    if span <= 0 or span >= BEYOND >> 1:
        return BEYOND if span > 0 else 0
    low, high = 1, 2
    while (high - 1) * first + more * ((high - 1) * high // 2) < span:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if (middle - 1) * first + more * ((middle - 1) * middle // 2) < span:
            low = middle
        else:
            high = middle
    return low
