"""A closed load: as soon as one request ends the next one comes, so that as many are always under way."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.schedulers import viewed
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import AnyEngine, Numbered, Timeline, Trace

_NEVER = 1 << 61


class Closed(Timeline):
    """coming requests have no time yet; each that ends brings the next one (``start`` says how many are under
    way). Requests that are refused by max_model_len bring theirs at once."""

    rows_due: list[Arrival]
    released = 0

    def start(self, in_flight: int) -> None:
        self.rows_due = [
            row if place < in_flight else Arrival(_NEVER, row.prompt, row.answer, row.ids, row.priority)
            for place, row in enumerate(self.trace.arrivals)
        ]
        self.arrivals = self.rows_due
        self.released = in_flight

    def arrive(self) -> None:
        before = self.coming - self.at_work
        super().arrive()
        refused = self.coming - self.at_work - before
        if refused:
            self._release(refused)
            self.arrive()

    def made(self, made: Sequence[tuple[Numbered, bool]]) -> None:
        super().made(made)
        self._release(sum(done for _, done in made))

    def _release(self, count: int) -> None:
        for _ in range(count):
            if self.released < len(self.rows_due):
                row = self.trace.arrivals[self.released]
                self.rows_due[self.released] = Arrival(
                    self.now, row.prompt, row.answer, row.ids, row.priority
                )
                self.released += 1


def simulate_closed(
    rows: Sequence[Arrival], wide: int, engine: AnyEngine, time: Clock, in_flight: int
) -> Answer:
    """Serve requests of which ``in_flight`` are always under way (their own times do not count).

    Raises KvplanError where one can never be admitted, or is refused by max_model_len.
    """
    engine.check()
    long = next((row for row in rows if not engine.takes(row.prompt)), None)
    if long is not None:
        raise KvplanError(
            "request-never-fits",
            f"a prompt of {long.prompt:,} tokens is refused by max_model_len {engine.length:,}",
            help="give a larger max_model_len",
        )
    trace = Trace([Arrival(0, row.prompt, row.answer, row.ids, row.priority) for row in rows], wide)
    replica = viewed(Closed, engine)(trace, engine, time, jump=True, rows=False)
    replica.start(in_flight)
    return replica.run()
