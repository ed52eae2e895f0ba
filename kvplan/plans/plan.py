"""One capacity plan: a model, an engine, GPUs, the engine's flags, the load, and what must hold."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from kvplan.errors import Mark
from kvplan.plans.workload import Workload
from kvplan.record import field, record
from kvplan.settings import Settings, attention_ranks, gpus_per_replica, pools_per_replica
from kvplan.shown import Shown

PLAN_FORMAT = "plan/v1"
QUALITIES = ("lossless", "safe", "aggressive")
LIKELY, SAFE = "likely", "safe"
DEFAULT_TOLERANCE = Fraction(2, 100)
DEFAULT_MAX_AGE_DAYS = 180
DEFAULT_PERCENTILE = Fraction(99)
USUAL_GOODPUT = DEFAULT_PERCENTILE / 100
"""The share of requests that must keep their times where nothing says for how many."""

SIMULATED = ("goodput", "hit_rate", "preemptions", "ttft_seconds", "tpot_seconds")
"""Requirements that only a simulation of the workload's arrivals says anything of."""


@record()
class Requirements:
    """Requirements. None = not asked for."""

    requests: int | None = None
    """of ``tokens`` each, over the whole plan, in the pool"""
    tokens: int | None = None
    headroom: Fraction = Fraction(0)
    """share of the pool that stays free beside them"""
    max_model_len: int | None = None
    """the engine must serve at least this"""
    max_cost_per_hour: Fraction | None = None
    """in the currency of the fleet's prices"""
    prefix_cache_bytes: int = 0
    """room in the pool of one GPU for prompts kept for reuse"""
    host_memory_bytes: int = 0
    """a tier in host memory, over all GPUs of the plan"""
    shm_bytes: int = 0
    """what /dev/shm of one engine's container holds; 0: not said"""
    pool: str = LIKELY
    """which figure of the pool must do, ``likely`` or ``safe``"""
    goodput: Fraction | None = None
    """simulated: share of requests within the workload's ttft and tpot"""
    hit_rate: Fraction | None = None
    """simulated: of prompt tokens"""
    preemptions: Fraction | None = None
    """simulated: share of requests, at most"""
    ttft_seconds: Fraction | None = None
    """simulated: the percentile of TTFT, at most"""
    ttft_percentile: Fraction = DEFAULT_PERCENTILE
    tpot_seconds: Fraction | None = None
    """simulated: the percentile of TPOT, at most"""
    tpot_percentile: Fraction = DEFAULT_PERCENTILE

    @property
    def simulated(self) -> bool:
        """Whether anything is required that only a simulation of the workload's arrivals says."""
        return any(getattr(self, name) is not None for name in SIMULATED)


@record()
class FleetPlan:
    """How a simulation serves the plan's replicas. router: who gets a request; offload: tiers outside the GPU
    as `kvplan simulate --offload` takes them; prefill_replicas, decode_replicas: 0: every replica does both;
    link: bytes a second between them, 0: not said."""

    router: str = "round-robin"
    offload: str = ""
    prefill_replicas: int = 0
    decode_replicas: int = 0
    link: int = 0


@record()
class Evidence:
    """A receipt that belongs to the plan. path: as written, against the plan's directory."""

    path: str
    max_age_days: int = DEFAULT_MAX_AGE_DAYS


def trace_file(plan: Plan) -> str | None:
    """Where the trace of the plan's workload lies; None where it names none."""
    trace = None if plan.workload is None else plan.workload.trace
    if trace is None:
        return None
    name = Path(trace).name
    return next((file for file in plan.files if Path(file).name == name), trace)


@record()
class Plan(Shown):
    """A plan as it stands after ``extends`` and the environment's overlay."""

    name: str
    model: str
    """as written, a path already resolved against the file"""
    engine: str
    """``name@version``"""
    gpus: int
    """all GPUs of the plan, over all replicas"""
    settings: Settings
    """what ``serve`` comes to, with the GPU; ``serve`` keeps the flags as they were written"""
    serve: tuple[tuple[str, object], ...] = ()
    workload: Workload | None = None
    require: Requirements = Requirements()
    fleet: FleetPlan = FleetPlan()
    quality: str = "safe"
    tolerance: Fraction = DEFAULT_TOLERANCE
    price_per_gpu_hour: Fraction | None = None
    evidence: tuple[Evidence, ...] = ()
    environment: str | None = None
    path: str = ""
    """the file as typed"""
    marks: Mapping[str, Mark] = field(default_factory=dict, hash=False)
    """where each value stands, by dotted path (``require.requests``; ``""``: the plan)"""
    environments: tuple[str, ...] = ()
    """those that the file has overlays for"""
    files: tuple[str, ...] = ()
    """all that decided it (bases, trace, receipts, model file), as paths"""
    notes: tuple[str, ...] = ()
    """what the reader filled in"""
    unread: tuple[str, ...] = ()
    """options of the command that it was read from for which there is no rule"""
    devices: tuple[str, ...] = ()
    """the GPUs of the machine that it was read to run on"""

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one engine."""
        return gpus_per_replica(self.settings)

    @property
    def pools_per_replica(self) -> int:
        """Pools with requests of their own in one engine."""
        return pools_per_replica(self.settings)

    @property
    def attention_ranks(self) -> int:
        """Tensor ranks that attend to the same requests."""
        return attention_ranks(self.settings)

    def mark(self, field_name: str | None) -> Mark | None:
        """Where a value stands, else what it lies in, else where the plan begins."""
        name = field_name or ""
        while name and name not in self.marks:
            name = name.rpartition(".")[0]
        return self.marks.get(name)

    @property
    def replicas(self) -> int:
        """Whole engines that the GPUs make up; 0 where they are too few for one."""
        return self.gpus // self.gpus_per_replica
