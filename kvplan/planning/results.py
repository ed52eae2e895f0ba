"""The answer of a planner: what to take, what else serves, why others were rejected, what moves it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.planning.ask import Demand, Speed
from kvplan.planning.levers.results import Lever
from kvplan.plans.plan import Plan
from kvplan.plans.workload import Shape
from kvplan.record import exact, record
from kvplan.results import SCHEMA_VERSION, EngineRef, ModelRef
from kvplan.settings import Settings, experts_spread

HOUR = 3600
MILLION = 10**6


@record()
class Option:
    """One way to serve the load, with every value resolved.

    engine: ``vllm@0.32``. model_id: the checkpoint; other_checkpoint: what makes it another one than was
    asked for, empty where it is that one; weights: its format; kv_cache_dtype: as the engine takes the word,
    kv_format: how it stores. gpus: of the whole plan, in ``replicas`` engines. requests: that the plan holds
    by the likely figure of the pool, safe_requests by the safe one (0: it may not start);
    requests_per_engine: that one pool must hold. pool_bytes: of one GPU, pool_low_bytes: its safe figure.
    quality: the tier, with the published figures behind it in ``citations``. notes: what is easily got wrong.
    """

    engine: str
    model_id: str
    other_checkpoint: str
    weights: str
    kv_cache_dtype: str
    kv_format: str
    gpu: str
    where: str
    gpus: int
    replicas: int
    nodes: int
    settings: Settings
    serve: tuple[tuple[str, object], ...]
    requests: int
    safe_requests: int
    requests_per_engine: int
    max_num_seqs: int
    max_model_len: int
    pool_bytes: int
    pool_low_bytes: int
    quality: str
    citations: tuple[str, ...] = ()
    cost_per_hour: Fraction | None = None
    speed: Speed | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def layout(self) -> str:
        """``tp 4 · pp 2``; ``1 GPU`` for neither."""
        one = self.settings
        pairs = (
            ("tp", one.tensor_parallel_size), ("pp", one.pipeline_parallel_size),
            ("dp", one.data_parallel_size), ("dcp", one.decode_context_parallel_size),
        )  # fmt: skip
        named = [f"{name} {size}" for name, size in pairs if size > 1]
        own = dict(one.engine_options)
        groups = one.tensor_parallel_size if own.get("enable_attention_dp") else own.get("attn_dp_size", 1)
        named += [f"attn dp {groups}"] if isinstance(groups, int) and groups > 1 else []
        return " · ".join([*named, *(["ep"] if experts_spread(one) else [])]) or "1 GPU"

    def cost_per_million(self) -> tuple[float, float, float] | None:
        """Price of a million answer tokens at the planned load, by the estimate; None without a price."""
        if self.cost_per_hour is None or self.speed is None:
            return None
        hourly = float(self.cost_per_hour) * MILLION / HOUR / self.replicas
        low, likely, high = self.speed.tokens_per_second
        return hourly / high, hourly / likely, hourly / low

    def model_dump(self) -> dict[str, Any]:
        """Plain data: GPUs, flags, figures."""
        speed, million = self.speed, self.cost_per_million()
        return {
            "engine": self.engine,
            "model": self.model_id,
            "other_checkpoint": self.other_checkpoint or None,
            "weights": self.weights,
            "kv_cache_dtype": self.kv_cache_dtype,
            "kv_format": self.kv_format,
            "gpu": self.gpu,
            "where": self.where,
            "gpus": self.gpus,
            "replicas": self.replicas,
            "nodes": self.nodes,
            "serve": dict(self.serve),
            "requests": self.requests,
            "safe_requests": self.safe_requests,
            "requests_per_engine": self.requests_per_engine,
            "pool_bytes": self.pool_bytes,
            "pool_low_bytes": self.pool_low_bytes,
            "quality": self.quality,
            "citations": list(self.citations),
            "cost_per_hour": None if self.cost_per_hour is None else exact(self.cost_per_hour),
            "speed": None if speed is None else {name: list(getattr(speed, name)) for name in Speed._fields},
            "cost_per_million_tokens": None if million is None else list(million),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


@record()
class Reason:
    """Why candidates were rejected. code: kebab-case; gpus: on which; example: the one that came nearest;
    candidates: how many."""

    code: str
    message: str
    gpus: tuple[str, ...]
    example: str
    candidates: int


@record()
class Unserved:
    """A kind of GPU, under an engine, without a row: the reason of the candidate that came nearest, or
    ``beyond-top``."""

    engine: str
    gpu: str
    where: str
    code: str
    message: str
    example: str


@record()
class SuggestedFix:
    """A change that was computed to help. change: what, flags: how to ask for it; then: what it comes to."""

    change: str
    flags: str
    then: str
    gpus: int


@record()
class Step:
    """What one more step buys. what: ``gpus`` or ``format``; label: the step; requests: then held."""

    what: str
    label: str
    gpus: int
    requests: int
    quality: str


@record()
class Effect:
    """How one input moves the answer: requests that the same GPUs hold, and the GPUs of the kind needed for
    the load (None: no number of them tried does)."""

    name: str
    change: str
    requests: int
    gpus: int | None


@record()
class PlanResult:
    """What to take for a load. best: as a plan that can be written and checked; None where nothing does.

    pool: the figure of the pool with which the load is served, ``safe`` or ``likely``. options: the best of
    each kind and engine, the first is ``best``; of one kind alone the best of each pair of formats. unserved:
    kinds without a row; more: of those, the ones that come after the rows asked for. pareto: those that no
    other beats in all of ``pareto_by`` at once, where asked for. reasons: of the best's engine. considered:
    candidates; judged: those neither refused by a rule for all GPUs nor left out by a bound. levers: of the
    best option, where they were asked for. also: what must be held by itself as well.
    """

    model: ModelRef
    engine: EngineRef
    objective: str
    quality: str
    pool: str
    requests: int
    shapes: tuple[Shape, ...]
    best: Plan | None
    options: tuple[Option, ...]
    more: int
    unserved: tuple[Unserved, ...]
    pareto: tuple[Option, ...]
    reasons: tuple[Reason, ...]
    ways_out: tuple[SuggestedFix, ...]
    steps: tuple[Step, ...]
    sensitivity: tuple[Effect, ...]
    considered: int
    judged: int
    currency: str = ""
    warnings: tuple[str, ...] = ()
    levers: tuple[Lever, ...] = ()
    pareto_by: tuple[str, ...] = ()
    also: tuple[Demand, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether something serves the load."""
        return self.best is not None

    def model_dump(self) -> dict[str, Any]:
        """The JSON of ``kvplan plan --json``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": {"id": self.model.id, "source": self.model.source},
            "engine": {"name": self.engine.name, "version": self.engine.version},
            "objective": self.objective,
            "quality": self.quality,
            "pool": self.pool,
            "requests": self.requests,
            "shapes": [
                {
                    "input_tokens": shape.input_tokens,
                    "output_tokens": shape.output_tokens,
                    "weight": shape.weight,
                }
                for shape in self.shapes
            ],
            "also": [{"requests": one.requests, "tokens": one.shape.tokens} for one in self.also],
            "best": self.options[0].model_dump() if self.options else None,
            "options": [option.model_dump() for option in self.options],
            "more_options": self.more,
            "unserved": [_plain(one) for one in self.unserved],
            "pareto": [option.model_dump() for option in self.pareto],
            "pareto_by": list(self.pareto_by),
            "reasons": [_plain(reason) for reason in self.reasons],
            "ways_out": [_plain(way) for way in self.ways_out],
            "steps": [_plain(step) for step in self.steps],
            "sensitivity": [_plain(effect) for effect in self.sensitivity],
            "considered": self.considered,
            "judged": self.judged,
            "levers": [lever.model_dump() for lever in self.levers],
            "currency": self.currency,
            "warnings": list(self.warnings),
        }


def _plain(value: Any) -> dict[str, Any]:
    found = {name: getattr(value, name) for name in value.__slots__}
    return {name: list(one) if isinstance(one, tuple) else one for name, one in found.items()}
