"""A simulation's answer; `kvplan.simulation.shown` has its documented JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from kvplan.record import field, record
from kvplan.results import SCHEMA_VERSION
from kvplan.simulation.fleet.disaggregated import Split
from kvplan.simulation.outcome import Outcome, Target, percentile
from kvplan.simulation.over_time import means
from kvplan.units import SECOND

BINS = 24
Share = Annotated[float, ("minimum", 0), ("maximum", 1)]
Seconds = Annotated[float, ("minimum", 0)]


@record()
class Interval:
    """The likely run's figure and the least and most of all runs."""

    value: float
    low: float
    high: float


@record()
class Rates:
    """Requests a second that one replica keeps the target at; high: the likely pool with fast steps; low: the
    safe pool with slow ones. at_least: a load that is so short says no more of the likely one."""

    value: float
    low: float
    high: float
    at_least: bool = False


@record()
class Help:
    """Another setting, simulated with the likely pool and speed."""

    what: str
    hit_rate: Share
    goodput: Share
    ttft_p99_seconds: Seconds


@record()
class ReplicasNeeded:
    """Replicas; null: no number that was tried."""

    likely: int | None
    """with the likely pool and speed"""
    safe: int | None
    """with the safe pool and slow steps"""
    tried: int = 0
    """the most that were tried; 0: none, for not even one request at a time keeps the target"""


@record()
class HourNeeds:
    """The least replicas for one hour of a trace, served alone; null: no number that was tried."""

    hour: int
    """1: the one that begins with the first request"""
    requests: int
    likely: int | None
    """with the likely pool and speed"""
    safe: int | None
    """with the safe pool and slow steps"""


@record(eq=False)
class SimulationResult:
    """All runs of a simulation; `kvplan.simulation.shown` makes the documented answer of it."""

    model: str
    engine: str
    version: str
    release: str
    trace: str
    form: str
    wide: int
    rate: float
    seconds: float
    replicas: int
    pools: int
    router: str
    target: Target
    step_time: str
    pool_blocks: tuple[tuple[str, int], ...]
    """of one scheduler, by pool"""
    runs: tuple[tuple[tuple[str, str], Outcome], ...]
    """one for each pool and speed, the likely one first, with their names"""
    needed: ReplicasNeeded | None = None
    """where replicas were asked for"""
    sustainable: Rates | None = None
    """requests/s of one replica"""
    sampled: int = 0
    most_hits: float = 0.0
    """the share of prompt tokens that a cache without limit would have had"""
    split: Split | None = None
    """replicas that prefill and that decode"""
    concurrency: int = 0
    """requests always under way, 0: they come at their times"""
    helps: tuple[Help, ...] = ()
    hours: tuple[HourNeeds, ...] = ()
    """where they were asked for"""
    notes: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    """what of a plan's ``require`` does not hold"""
    schema_version: int = field(default=SCHEMA_VERSION)

    @property
    def likely(self) -> Outcome:
        return self.runs[0][1]

    @property
    def keeps(self) -> bool:
        """Whether the likely run keeps the target."""
        return self.likely.keeps(self.target)

    @property
    def safely(self) -> bool:
        """Whether every run does."""
        return all(run.keeps(self.target) for _, run in self.runs)

    @property
    def saturated_runs(self) -> int:
        return sum(run.saturated for _, run in self.runs)

    def figure(self, of: Callable[[Outcome], float]) -> Interval:
        """A figure of the likely run with the least and most of all of them."""
        values = [of(run) for _, run in self.runs]
        return Interval(values[0], min(values), max(values))

    @property
    def hit_rate(self) -> Interval:
        return self.figure(lambda run: run.hit_rate)

    @property
    def goodput(self) -> Interval:
        return self.figure(lambda run: run.goodput)

    @property
    def preempted(self) -> Interval:
        return self.figure(lambda run: run.preempted_share)

    @property
    def tokens_per_second(self) -> Interval:
        return self.figure(lambda run: run.tokens_per_second)

    def ttft(self, share: float) -> Interval:
        """Seconds to the first token that so large a share of requests does not exceed."""
        return self.figure(lambda run: percentile(run.ttft, share) / SECOND)

    def tpot(self, share: float) -> Interval:
        """Seconds per further token that so large a share of requests does not exceed."""
        return self.figure(lambda run: percentile(run.tpot, share) / SECOND)

    def latency(self, share: float) -> Interval:
        """Seconds until the last token."""
        return self.figure(lambda run: percentile(run.latency, share) / SECOND)

    def kv_in_use(self, bins: int = BINS) -> list[float]:
        """Shares of the pools' blocks in use, over the likely run's time."""
        run = self.likely
        return [count / run.blocks for count in means(run.used, bins)]
