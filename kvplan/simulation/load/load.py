"""The requests that are served: a trace as it is, faster or slower, or cut to its first requests."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import gcd

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.record import field, record, replace
from kvplan.simulation.load.chance import BLOCK
from kvplan.simulation.load.drawn import SIDE, Drawn
from kvplan.simulation.time.names import Book
from kvplan.simulation.time.timeline import Trace
from kvplan.units import SECOND

SEED = 1


@record(eq=False)
class Load:
    """Requests in order of arrival. wide: tokens of one identity; name: of the trace, as typed; form: its
    format; notes: what was filled in; drawn: how arrivals without a trace are drawn; engines: those that are
    simulated of a fleet, 0: all; book: names of its prefixes, as are the same requests' at other times."""

    arrivals: tuple[Arrival, ...]
    wide: int = 1
    name: str = "trace"
    form: str = ""
    notes: tuple[str, ...] = ()
    drawn: Drawn | None = None
    engines: int = 0
    book: Book = field(default_factory=Book)

    @property
    def seconds(self) -> float:
        return (self.arrivals[-1].at_ns - self.arrivals[0].at_ns) / SECOND

    @property
    def rate(self) -> float:
        """Requests a second; 0 where all come at once."""
        if self.drawn is not None:
            return self.drawn.rate
        return (len(self.arrivals) - 1) / self.seconds if self.seconds else 0.0

    @property
    def prompt_tokens(self) -> int:
        return sum(one.prompt for one in self.arrivals)

    @property
    def has_identities(self) -> bool:
        return any(one.ids for one in self.arrivals)

    def first(self, most: int) -> Load:
        """Its first requests."""
        if len(self.arrivals) <= most:
            return self
        return self.only(self.arrivals[:most], self.book.part(self.arrivals, range(most)))

    def only(self, arrivals: Sequence[Arrival], book: Book | None = None) -> Load:
        """Some of its requests, or the same at other times. book: of their names."""
        own = Book() if book is None else book
        return Load(tuple(arrivals), self.wide, self.name, self.form, self.notes, book=own)

    def at_rate(self, rate: Fraction | float) -> Load:
        """The same requests, so many a second: all times in one proportion.

        Where all come at once there is no proportion: then times are those of a Poisson process with a fixed
        seed. Raises KvplanError(bad-rate).
        """
        if not 0 < rate <= 10**6:
            raise KvplanError(
                "bad-rate", f"{float(rate):g} requests/s is no rate", help="--rate 4: requests a second"
            )
        if self.drawn is not None:
            return drawn_load(replace(self.drawn, rate=float(rate)))
        if not self.seconds:
            clock, came, chance = 0.0, [], random.Random(SEED)
            for _ in self.arrivals:
                came.append(round(clock * SECOND))
                clock += chance.expovariate(float(rate))
            return self._at(came)
        share = Fraction(self.rate) / Fraction(rate)
        first = self.arrivals[0].at_ns
        return self._at([int((one.at_ns - first) * share) for one in self.arrivals])

    def over(self, engines: int, *, dealt: bool = True, ranks: int = 1) -> Load:
        """The load of so many engines: of a trace its requests, of a rate as many as each needs. dealt: in
        turn, so that some of many engines stand for all; ranks: schedulers of an engine."""
        return self if self.drawn is None else drawn_load(self.drawn, engines, dealt=dealt, ranks=ranks)

    def apart(self, seconds: float) -> Load:
        """The same requests, one every so many seconds."""
        step = round(seconds * SECOND)
        return self._at([place * step for place in range(len(self.arrivals))])

    def later(self, by_ns: int) -> Load:
        """The same requests, all so much later."""
        return self._at([one.at_ns + by_ns for one in self.arrivals])

    def over_its_steps(self) -> Load:
        """Where a recorder wrote whole steps of time (Mooncake: 3 s), the requests of one step spread
        evenly over it, for as they stand they would be bursts at every rate. Unchanged where most requests
        have an instant of their own, and where all come at one.
        """
        counts = Counter(one.at_ns for one in self.arrivals)
        shared = sum(count for count in counts.values() if count > 1)
        if len(counts) < 2 or shared * 2 <= len(self.arrivals):
            return self
        instants = sorted(counts)
        step = gcd(*(after - before for before, after in pairwise(instants)))
        placed: Counter[int] = Counter()
        times = []
        for one in self.arrivals:
            times.append(one.at_ns + placed[one.at_ns] * step // counts[one.at_ns])
            placed[one.at_ns] += 1
        said = f"times are whole steps of {step / SECOND:g} s: the requests of a step are spread over it"
        return replace(self._at(times), notes=(*self.notes, said))

    def _at(self, times: Sequence[int]) -> Load:
        return self.only(
            [
                Arrival(at, one.prompt, one.answer, one.ids, one.priority)
                for at, one in zip(times, self.arrivals)
            ],
            self.book,
        )

    def trace(self, places: Sequence[int] | None = None) -> Trace:
        """The requests, or those at some places, to be served."""
        if places is None:
            return Trace(self.arrivals, self.wide, self.book)
        return Trace(
            [self.arrivals[place] for place in places], self.wide, self.book.part(self.arrivals, places)
        )


def drawn_load(drawn: Drawn, engines: int = 1, *, dealt: bool = True, ranks: int = 1) -> Load:
    """A load that is drawn, for so many engines of so many ranks."""
    arrivals, kept = drawn.arrivals(engines, max(1, SIDE // ranks) if dealt else engines, ranks)
    some = f"{kept} of {engines:,} engines are simulated: each of the others has arrivals of the same kind"
    return Load(
        arrivals, BLOCK if drawn.prefix else 1, f"drawn, seed {drawn.seed}", drawn.words,
        (some,) if kept < engines else (), drawn, kept,
    )  # fmt: skip
