"""Arrivals that are drawn for a rate and a mix of shapes, by a seed: as many as the engines that serve them
need to be judged by.

All chance comes from ``random.Random(seed).random()``, whose numbers Python keeps the same between versions.
Another rate stretches the same arrivals, so that two rates or two limits are compared on the same requests.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from kvplan.plans.arrival import Arrival
from kvplan.plans.workload import Shape
from kvplan.record import record
from kvplan.simulation.load.chance import BLOCK, gaps
from kvplan.units import SECOND

LEAST = 2000
"""Requests of a run at least: 20 of them may miss a 99th percentile."""
EACH = 500
"""Requests of one engine at least."""
EACH_RANK = 250
"""Requests of one data-parallel rank at least."""
SIDE = 8
"""Engines that are simulated of a fleet whose requests are dealt in turn: each of the others is given
arrivals of the same kind."""


@record()
class Drawn:
    """The load: requests a second over the whole fleet, cv of the gaps (1: Poisson, else Gamma)."""

    shapes: tuple[Shape, ...]
    rate: float
    cv: float = 1.0
    seed: int = 1
    prefix: int = 0
    """tokens that all prompts begin with"""

    @property
    def words(self) -> str:
        """``Poisson``, ``Gamma, CV 2.5``."""
        return "Poisson" if self.cv == 1 else f"Gamma, CV {self.cv:g}"

    def arrivals(self, engines: int, most: int, ranks: int = 1) -> tuple[tuple[Arrival, ...], int]:
        """(Requests in order of arrival, of how many engines they are). Dealt in turn over so many engines,
        of which at most ``most`` are kept: those that the others' requests are left out of. ranks: of an
        engine, each of which needs as many to be judged by."""
        kept = min(engines, most)
        each = max(EACH, EACH_RANK * ranks, LEAST // kept)
        chance = random.Random(self.seed).random
        gap = gaps("poisson" if self.cv == 1 else "gamma", self.cv, chance)
        shapes = _Picks(self.shapes, random.Random(f"{self.seed} shapes"))
        ids = range(self.prefix // BLOCK)
        clock, scale, rows = 0.0, SECOND / self.rate, []
        for place in range(each * engines):
            shape = shapes()
            if place % engines < kept:
                prompt, answer = max(1, shape.input_tokens), max(1, shape.output_tokens)
                rows.append(Arrival(round(clock * scale), prompt, answer, ids))
            clock += gap()
        return tuple(rows), kept


class _Picks:
    """Shapes by their weights."""

    def __init__(self, shapes: Sequence[Shape], chance: random.Random) -> None:
        self.shapes, self.chance = shapes, chance.random
        self.ends = list(accumulate(shape.weight for shape in shapes))

    def __call__(self) -> Shape:
        if len(self.shapes) == 1:
            return self.shapes[0]
        return self.shapes[bisect_right(self.ends, self.chance() * self.ends[-1])]
