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
    """One way to serve the load, with every value resolved."""

    engine: str
    """``vllm@0.32``"""
    model_id: str
    """the checkpoint"""
    other_checkpoint: str
    """what makes it another one than was asked for; empty where it is that one"""
    weights: str
    """their format"""
    kv_cache_dtype: str
    """as the engine takes the word"""
    kv_format: str
    """how it stores"""
    gpu: str
    where: str
    gpus: int
    """of the whole plan, in ``replicas`` engines"""
    replicas: int
    nodes: int
    settings: Settings
    serve: tuple[tuple[str, object], ...]
    requests: int
    """that the plan holds by the likely figure of the pool"""
    safe_requests: int
    """by the safe one; 0: it may not start"""
    requests_per_engine: int
    """that one pool must hold"""
    max_num_seqs: int
    max_model_len: int
    pool_bytes: int
    """of one GPU"""
    pool_low_bytes: int
    """its safe figure"""
    quality: str
    """the tier"""
    citations: tuple[str, ...] = ()
    """the published figures behind the tier"""
    cost_per_hour: Fraction | None = None
    speed: Speed | None = None
    notes: tuple[str, ...] = ()
    """what is easily got wrong"""
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
    """Why candidates were rejected."""

    code: str
    """kebab-case"""
    message: str
    gpus: tuple[str, ...]
    """on which"""
    example: str
    """the one that came nearest"""
    candidates: int
    """how many"""


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
    """A change that was computed to help."""

    change: str
    """what"""
    flags: str
    """how to ask for it"""
    then: str
    """what it gives"""
    gpus: int


@record()
class Step:
    """What one more step buys."""

    what: str
    """``gpus`` or ``format``"""
    label: str
    """the step"""
    gpus: int
    requests: int
    """held then"""
    quality: str


@record()
class Effect:
    """How one input moves the answer."""

    name: str
    change: str
    requests: int
    """that the same GPUs hold"""
    gpus: int | None
    """of the class needed for the load; None: no number of them tried does"""


@record()
class PlanResult:
    """What to take for a load."""

    model: ModelRef
    engine: EngineRef
    objective: str
    quality: str
    pool: str
    """the figure of the pool with which the load is served, ``safe`` or ``likely``"""
    requests: int
    shapes: tuple[Shape, ...]
    best: Plan | None
    """as a plan that can be written and checked; None where nothing does"""
    options: tuple[Option, ...]
    """the best of each GPU class and engine, ``best`` first; of one class alone the best of each pair of
    formats"""
    more: int
    """of the unserved, those that come after the rows asked for"""
    unserved: tuple[Unserved, ...]
    """classes without a row"""
    pareto: tuple[Option, ...]
    """those that no other beats in all of ``pareto_by`` at once, where asked for"""
    reasons: tuple[Reason, ...]
    """of the best's engine"""
    ways_out: tuple[SuggestedFix, ...]
    steps: tuple[Step, ...]
    sensitivity: tuple[Effect, ...]
    considered: int
    """candidates"""
    judged: int
    """those neither refused by a rule for all GPUs nor left out by a bound"""
    currency: str = ""
    warnings: tuple[str, ...] = ()
    levers: tuple[Lever, ...] = ()
    """of the best option, where they were asked for"""
    pareto_by: tuple[str, ...] = ()
    also: tuple[Demand, ...] = ()
    """what must be held by itself as well"""

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
