"""How much one replica takes, and how many replicas a load needs: by runs, not by formulas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import ceil

from kvplan.plans.arrival import Arrival
from kvplan.record import replace
from kvplan.simulation.fleet.closed import ClosedDealt
from kvplan.simulation.fleet.disaggregated import Disaggregated
from kvplan.simulation.fleet.ranked import DealtOverRanks
from kvplan.simulation.fleet.run import ROUND_ROBIN, Dealt
from kvplan.simulation.load.drawn import EACH_RANK, SIDE
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Outcome, Target, percentile
from kvplan.simulation.results import Rates, ReplicasNeeded
from kvplan.simulation.served import FAST, LIKELY, SAFE, SLOW, Served
from kvplan.units import SECOND

SAMPLE = 2000
"""Requests by which the sustainable rate is found: the trace's first."""
LASTING = 5
"""A load that lasts less than so many of its requests' median times says nothing of what is sustained."""
CLOSE = 1.08
"""The search ends where its bounds are nearer than this."""
_LEAST, _MOST = 1e-4, 1e5
_NEAR = 6
"""Times that the search for replicas grows by a quarter before it doubles."""
MOST_REPLICAS = 1024
_FEW = 16
"""Lengths of requests that are run one by one in place of all requests."""


def on_replicas(
    served: Served, load: Load, replicas: int, router: str, *, alone: bool = False, concurrency: int = 0
) -> Dealt | Disaggregated | ClosedDealt:
    """A load on so many replicas; alone: on one of a replica's pools (of ranks whose server deals: on one
    replica). Where prompts and answers are made on
    replicas of their own, these are as many as was said. concurrency: requests always under way, 0: they come
    at their times."""
    ranks = served.ranks
    if concurrency:
        return ClosedDealt(load, replicas * served.pools, concurrency, ranks)
    if served.split is not None:
        return Disaggregated(load.over(SIDE, dealt=False), served.split, router, ranks)
    if ranks is not None:
        some = load if alone else load.over(replicas, dealt=router == ROUND_ROBIN, ranks=ranks.count)
        return DealtOverRanks(some, 1 if alone else some.engines or replicas, ranks, router)
    if alone:
        return Dealt(load, 1, router)
    pools = replicas * served.pools
    part = load.over(pools, dealt=router == ROUND_ROBIN)
    return Dealt(part, part.engines or pools, router)


def kept(
    served: Served, load: Load, replicas: int, router: str, target: Target, case: tuple[str, str], *,
    alone: bool = False,
) -> Outcome | None:  # fmt: skip
    """The run of a pool and a speed (``case``) on so many replicas, where it keeps the target; of a run that
    does not no more is served than says so."""
    pool, speed = case
    dealt = on_replicas(served, load, replicas, router, alone=alone)
    how = served.engine(pool), served.speeds.clock(speed), target, served.speeds.frontend(speed)
    if not isinstance(dealt, ClosedDealt):
        return dealt.kept(*how)
    run = dealt.run(*how)
    return run if run.keeps(target) else None


class Runs:
    """Runs of one deployment, pool and speed on numbers of replicas, each once. case: pool and speed; known:
    which numbers keep the target; made: whole runs, of the least that keeps it and of one more."""

    def __init__(
        self, served: Served, load: Load, router: str, target: Target, case: tuple[str, str]
    ) -> None:
        self.served, self.load, self.router = served, load, router
        self.target, self.case = target, case
        self.known: dict[int, bool] = {}
        self.made: dict[int, Outcome] = {}

    def keeps(self, replicas: int) -> bool:
        """Whether so many keep the target."""
        if replicas not in self.known:
            run = kept(self.served, self.load, replicas, self.router, self.target, self.case)
            self.known[replicas] = run is not None
            if run is not None:
                self.made[replicas] = run
                least = min(self.made)
                for other in [other for other in self.made if other > least + 1]:
                    del self.made[other]
        return self.known[replicas]

    def whole(self, replicas: int) -> Outcome:
        """The run on so many, whether it keeps the target or not."""
        found = self.made.get(replicas)
        if found is None:
            pool, speed = self.case
            served = self.served
            dealt = on_replicas(served, self.load, replicas, self.router)
            clock, frontend = served.speeds.clock(speed), served.speeds.frontend(speed)
            found = dealt.run(served.engine(pool), clock, self.target, frontend)
        return found

    def least(self, first: int, most: int) -> int | None:
        """The least number up to ``most`` that keeps it, looked for from ``first`` on; None where none does,
        or where not even one request at a time keeps it."""
        if self.keeps(first):
            return least_of(self.keeps, first)
        if first >= most:
            return None
        if self.target.asked and not keeps_alone(self.served, self.load, self.target, self.case):
            return None
        return _grown(self.keeps, first + 1, most, low=first)[0]


def keeps_alone(served: Served, load: Load, target: Target, case: tuple[str, str]) -> bool:
    """Whether enough requests keep the target one at a time.

    Without identities, and without drafts, whose hits are drawn request by request, those of the same lengths
    are served alike: one of each is run, where these are few."""
    if target.asked and not load.has_identities and served.settings.speculative_method is None:
        alike = Counter((one.prompt, one.answer) for one in load.arrivals)
        if len(alike) <= _FEW:
            good, every = 0, replace(target, goodput=1.0)
            for (prompt, answer), many in alike.items():
                alone = load.only([Arrival(0, prompt, answer)])
                good += many * (kept(served, alone, 1, ROUND_ROBIN, every, case, alone=True) is not None)
            return good / len(load.arrivals) >= target.goodput
    apart = load.apart(1 / _LEAST)
    return kept(served, apart, 1, ROUND_ROBIN, target, case, alone=True) is not None


def shown_alone(served: Served, load: Load, target: Target, case: tuple[str, str]) -> Outcome:
    """The run of requests that come one at a time."""
    pool, speed = case
    dealt = on_replicas(served, load.first(SAMPLE).apart(1 / _LEAST), 1, ROUND_ROBIN, alone=True)
    return dealt.run(served.engine(pool), served.speeds.clock(speed), target, served.speeds.frontend(speed))


def sustainable(served: Served, load: Load, target: Target, router: str) -> tuple[Rates, int]:
    """Requests/s that one replica keeps the target at, and by how many requests that was found."""
    each = 1 if served.ranks is None else served.ranks.count
    sample = load.first(max(SAMPLE, EACH_RANK * each))
    found: list[float] = []
    short = False
    guess = load.rate or 1.0
    for pool, speed in ((LIKELY, LIKELY), (SAFE, SLOW), (LIKELY, FAST)):
        tried = _Tried(served, sample, target, router, pool, speed)
        rate = highest(tried.holds, guess)
        brief = tried.short_at is not None and (not rate or tried.short_at <= rate * 2)
        short = short or (not found and brief)
        whole = served.split is not None or served.ranks is not None
        found.append(rate if whole else rate * served.pools)
        guess = rate or guess
    return Rates(found[0], min(found), max(found), short), len(sample.arrivals)


class _Tried:
    """Runs of a sample at several rates. short_at: the lowest that was so short as to say nothing."""

    def __init__(
        self, served: Served, sample: Load, target: Target, router: str, pool: str, speed: str
    ) -> None:
        self.served, self.sample, self.target, self.router = served, sample, target, router
        self.case = pool, speed
        self.short_at: float | None = None

    def holds(self, rate: float) -> bool:
        asked = self.sample.at_rate(rate)
        run = kept(self.served, asked, 1, self.router, self.target, self.case, alone=True)
        if run is not None and asked.seconds * SECOND < LASTING * percentile(run.latency, 0.5):
            self.short_at = rate if self.short_at is None else min(rate, self.short_at)
            return False
        return run is not None


def highest(holds: Callable[[float], bool], guess: float) -> float:
    """The highest rate that holds, by factors of two and then between them; 0 where none does."""
    low, high = 0.0, 0.0
    rate = guess
    if holds(rate):
        low = rate
        while low < _MOST:
            rate = low * 2
            if not holds(rate):
                high = rate
                break
            low = rate
        else:
            return low
    elif not holds(_LEAST):
        return 0.0
    else:
        high = rate
        while high > _LEAST:
            rate = high / 2
            if holds(rate):
                low = rate
                break
            high = rate
        else:
            return 0.0
    while high / low > CLOSE:
        rate = (low * high) ** 0.5
        low, high = (rate, high) if holds(rate) else (low, rate)
    return low


def least_of(keeps: Callable[[int], bool], number: int, low: int = 0) -> int:
    """The least number that keeps, where ``number`` does, ``low`` does not and more never keep less: first
    near ``number``."""
    step = 1
    while number - step > low:
        if keeps(number - step):
            number, step = number - step, step * 2
        else:
            low = number - step
            break
    while number - low > 1:
        middle = (low + number) // 2
        low, number = (low, middle) if keeps(middle) else (middle, number)
    return number


def _grown(keeps: Callable[[int], bool], first: int, most: int, low: int = 0) -> tuple[int | None, int]:
    """(The least number up to ``most`` that keeps, the most that was tried), looked for from ``first`` on: by
    a quarter more a few times, then by doubling. low: one that does not keep."""
    number, tries = min(first, most), 0
    while not keeps(number):
        if number >= most:
            return None, number
        low, tries = number, tries + 1
        number = min(most, number + max(1, number // 4 if tries <= _NEAR else number))
    return least_of(keeps, number, low), number


class Question:
    """The runs of one deployment on one load for one target, by pool and speed: each is made once, whoever
    asks for it."""

    def __init__(self, served: Served, load: Load, router: str, target: Target) -> None:
        self.served, self.load, self.router, self.target = served, load, router, target
        self.cases: dict[tuple[str, str], Runs] = {}

    def runs(self, case: tuple[str, str]) -> Runs:
        """Of a pool and a speed; of the one that there is where it is not known."""
        pools = [name for name, _ in self.served.engines]
        speeds = [name for name, _ in self.served.speeds.clocks]
        case = case[0] if case[0] in pools else pools[0], case[1] if case[1] in speeds else speeds[0]
        found = self.cases.get(case)
        if found is None:
            found = self.cases[case] = Runs(self.served, self.load, self.router, self.target, case)
        return found

    def needed(self, rates: Rates) -> ReplicasNeeded:
        """The least replicas of which a run over the whole trace keeps the target.

        Where one request at a time misses it, more replicas do not help: None. The sustained rate only says
        where the search begins.
        """
        load, served, target = self.load, self.served, self.target
        most = MOST_REPLICAS if load.drawn is not None else min(MOST_REPLICAS, len(load.arrivals))

        def least(case: tuple[str, str], rate: float) -> tuple[int | None, int]:
            if not rate and target.asked and not keeps_alone(served, load, target, case):
                return None, 0
            return _grown(self.runs(case).keeps, max(1, ceil(load.rate / rate)) if rate else 1, most)

        likely, tried = least((LIKELY, LIKELY), rates.value)
        if len(served.cases) == 1:
            return ReplicasNeeded(likely, likely, tried)
        safe, safe_tried = least((SAFE, SLOW), rates.low)
        return ReplicasNeeded(likely, safe, max(tried, safe_tried))
