"""The documented answer of a simulation: JSON, schema and the attributes that Python has are these types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, cast

from kvplan.record import field, field_names, record
from kvplan.results import SCHEMA_VERSION, Documented, Entry
from kvplan.simulation.outcome import Outcome, percentile
from kvplan.simulation.results import (
    BINS,
    Help,
    HourNeeds,
    Interval,
    ReplicasNeeded,
    Seconds,
    Share,
    SimulationResult,
)
from kvplan.units import SECOND

Pool = Literal["likely", "safe"]
Speed = Literal["likely", "fast", "slow"]


@record()
class SimulatedEngine:
    name: str
    version: str
    """the release whose pool was computed"""
    scheduler_release: str
    """the release whose scheduler was simulated"""


@record()
class Trace:
    name: str
    format: str
    requests: int
    requests_per_second: float
    seconds: Seconds
    """from the first arrival to the last"""
    identity_tokens: int | None
    """tokens of one identity; null: prompts share nothing"""
    prompt_tokens: int
    refused: int
    """prompts that are too long for the engine"""


@record()
class ShownTarget:
    ttft_seconds: float | None
    tpot_seconds: float | None
    goodput: Share
    """share of requests that must keep both"""


@record()
class Keeps:
    likely: bool
    """the likely run keeps the target; without one: its queue does not grow"""
    safe: bool
    """every run does"""


@record()
class Sustainable:
    """The likely run's figure, and the least and most of all runs."""

    value: float
    low: float
    high: float
    at_least: bool
    """the sampled requests are too few to say more"""
    sampled_requests: int
    """the trace's first, by which it was found"""


@record()
class HitRate:
    """Of prompt tokens."""

    value: float
    low: float
    high: float
    unlimited: Share
    """what a cache without limit would have"""


@record()
class Percentiles:
    p50: Interval
    p90: Interval
    p99: Interval


@record()
class InUse:
    """Blocks of the likely run, all pools together."""

    peak_blocks: int
    blocks: int
    over_time: list[float]
    """mean shares of equal stretches of time"""


@record()
class OverTime:
    """Requests of the likely run, in the stretches of ``kv_in_use``."""

    stretch_seconds: Seconds
    arrived: tuple[int, ...]
    answered: tuple[int, ...]
    waiting: tuple[float, ...]
    """the mean number not yet admitted"""
    most_waiting: int


@record()
class ShownTier:
    """A tier outside the GPU, in the likely run."""

    name: str
    hit_rate: Share
    """of prompt tokens, beyond what the GPU had"""
    stored_bytes: int
    loaded_bytes: int


@record()
class Tiers:
    tiers: tuple[ShownTier, ...]
    loads: int
    mean_load_seconds: Seconds
    """how long a request waited for its prefix"""


@record()
class ShownSplit:
    """Replicas that prefill and that decode, in the likely run."""

    prefill_replicas: int
    decode_replicas: int
    transfers: int
    mean_transfer_seconds: Seconds
    """from taking blocks until they are there, waiting for the link included"""
    transferred_blocks: int


@record()
class Run(Entry):
    """All requests under one pool and one speed."""

    pool: Pool
    speed: Speed
    hit_rate: Share
    goodput: Share
    preempted_requests: int
    preemptions: int
    saturated: bool
    """the queue only grew"""
    steps: int
    seconds: Seconds
    """until the last answer"""
    ttft_p50_seconds: Seconds
    ttft_p99_seconds: Seconds
    tpot_p50_seconds: Seconds
    tpot_p99_seconds: Seconds
    latency_p50_seconds: Seconds
    """until the last token"""
    latency_p99_seconds: Seconds
    output_tokens_per_second: float


@record(eq=False)
class Simulation(Documented):
    """The answer of `kvplan simulate --json` and of `kvplan.simulate(...)`. Times in seconds."""

    model: str
    engine: SimulatedEngine
    trace: Trace
    replicas: int
    pools: int
    """schedulers of one replica: data-parallel ranks have one each"""
    router: str
    """how requests are dealt: round-robin, least-loaded, power-of-two, prefix-hash …"""
    step_time: str
    """where step times come from"""
    pool_blocks: Mapping[str, int]
    """usable blocks of one scheduler, by pool"""
    target: ShownTarget
    keeps: Keeps
    replicas_needed: ReplicasNeeded | None
    """with --replicas auto"""
    sustainable_requests_per_second: Sustainable | None
    """of one replica"""
    hit_rate: HitRate
    goodput: Interval
    preempted: Interval
    """share of requests"""
    output_tokens_per_second: Interval
    ttft_seconds: Percentiles
    tpot_seconds: Percentiles
    latency_seconds: Percentiles
    kv_in_use: InUse
    requests_over_time: OverTime
    offload: Tiers | None
    """tiers outside the GPU, where they were asked for; their hits are part of hit_rate"""
    disaggregated: ShownSplit | None
    """where prompts and answers are made on replicas of their own"""
    concurrency: int | None
    """requests always under way; null: they come at their times"""
    saturated_runs: int
    runs: tuple[Run, ...]
    helps: tuple[Help, ...]
    hours: tuple[HourNeeds, ...]
    """with --hours"""
    missed: tuple[str, ...]
    """what of a plan's require does not hold"""
    notes: tuple[str, ...]
    outcome: SimulationResult
    """the runs themselves, request by request; not in the JSON"""
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)

    _JSON: ClassVar[tuple[str, ...]] = (
        "schema_version", "model", "engine", "trace", "replicas", "pools", "router", "step_time",
        "pool_blocks", "target", "keeps", "replicas_needed", "sustainable_requests_per_second", "hit_rate",
        "goodput", "preempted", "output_tokens_per_second", "ttft_seconds", "tpot_seconds",
        "latency_seconds", "kv_in_use", "offload", "disaggregated", "concurrency", "saturated_runs", "runs",
        "helps", "hours", "missed", "notes",
    )  # fmt: skip

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat row for each run, the likely one first: ``pandas.DataFrame(found.to_rows())``."""
        return [{name: getattr(run, name) for name in field_names(Run)} for run in self.runs]


def shown(result: SimulationResult) -> Simulation:
    """A result as its JSON has it."""
    likely, hits, rates = result.likely, result.hit_rate, result.sustainable
    return Simulation(
        model=result.model,
        engine=SimulatedEngine(result.engine, result.version, result.release),
        trace=Trace(
            name=result.trace,
            format=result.form,
            requests=likely.requests,
            requests_per_second=result.rate,
            seconds=result.seconds,
            identity_tokens=result.wide if result.wide > 1 else None,
            prompt_tokens=likely.prompt_tokens,
            refused=likely.refused,
        ),
        replicas=result.replicas,
        pools=result.pools,
        router=result.router,
        step_time=result.step_time,
        pool_blocks=dict(result.pool_blocks),
        target=ShownTarget(
            _seconds(result.target.ttft_ns), _seconds(result.target.tpot_ns), result.target.goodput
        ),
        keeps=Keeps(result.keeps, result.safely),
        replicas_needed=result.needed,
        sustainable_requests_per_second=None
        if rates is None
        else Sustainable(rates.value, rates.low, rates.high, rates.at_least, result.sampled),
        hit_rate=HitRate(hits.value, hits.low, hits.high, result.most_hits),
        goodput=result.goodput,
        preempted=result.preempted,
        output_tokens_per_second=result.tokens_per_second,
        ttft_seconds=_percentiles(result.ttft),
        tpot_seconds=_percentiles(result.tpot),
        latency_seconds=_percentiles(result.latency),
        kv_in_use=InUse(likely.peak, likely.blocks, result.kv_in_use()),
        requests_over_time=_over_time(likely),
        offload=_tiers(likely),
        disaggregated=_split(result),
        concurrency=result.concurrency or None,
        saturated_runs=result.saturated_runs,
        runs=tuple(_run(pool, speed, run) for (pool, speed), run in result.runs),
        helps=result.helps,
        hours=result.hours,
        missed=result.missed,
        notes=result.notes,
        outcome=result,
    )


def _over_time(run: Outcome) -> OverTime:
    load = run.load.by(BINS)
    return OverTime(run.end_ns / SECOND / BINS, load.arrived, load.answered, load.waiting, load.most_waiting)


def _tiers(run: Outcome) -> Tiers | None:
    if not run.tiers:
        return None
    whole = run.served_prompt_tokens or 1
    return Tiers(
        tuple(
            ShownTier(tier.name, tier.hits / whole, tier.stored_bytes, tier.loaded_bytes)
            for tier in run.tiers
        ),
        run.loads,
        run.load_ns / SECOND / (run.loads or 1),
    )


def _split(result: SimulationResult) -> ShownSplit | None:
    split, run = result.split, result.likely
    if split is None:
        return None
    mean = run.transfer_ns / SECOND / (run.transfers or 1)
    return ShownSplit(split.prefill, split.decode, run.transfers, mean, run.transferred_blocks)


def _percentiles(of: Callable[[float], Interval]) -> Percentiles:
    return Percentiles(of(0.5), of(0.9), of(0.99))


def _seconds(value: int | None) -> float | None:
    return None if value is None else value / SECOND


def _run(pool: str, speed: str, run: Outcome) -> Run:
    return Run(
        pool=cast(Pool, pool),
        speed=cast(Speed, speed),
        hit_rate=run.hit_rate,
        goodput=run.goodput,
        preempted_requests=run.preempted,
        preemptions=run.preemptions,
        saturated=run.saturated,
        steps=run.steps,
        seconds=run.end_ns / SECOND,
        ttft_p50_seconds=percentile(run.ttft, 0.5) / SECOND,
        ttft_p99_seconds=percentile(run.ttft, 0.99) / SECOND,
        tpot_p50_seconds=percentile(run.tpot, 0.5) / SECOND,
        tpot_p99_seconds=percentile(run.tpot, 0.99) / SECOND,
        latency_p50_seconds=percentile(run.latency, 0.5) / SECOND,
        latency_p99_seconds=percentile(run.latency, 0.99) / SECOND,
        output_tokens_per_second=run.tokens_per_second,
    )
