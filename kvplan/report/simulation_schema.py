"""The JSON of ``kvplan simulate --json`` as pydantic models: the schema, and a check that the two agree."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SimulatedEngine(_Strict):
    name: str
    version: str = Field(description="the release whose pool was computed")
    scheduler_release: str = Field(description="the release whose scheduler was simulated")


class TraceEntry(_Strict):
    name: str
    format: str
    requests: int
    requests_per_second: float
    seconds: Seconds = Field(description="from the first arrival to the last")
    identity_tokens: Optional[int] = Field(description="tokens of one identity; null: prompts share nothing")  # noqa: UP045
    prompt_tokens: int
    refused: int = Field(description="prompts of max_model_len tokens or more")


class TargetEntry(_Strict):
    ttft_seconds: Optional[float]  # noqa: UP045
    tpot_seconds: Optional[float]  # noqa: UP045
    goodput: Share = Field(description="share of requests that must keep both")


class KeepsEntry(_Strict):
    likely: bool = Field(description="the likely run keeps the target; without one: its queue does not grow")
    safe: bool = Field(description="every run does")


class NeededEntry(_Strict):
    """Replicas; null: no number that was tried."""

    likely: Optional[int]  # noqa: UP045
    safe: Optional[int] = Field(description="with the safe pool and slow steps")  # noqa: UP045


class IntervalEntry(_Strict):
    """The likely run's figure, and the least and most of all runs."""

    value: float
    low: float
    high: float


class SustainableEntry(IntervalEntry):
    at_least: bool = Field(description="the sampled requests are too few to say more")
    sampled_requests: int = Field(description="the trace's first, by which it was found")


class HitRateEntry(IntervalEntry):
    """Of prompt tokens."""

    unlimited: Share = Field(description="what a cache without limit would have")


class PercentilesEntry(_Strict):
    p50: IntervalEntry
    p90: IntervalEntry
    p99: IntervalEntry


class InUseEntry(_Strict):
    """Blocks of the likely run, all pools together."""

    peak_blocks: int
    blocks: int
    over_time: list[float] = Field(description="mean shares of equal stretches of time")


class RunEntry(_Strict):
    pool: Literal["likely", "safe"]
    speed: Literal["likely", "fast", "slow"]
    hit_rate: Share
    goodput: Share
    preempted_requests: int
    preemptions: int
    saturated: bool = Field(description="the queue only grew")
    steps: int
    seconds: Seconds = Field(description="until the last answer")
    ttft_p50_seconds: Seconds
    ttft_p99_seconds: Seconds
    tpot_p50_seconds: Seconds
    tpot_p99_seconds: Seconds


class HelpEntry(_Strict):
    """Another setting, simulated with the likely pool and speed."""

    what: str
    hit_rate: Share
    goodput: Share
    ttft_p99_seconds: Seconds


class SimulationEntry(_Strict):
    """The answer of `kvplan simulate --json` and of `kvplan.simulate(...).model_dump()`. Times in seconds."""

    schema_version: Literal[1]
    model: str
    engine: SimulatedEngine
    trace: TraceEntry
    replicas: int
    pools: int = Field(description="schedulers of one replica: data-parallel ranks have one each")
    router: str = Field(
        description="how requests are dealt: round-robin, least-loaded, power-of-two, prefix-hash …"
    )
    step_time: str = Field(description="where step times come from")
    pool_blocks: dict[str, int] = Field(description="usable blocks of one scheduler, by pool")
    target: TargetEntry
    keeps: KeepsEntry
    replicas_needed: Optional[NeededEntry] = Field(description="with --replicas auto")  # noqa: UP045
    sustainable_requests_per_second: Optional[SustainableEntry] = Field(description="of one replica")  # noqa: UP045
    hit_rate: HitRateEntry
    goodput: IntervalEntry
    preempted: IntervalEntry = Field(description="share of requests")
    output_tokens_per_second: IntervalEntry
    ttft_seconds: PercentilesEntry
    tpot_seconds: PercentilesEntry
    latency_seconds: PercentilesEntry
    kv_in_use: InUseEntry
    saturated_runs: int
    runs: list[RunEntry]
    helps: list[HelpEntry]
    missed: list[str] = Field(description="what of a plan's require does not hold")
    notes: list[str]


def simulation_schema() -> dict[str, Any]:
    """The JSON Schema of one answer."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(SimulationEntry).json_schema(),
        "title": "kvplan simulate --json",
    }


def validate_simulation(data: dict[str, Any]) -> SimulationEntry:
    """The answer as a model. Raises pydantic.ValidationError where it does not follow the schema."""
    import json

    return SimulationEntry.model_validate_json(json.dumps(data))
