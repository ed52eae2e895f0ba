"""The profile of a deployment's ranks; `build` makes it.

Matrices of one arithmetic and one format have one intensity, so a stage's matrices are summed by the peak
that they compute in, and the roofline of the sum is the sum of their rooflines. Experts, the output head and
each kind of attention stay apart, because each meets memory and arithmetic at another batch size.
"""

from __future__ import annotations

from kvplan.assumption import Assumption, Assumptions
from kvplan.engines import DEFAULT_ENGINE
from kvplan.planning.speed.attention import CacheRead
from kvplan.record import record
from kvplan.settings import Settings, attention_ranks, experts_spread, pools_per_replica

TOKEN_BUDGET = 8192
"""max_num_batched_tokens where nobody says one: what engines default to on data-centre GPUs."""


@record()
class Deployment:
    """How a model is served: what of the settings decides its speed."""

    engine: str = DEFAULT_ENGINE
    release: tuple[int, ...] = ()
    """of the engine; (): the newest"""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    enforce_eager: bool = False
    max_num_batched_tokens: int = TOKEN_BUDGET
    network: str | int | None = None
    """the link between nodes, where ranks span them: its kind, or the bytes per second that one GPU gets
    of it"""
    weight_bytes_per_rank: int | None = None
    """what the fullest GPU holds, where it is known better than from the tensors (GGUF, ``--weights``);
    the tensors then keep their proportions"""

    @property
    def gpus(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


def deployment_of(
    settings: Settings, engine: str, release: tuple[int, ...] = (), *, network: str | int | None = None
) -> Deployment:
    """The part of the settings that decides speed. Groups of data-parallel attention inside tensor
    parallelism are data-parallel ranks of fewer tensor ranks: experts lie on all of them either way, and the
    few dense layers that a group divides among all ranks are taken to be held by each."""
    return Deployment(
        engine=engine,
        release=release,
        tensor_parallel_size=attention_ranks(settings),
        pipeline_parallel_size=settings.pipeline_parallel_size,
        data_parallel_size=pools_per_replica(settings),
        decode_context_parallel_size=settings.decode_context_parallel_size,
        enable_expert_parallel=experts_spread(settings),
        dtype=settings.dtype,
        kv_cache_dtype=settings.kv_cache_dtype,
        enforce_eager=settings.enforce_eager,
        max_num_batched_tokens=settings.max_num_batched_tokens or TOKEN_BUDGET,
        network=network,
        weight_bytes_per_rank=settings.weights,
    )


@record()
class Matrices:
    """Weights of one arithmetic on one rank: bytes, operations for one token, and the seconds of both."""

    bytes: int
    flops_per_token: float
    read_seconds: float
    token_seconds: float


@record()
class Experts:
    """Routed experts on one rank: `Matrices` of all of them; a token uses ``per_token`` of ``count``."""

    all: Matrices
    count: int
    per_token: int
    padding: float = 0.0
    """rows of a kernel's tile that nobody fills, of each expert that is hit"""


@record()
class Stage:
    """One pipeline stage on its fullest rank.

    fixed_seconds: kernels' own times and collectives' latencies, whatever the batch. prompt_seconds: what
    launching a step with prompt tokens takes at least, where no CUDA graph has it. token_seconds: what
    collectives add for each token of the batch.
    """

    dense: tuple[Matrices, ...]
    experts: tuple[Experts, ...]
    head: tuple[Matrices, ...]
    caches: tuple[CacheRead, ...]
    fixed_seconds: float
    prompt_seconds: float
    token_seconds: float

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights read where every expert is hit."""
        parts = (*self.dense, *self.head, *(experts.all for experts in self.experts))
        return sum(part.bytes for part in parts)


@record(eq=False)
class SpeedProfile:
    """A deployment, ready for any number of loads. Compared and hashed by identity."""

    deployment: Deployment
    stages: tuple[Stage, ...]
    byte_seconds: float
    """byte_seconds, flop_seconds: of the cache's bytes and attention's operations"""
    flop_seconds: float
    send_seconds: tuple[float, float]
    """one pipeline send (fixed, per token)"""
    host: tuple[float, float, float]
    """(a step, a running request, a prompt: what the server does for each)"""
    graph_tokens: int
    """tokens of a step with prompts up to which the engine replays a CUDA graph: its launches take no time"""
    hidden: float
    """of reading and computing, the share of the shorter that the longer hides"""
    frontend_seconds: float
    """the server's own work before and after the engine's, once a request"""
    table: Assumptions
    assumptions: tuple[Assumption, ...]
    """all that it rests on"""
    generation: str
    """of the GPU, as the table of assumptions names it"""
    limits: SpeedProfile | None = None
    """the same at the GPU's peaks, without collectives, kernels' own times, the host: no step is shorter"""

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that are estimated alike, the narrowest first: ``moe.hopper.vllm``, ``moe.hopper``,
        ``moe``. hybrid: with recurrent states; moe: with routed experts; else dense."""
        caches = [cache for stage in self.stages for cache in stage.caches]
        shape = "moe" if any(stage.experts for stage in self.stages) else "dense"
        if any(cache.fixed_bytes for cache in caches):
            shape = "hybrid"
        kind = f"{shape}.{self.generation}"
        return f"{kind}.{self.deployment.engine}", kind, shape

    def weight_bytes(self) -> int:
        """Weights that a decode step reads on the fullest rank of the fullest stage, all experts hit."""
        return max(stage.weight_bytes for stage in self.stages)

    def cache_bytes(self, tokens: int, encoder_tokens: int = 0) -> int:
        """Bytes of one request of this length on one rank, all stages together: the sum of its terms."""
        return sum(
            cache.held_bytes(tokens, encoder_tokens) for stage in self.stages for cache in stage.caches
        )
