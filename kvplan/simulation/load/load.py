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
from kvplan.record import record, replace
from kvplan.simulation.vllm.replica import Trace
from kvplan.units import SECOND

SEED = 1


@record(eq=False)
class Load:
    """Requests in order of arrival. wide: tokens of one identity; name: of the trace, as typed; form: its
    format; notes: what was filled in."""

    arrivals: tuple[Arrival, ...]
    wide: int = 1
    name: str = "trace"
    form: str = ""
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return (self.arrivals[-1].at_ns - self.arrivals[0].at_ns) / SECOND

    @property
    def rate(self) -> float:
        """Requests a second; 0 where all come at once."""
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
        return self.only(self.arrivals[:most])

    def only(self, arrivals: Sequence[Arrival]) -> Load:
        """Some of its requests, or the same at other times."""
        return Load(tuple(arrivals), self.wide, self.name, self.form, self.notes)

    def at_rate(self, rate: Fraction | float) -> Load:
        """The same requests, so many a second: all times in one proportion.

        Where all come at once there is no proportion: then times are those of a Poisson process with a fixed
        seed. Raises KvplanError(bad-rate).
        """
        if not 0 < rate <= 10**6:
            raise KvplanError(
                "bad-rate", f"{float(rate):g} requests/s is no rate", help="--rate 4: requests a second"
            )
        if not self.seconds:
            clock, came, chance = 0.0, [], random.Random(SEED)
            for _ in self.arrivals:
                came.append(round(clock * SECOND))
                clock += chance.expovariate(float(rate))
            return self._at(came)
        share = Fraction(self.rate) / Fraction(rate)
        first = self.arrivals[0].at_ns
        return self._at([int((one.at_ns - first) * share) for one in self.arrivals])

    def apart(self, seconds: float) -> Load:
        """The same requests, one every so many seconds."""
        step = round(seconds * SECOND)
        return self._at([place * step for place in range(len(self.arrivals))])

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
            ]
        )

    def trace(self) -> Trace:
        return Trace(self.arrivals, self.wide)
