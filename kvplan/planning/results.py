"""The answer of a planner: what to take, what else serves, why others were rejected, what moves it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from kvplan.own_options import OwnOptions
from kvplan.planning.ask import Demand, Speed
from kvplan.planning.levers.results import Lever
from kvplan.planning.pools import Pools
from kvplan.plans.plan import Plan
from kvplan.plans.workload import Shape
from kvplan.record import field, record
from kvplan.results import SCHEMA_VERSION, Documented, EngineRef, Entry, ModelRef
from kvplan.settings import Settings, experts_spread


@record()
class Option(Entry):
    """One way to serve the load, with every value resolved."""

    engine: str
    """``vllm@0.32``"""
    model: str
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
    serve: OwnOptions
    """the engine's options, in its order"""
    requests: int
    """that the plan holds by the likely figure of the pool"""
    safe_requests: int
    """by the safe one; 0: it may not start"""
    requests_per_engine: int
    """that one pool must hold"""
    max_num_seqs: int
    max_model_len: int
    kv_pool_bytes: int
    """of one GPU"""
    kv_pool_low_bytes: int
    """its safe figure"""
    quality: str
    """the tier"""
    host_bytes: int = 0
    """of weights and cache that the engine leaves in host memory: every token waits for them"""
    citations: tuple[str, ...] = ()
    """the published figures behind the tier"""
    memory_requests: int | None = None
    """that the likely pool would hold with a larger max_num_seqs; null: not the limit, or not looked at"""
    cost_per_hour: float | None = None
    """of all GPUs"""
    speed: Speed | None = None
    cost_per_million_tokens: tuple[float, float, float] | None = None
    """of answer tokens of the whole load, by the estimate: low, likely, high"""
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
        own = one.own
        groups = one.tensor_parallel_size if own.get("enable_attention_dp") else own.get("attn_dp_size", 1)
        named += [f"attn dp {groups}"] if isinstance(groups, int) and groups > 1 else []
        return " · ".join([*named, *(["ep"] if experts_spread(one) else [])]) or "1 GPU"

    def million(self) -> float | None:
        """Price of a million answer tokens, the likely one."""
        return None if self.cost_per_million_tokens is None else self.cost_per_million_tokens[1]

    _JSON = (
        "engine", "model", "other_checkpoint", "weights", "kv_cache_dtype", "kv_format", "gpu", "where",
        "gpus", "replicas", "nodes", "serve", "requests", "safe_requests", "memory_requests",
        "requests_per_engine", "kv_pool_bytes", "kv_pool_low_bytes", "quality", "host_bytes", "citations",
        "cost_per_hour",
        "speed", "cost_per_million_tokens", "notes", "warnings",
    )  # fmt: skip

    @property
    def _json_other_checkpoint(self) -> str | None:
        """what makes it another one than was asked for; null where it is that one"""
        return self.other_checkpoint or None


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


RULES = ("quality", "heads", "experts", "layers")
"""Codes of reasons that hold on every GPU: said where nothing serves."""


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
    """The gain of one more step."""

    what: str
    """``gpus`` or ``format``"""
    label: str
    """the step"""
    gpus: int
    requests: int
    """held then"""
    quality: str


@record()
class Sensitivity:
    """How one input moves the answer."""

    name: str
    change: str
    requests: int
    """that the same GPUs hold"""
    gpus: int | None
    """of the class needed for the load; None: no number of them tried does"""


@record()
class Simulated:
    """The best plan in a simulation with the arrivals of the load."""

    rate: Annotated[float, ("minimum", 0)]
    """requests a second"""
    arrivals: str
    """``Poisson``, ``Gamma, CV 2.5``, or the trace's name"""
    requests: int
    """that were simulated"""
    ttft_at_most: float | None
    """seconds that are asked for"""
    tpot_at_most: float | None
    goodput_at_least: float
    """the share of requests that must keep both"""
    goodput: tuple[float, float, float]
    """the share that does: with slow, likely and fast steps"""
    ttft: tuple[float, float, float]
    """seconds that so large a share of requests does not exceed: with fast, likely and slow steps"""
    tpot: tuple[float, float, float]
    safe_gpus: int | None
    """of this layout, with slow steps and the safe pool; null: no number that was tried"""
    notes: tuple[str, ...] = ()

    @property
    def drawn(self) -> bool:
        """Whether arrivals were drawn for the rate."""
        return self.arrivals.startswith(("Poisson", "Gamma"))


@record()
class PlanResult(Documented):
    """The plan for a load."""

    model: ModelRef
    engine: EngineRef
    objective: str
    quality: str
    pool: str
    """the figure of the pool with which the load is served, ``safe`` or ``likely``"""
    requests: int
    shapes: tuple[Shape, ...]
    plan: Plan | None
    """the best as a plan that can be written and checked; None where nothing serves the load"""
    options: tuple[Option, ...]
    """the best of each GPU class and engine, ``best`` first; of one class alone the best of each pair of
    formats"""
    own: Option | None
    """the best with the checkpoint that was asked for, where none of the options has it"""
    more_options: int
    """of the unserved, those that come after the rows asked for"""
    unserved: tuple[Unserved, ...]
    """classes without a row"""
    pareto: tuple[Option, ...]
    """the Pareto front of ``pareto_by``, where asked for"""
    reasons: tuple[Reason, ...]
    """of the best's engine"""
    ways_out: tuple[SuggestedFix, ...]
    steps: tuple[Step, ...]
    sensitivity: tuple[Sensitivity, ...]
    considered: int
    """candidates"""
    judged: int
    """those neither refused by a rule for all GPUs nor left out by a bound"""
    currency: str = ""
    prices: str = ""
    """the file that they are from, and its day"""
    warnings: tuple[str, ...] = ()
    levers: tuple[Lever, ...] = ()
    """of the best option, where they were asked for"""
    pareto_by: tuple[str, ...] = ()
    also: tuple[Demand, ...] = ()
    """what must be held by itself as well"""
    pools: Pools | None = None
    """engines that read prompts beside those that make answers, where they were asked for"""
    simulated: Simulated | None = None
    """where requests come at a rate, with times that they must keep"""
    rate: float | None = None
    """requests a second that are asked for, with times that they must keep"""
    start: tuple[str, ...] = ()
    """the commands of a program that starts the best's engine by itself (Ollama), where one was asked for"""
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)

    @property
    def ok(self) -> bool:
        """Whether something serves the load."""
        return self.plan is not None

    @property
    def best(self) -> Option | None:
        """the first of the options; null where nothing serves the load"""
        return self.options[0] if self.options else None

    @property
    def rows(self) -> tuple[Option, ...]:
        """The rows of the table: the options, then the checkpoint that was asked for."""
        return self.options if self.own is None else (*self.options, self.own)

    @property
    def gpus(self) -> int:
        """Of the best option, with its prefill engines; 0 where nothing serves the load."""
        if self.pools is not None:
            return self.pools.gpus
        return self.options[0].gpus if self.options else 0

    _JSON = (
        "schema_version", "model", "engine", "objective", "quality", "pool", "requests", "shapes", "also",
        "best", "options", "own", "more_options", "unserved", "pareto", "pareto_by", "reasons", "ways_out",
        "steps", "sensitivity", "considered", "judged", "levers", "pools", "simulated", "currency", "prices",
        "warnings",
    )  # fmt: skip
    _JSON_OPTIONAL = ("pools", "prices", "own", "simulated")

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat row for each option, the best first: ``pandas.DataFrame(found.to_rows())``."""
        return [
            {
                "gpus": one.gpus,
                "gpu": one.gpu,
                "engine": one.engine,
                "model": one.model,
                "weights": one.weights,
                "kv_cache_dtype": one.kv_cache_dtype,
                "layout": one.layout(),
                "replicas": one.replicas,
                "requests": one.requests,
                "safe_requests": one.safe_requests,
                "max_model_len": one.max_model_len,
                "kv_pool_bytes": one.kv_pool_bytes,
                "kv_pool_low_bytes": one.kv_pool_low_bytes,
                "tpot_seconds": None if one.speed is None else float(one.speed.tpot[1]),
                "cost_per_hour": one.cost_per_hour,
                "cost_per_million_tokens": one.million(),
            }
            for one in self.rows
        ]
