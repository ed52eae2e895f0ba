"""The layout of a plan file as pydantic models: fields are the YAML keys, the JSON Schema comes from them."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from kvplan.files.plans.values import (
    Age,
    Amount,
    Duration,
    FreeShare,
    GpuCount,
    GpuName,
    Percent,
    Percentile,
    Rate,
    Requests,
    Seed,
    Size,
    SomeTokens,
    Spread,
    Text,
    Tokens,
)
from kvplan.files.traces.formats import FORMATS
from kvplan.plans.plan import DEFAULT_MAX_AGE_DAYS, LIKELY, PLAN_FORMAT, QUALITIES, SAFE

PERCENTILES = {"min": 0, "p25": 25, "p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "max": 100}


class Strict(BaseModel):
    """No key beside the fields; no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PercentilesEntry(Strict):
    """Lengths by percentile: so many of a hundred requests are at most this long. They do not fall."""

    min: SomeTokens = None
    p25: SomeTokens = None
    p50: SomeTokens = None
    p75: SomeTokens = None
    p90: SomeTokens = None
    p95: SomeTokens = None
    p99: SomeTokens = None
    max: SomeTokens = Field(description="the longest that may come")

    @model_validator(mode="after")
    def _rise(self) -> PercentilesEntry:
        given = self.points()
        for (_, low), (name, high) in pairwise(given):
            if high < low:
                raise PydanticCustomError(
                    "kvplan",
                    "percentiles cannot fall: {name} is {high}, and one before it is {low}",
                    {"name": name, "high": f"{high:,}", "low": f"{low:,}"},
                )
        return self

    def points(self) -> list[tuple[str, int]]:
        """(name, tokens) of what was given, in order."""
        pairs = [(name, getattr(self, name)) for name in PERCENTILES]
        return [(name, value) for name, value in pairs if value is not None]


class HistogramEntry(Strict):
    """Lengths with how many requests have them."""

    histogram: Annotated[
        list[Annotated[list[Any], Field(min_length=2, max_length=2)]], Field(min_length=1)
    ] = Field(description="[tokens, weight] pairs", max_length=10_000)


def _kind_of_lengths(value: object) -> str:
    if not isinstance(value, dict):
        return "number"
    return "histogram" if "histogram" in value else "percentiles"


Lengths = Annotated[
    Union[
        Annotated[SomeTokens, Tag("number")],
        Annotated[PercentilesEntry, Tag("percentiles")],
        Annotated[HistogramEntry, Tag("histogram")],
    ],
    Discriminator(_kind_of_lengths),
]


class ColumnsEntry(Strict):
    """Which columns (or JSON keys) of a trace hold the lengths, and for a simulation times and identities."""

    input: Text
    output: Text
    time: Text | None = Field(default=None, description="when a request comes, in seconds")
    ids: Text | None = Field(default=None, description="identities of its blocks, with trace_block")


class WorkloadEntry(Strict):
    """The requests: how long, how many at once, how fast they come."""

    input_tokens: Lengths | None = Field(default=None, description="a number, percentiles, or a histogram")
    output_tokens: Lengths | None = Field(default=None, description="a number, percentiles, or a histogram")
    trace: Text | None = Field(default=None, description="a file with one request a line, beside the plan")
    trace_format: Literal[tuple(FORMATS)] = "auto"  # type: ignore[valid-type]
    trace_columns: ColumnsEntry | None = Field(default=None, description="for csv, jsonl and parquet")
    trace_block: Tokens = Field(
        default=None, description="tokens of one identity, where the trace does not say"
    )
    requests_in_flight: Requests | None = Field(
        default=None, description="running at once, over all replicas"
    )
    requests_per_second: Amount = Field(
        default=None, description="arrivals: Poisson, or as burstiness says; a trace's times at this rate"
    )
    burstiness: Spread = Field(
        default=None, description="CV of the gaps between arrivals (Gamma); 1, the default: Poisson"
    )
    seed: Seed = Field(default=1, description="of the arrivals that are drawn where there is no trace")
    ttft: Duration = Field(default=None, description="time to the first token that must hold: 2s")
    tpot: Duration = Field(default=None, description="time per output token that must hold: 50ms")
    shared_prefix_tokens: SomeTokens = Field(default=0, description="tokens that every prompt begins with")
    acceptance: Text | float | None = Field(
        default=None, description="drafted tokens that are right: 70%, a mean length of 2.4, or 0.8,0.6,0.4"
    )
    samples: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="answers to one prompt")


class PercentileEntry(Strict):
    """A percentile of requests that keep a time."""

    p: Percentile = Field(default=None, description="the percentile: 99 (the default), 95, 99.9")
    at_most: Duration = Field(description="the time that it may be")


def _kind_of_time(value: object) -> str:
    return "entry" if isinstance(value, dict) else "time"


TimeLimit = Annotated[
    Union[Annotated[Duration, Tag("time")], Annotated[PercentileEntry, Tag("entry")]],
    Discriminator(_kind_of_time),
]


class RequireEntry(Strict):
    """Requirements; the check fails where one does not hold."""

    requests: Requests | None = Field(default=None, description="at once, over the whole plan")
    tokens: Tokens = Field(default=None, description="length of each of them")
    headroom: FreeShare = Field(
        default=None, description="share of the pool that stays free beside them: 10%"
    )
    max_model_len: Tokens = Field(default=None, description="the engine serves at least this length")
    max_cost_per_hour: Amount = Field(default=None, description="of all GPUs, in the price's currency")
    prefix_cache: Size = Field(default=None, description="room on each GPU for prompts kept for reuse")
    host_memory: Size = Field(default=None, description="host memory for the cache, over all GPUs")
    shm: Size = Field(default=None, description="what /dev/shm of one engine's container holds")
    goodput: Percent = Field(
        default=None, description="share of requests within both ttft and tpot (simulated)"
    )
    hit_rate: Percent = Field(default=None, description="share of prompt tokens found (simulated)")
    preemptions: Percent = Field(default=None, description="share preempted at most (simulated)")
    ttft: TimeLimit | None = Field(
        default=None, description="time to the first token (simulated): {p: 99, at_most: 1s}, or 1s for p 99"
    )
    tpot: TimeLimit | None = Field(
        default=None, description="time per output token (simulated): {p: 99, at_most: 50ms}, or 50ms"
    )
    pool: Literal[LIKELY, SAFE] = Field(  # type: ignore[valid-type]
        default=LIKELY, description="which figure of the pool must do"
    )


class FleetEntry(Strict):
    """How a simulation serves the replicas."""

    router: Text | None = Field(default=None, description="round-robin, cache-aware, llm-d, dynamo …")
    offload: Text | None = Field(default=None, description="tiers outside the GPU: cpu:64GiB,nvme:2TiB")
    prefill_replicas: GpuCount | None = Field(default=None, description="replicas that compute prompts")
    decode_replicas: GpuCount | None = Field(default=None, description="replicas that make answers")
    link: Rate = Field(default=None, description="bytes a second between them, one direction: 50GB/s")


class EvidenceEntry(Strict):
    """A validation receipt of this plan."""

    path: Text
    max_age: Age = Field(default=None, description=f"how old it may be: 90d; default {DEFAULT_MAX_AGE_DAYS}d")


def _kind_of_evidence(value: object) -> str:
    return "entry" if isinstance(value, dict) else "list" if isinstance(value, list) else "path"


_OneEvidence = Annotated[
    Union[Annotated[Text, Tag("path")], Annotated[EvidenceEntry, Tag("entry")]],
    Discriminator(_kind_of_evidence),
]
Flags = dict[str, Any]


class PlanFile(Strict):
    """One capacity plan; a file may hold several, divided by ``---``."""

    kvplan: Literal[PLAN_FORMAT]  # type: ignore[valid-type]
    name: Text | None = Field(default=None, description="default: the file's name")
    extends: Text | None = Field(default=None, description="a base plan, beside this file")
    model: Text = Field(description="a card's name, hf:org/name, or a path beside this file")
    engine: Text | None = Field(
        default=None,
        description="vllm@0.33; without a version the newest known; vllm by default, llamacpp for GGUF",
    )
    gpu: GpuName = Field(description="slug, alias, 80GiB, or a spec file beside this file")
    gpus: GpuCount | None = Field(default=None, description="all GPUs, over all replicas")
    replicas: GpuCount | None = Field(default=None, description="engines; default 1, or what gpus make up")
    weights: Size = Field(default=None, description="bytes on each GPU: what its log says that loading took")
    serve: Flags = Field(default={}, description="the engine's own flags, with underscores")
    workload: WorkloadEntry | None = None
    require: RequireEntry = RequireEntry()
    fleet: FleetEntry | None = Field(default=None, description="for simulations of the workload's trace")
    quality: Literal[QUALITIES] = Field(  # type: ignore[valid-type]
        default="safe", description="which KV formats are good enough"
    )
    tolerance: Percent = Field(default=None, description="how far a measurement may be off: 2%")
    price_per_gpu_hour: Amount = Field(default=None, description="what one GPU costs")
    evidence: (
        Annotated[
            Union[
                Annotated[Text, Tag("path")],
                Annotated[EvidenceEntry, Tag("entry")],
                Annotated[list[_OneEvidence], Tag("list")],
            ],
            Discriminator(_kind_of_evidence),
        ]
        | None
    ) = Field(default=None, description="validation receipts: a path, {path, max_age}, or a list")
    environments: dict[str, dict[str, Any]] = Field(
        default={}, description="name: what is different there (null removes a key)"
    )


PLAN_ID = "https://www.schemastore.org/kvplan.json"
"""The schema's name where editors look for schemas (packaging/schemastore.json)."""


def plan_schema() -> dict[str, object]:
    """The JSON Schema of one plan. A plan that extends another may leave out what the base has."""
    schema = PlanFile.model_json_schema()
    schema["required"] = ["kvplan"]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": PLAN_ID}
    return {**head, **schema, "title": "kvplan plan"}
