"""What a simulation answers; `SimulationResult.model_dump` is the documented JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from kvplan.record import record
from kvplan.results import SCHEMA_VERSION
from kvplan.simulation.outcome import Outcome, Target, means, percentile
from kvplan.units import SECOND

MILLISECOND = 10**6
BINS = 24


@record()
class Interval:
    """The likely run's figure and the least and most of all runs."""

    value: float
    low: float
    high: float

    def dump(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


@record()
class Rates:
    """Requests a second that one replica keeps the target at; high: the likely pool with fast steps; low: the
    safe pool with slow ones. at_least: a load that is so short says no more of the likely one."""

    value: float
    low: float
    high: float
    at_least: bool = False

    def dump(self) -> dict[str, float | bool]:
        return {"value": self.value, "low": self.low, "high": self.high, "at_least": self.at_least}


@record()
class Help:
    """What another setting would do, simulated: its name, hits, goodput and the 99th percentile of TTFT."""

    what: str
    hit_rate: float
    goodput: float
    ttft_p99_seconds: float


@record()
class ReplicasNeeded:
    """likely: with the likely pool and speed; safe: with the safe pool and slow steps. None: no number that
    was tried."""

    likely: int | None
    safe: int | None


@record(eq=False)
class SimulationResult:
    """runs: one for each pool and speed, the likely one first, with their names. needed: where replicas were
    asked for. sustainable: requests/s of one replica. most_hits: the share of prompt tokens that a cache
    without limit would have had. missed: what of a plan's ``require`` does not
    hold. pool_blocks: of one scheduler, by pool."""

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
    runs: tuple[tuple[tuple[str, str], Outcome], ...]
    needed: ReplicasNeeded | None = None
    sustainable: Rates | None = None
    sampled: int = 0
    most_hits: float = 0.0
    helps: tuple[Help, ...] = ()
    notes: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
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

    def model_dump(self) -> dict[str, Any]:
        """Only dict, list, str, int, float, bool and None. Times in seconds."""
        return {
            "schema_version": self.schema_version,
            "model": self.model,
            "engine": {"name": self.engine, "version": self.version, "scheduler_release": self.release},
            "trace": {
                "name": self.trace, "format": self.form, "requests": self.likely.requests,
                "requests_per_second": self.rate, "seconds": self.seconds,
                "identity_tokens": self.wide if self.wide > 1 else None,
                "prompt_tokens": self.likely.prompt_tokens, "refused": self.likely.refused,
            },
            "replicas": self.replicas,
            "pools": self.pools,
            "router": self.router,
            "step_time": self.step_time,
            "pool_blocks": dict(self.pool_blocks),
            "target": {
                "ttft_seconds": _seconds(self.target.ttft_ns), "tpot_seconds": _seconds(self.target.tpot_ns),
                "goodput": self.target.goodput,
            },
            "keeps": {"likely": self.keeps, "safe": self.safely},
            "replicas_needed": None
            if self.needed is None
            else {"likely": self.needed.likely, "safe": self.needed.safe},
            "sustainable_requests_per_second": None
            if self.sustainable is None
            else {**self.sustainable.dump(), "sampled_requests": self.sampled},
            "hit_rate": {**self.hit_rate.dump(), "unlimited": self.most_hits},
            "goodput": self.goodput.dump(),
            "preempted": self.preempted.dump(),
            "output_tokens_per_second": self.tokens_per_second.dump(),
            **{
                name: {f"p{share}": of(share / 100).dump() for share in (50, 90, 99)}
                for name, of in (
                    ("ttft_seconds", self.ttft), ("tpot_seconds", self.tpot),
                    ("latency_seconds", self.latency),
                )
            },
            "kv_in_use": {
                "peak_blocks": self.likely.peak, "blocks": self.likely.blocks, "over_time": self.kv_in_use(),
            },
            "saturated_runs": self.saturated_runs,
            "runs": [_run(case, run) for case, run in self.runs],
            "helps": [
                {"what": one.what, "hit_rate": one.hit_rate, "goodput": one.goodput,
                 "ttft_p99_seconds": one.ttft_p99_seconds}
                for one in self.helps
            ],
            "missed": list(self.missed),
            "notes": list(self.notes),
        }  # fmt: skip


def _seconds(value: int | None) -> float | None:
    return None if value is None else value / SECOND


def _run(case: Sequence[str], run: Outcome) -> dict[str, Any]:
    return {
        "pool": case[0], "speed": case[1], "hit_rate": run.hit_rate, "goodput": run.goodput,
        "preempted_requests": run.preempted, "preemptions": run.preemptions, "saturated": run.saturated,
        "steps": run.steps, "seconds": run.end_ns / SECOND,
        "ttft_p50_seconds": percentile(run.ttft, 0.5) / SECOND,
        "ttft_p99_seconds": percentile(run.ttft, 0.99) / SECOND,
        "tpot_p50_seconds": percentile(run.tpot, 0.5) / SECOND,
        "tpot_p99_seconds": percentile(run.tpot, 0.99) / SECOND,
    }  # fmt: skip
