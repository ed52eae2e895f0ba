"""The answer of ``size``: plain dataclasses, from which its documented JSON and the schema of that are made.

A line under a field says what it is; `kvplan.report.schema` copies it into the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, Literal

from kvplan.errors import KvplanError
from kvplan.model import Layer
from kvplan.record import Json, changed, dumped, field, record
from kvplan.shown import Shown
from kvplan.terms import Term
from kvplan.units import Bytes, Count, Positive

SCHEMA_VERSION: Final = 1
NO_POOL: Final = "no pool was computed"
"""Begins the warning that says why the memory of a GPU was not counted."""
NOISE: Final = "its answers beyond them are noise"
"""Ends the warning that a request is longer than its model was made for."""


@record()
class ModelRef:
    id: str
    source: str
    """the card, file or address that the model was read from"""


@record()
class EngineRef:
    name: str
    version: str
    """the release whose rules were applied"""


@record()
class Request:
    """The request that was sized."""

    tokens: Count
    """decoder positions of one request"""
    encoder_tokens: Count
    """positions that cross attention reads"""
    count: Positive
    """requests at once"""
    answer_tokens: Count = 0
    """of `tokens`, those that are generated"""


_AS_HELD = -1
"""Of an engine that says none: as much as a request holds."""


@record()
class PerGpu:
    """The fullest GPU."""

    kv_bytes_per_request: Bytes
    """what one request holds while it answers, once its prompt has been read"""
    kv_bytes: Bytes
    """all requests at once, at the most that they hold together: the least cache in which they all run"""
    peak_bytes: Bytes
    """kv_bytes and what is pinned beside it after prefill"""
    bytes_per_token: float
    """growth at this length before block rounding; whole where it is a whole number"""
    fixed_bytes_per_request: Bytes
    """what does not grow with tokens"""
    prompt_bytes_per_request: Bytes = _AS_HELD
    """what one request holds at its peak, while its prompt is read"""
    reserved_bytes_per_request: Bytes = _AS_HELD
    """what the engine counts for one request when it starts: its log's concurrency is made of it"""

    def __post_init__(self) -> None:
        held = self.kv_bytes_per_request
        for name in ("prompt_bytes_per_request", "reserved_bytes_per_request"):
            if getattr(self, name) == _AS_HELD:
                object.__setattr__(self, name, held)


@record()
class Total:
    """All GPUs of one replica."""

    kv_bytes_per_request: Bytes
    kv_bytes: Bytes


@record()
class LayerTerms:
    """`count` layers that store these terms."""

    layer: Layer
    count: Positive
    terms: tuple[Term, ...]

    _JSON = ("family", "count", "terms")

    @property
    def family(self) -> str:
        return self.layer.family


@record()
class PoolGroup:
    """Layers that share one block table."""

    kind: str
    layers: Count
    block_size: Count
    """tokens in a block"""
    page_bytes: Bytes
    """bytes of one block of one layer"""
    blocks_per_request: Count


@record()
class Pool:
    """The block pool of one GPU."""

    bytes: Bytes
    bytes_per_block: Bytes
    num_blocks: Count
    groups: tuple[PoolGroup, ...]
    kv_tokens: Count
    """what this engine version prints"""
    max_concurrency: float
    """what this engine version prints, unrounded"""
    max_requests: Count
    """whole requests of `tokens` by the start-up formula, at most max_num_seqs"""
    requests_that_fit: Count
    """the same without the cap"""
    max_num_seqs: Count
    max_running: Count
    """requests of the asked shape, all arriving at once, that run together without a preemption, at most
    max_num_seqs"""
    running_blocks: Count | None = None
    """most blocks that a request holds once its prompt is computed; null: as start-up reserves"""
    prompt_blocks: Count | None = None
    """blocks that must be free to admit a request; null: as start-up reserves"""


def _in_order(name: str, *amounts: int) -> None:
    """Amounts of bytes that must not fall. Raises KvplanError(impossible-budget)."""
    if any(smaller > larger for smaller, larger in pairwise(amounts)):
        shown = ", ".join(f"{amount:,}" for amount in amounts)
        raise KvplanError(
            "impossible-budget",
            f"{name}: no memory can be divided like this: {shown} bytes",
            help="a number of the model's config cannot be right; --weights 15GiB leaves its tensors out",
        )


@record()
class BudgetLine:
    """One use of a GPU's memory; low and high enclose what is estimated.

    0 ≤ low ≤ bytes ≤ high holds of every line there is. Raises KvplanError(impossible-budget).
    """

    name: str
    bytes: Bytes
    low_bytes: Bytes
    high_bytes: Bytes
    source: str

    def __post_init__(self) -> None:
        _in_order(self.name, 0, self.low_bytes, self.bytes, self.high_bytes)


@record()
class Budget:
    """The memory of the GPU that decides, line by line, and what it leaves for the cache.

    Lines, pool and unused add up to total_bytes unless nothing is left for the pool.
    0 ≤ low ≤ likely ≤ high ≤ total − unused ≤ total holds of every budget there is. Raises
    KvplanError(impossible-budget).
    """

    gpu: str
    total_bytes: Bytes
    """as the runtime reports it"""
    lines: tuple[BudgetLine, ...]
    kv_pool_bytes: Bytes
    """the likely figure"""
    kv_pool_low_bytes: Bytes
    """the safe figure: every estimate at its high end"""
    kv_pool_high_bytes: Bytes
    """the most that there can be: every estimate at its low end"""
    unused_bytes: Bytes
    """outside the utilisation"""
    calibrated: bool
    """the coefficients were fitted on measured starts of this version"""
    beside: tuple[BudgetLine, ...] = ()
    """in no sum: what must be free at the start, and what may be taken after the pool"""

    _JSON = (
        "gpu", "total_bytes", "lines", "kv_pool_bytes", "kv_pool_low_bytes", "kv_pool_high_bytes",
        "unused_bytes", "beside",
    )  # fmt: skip
    # `calibrated` is said in words, by the lines' sources and a warning.

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each use of the memory, the cache and what stays unused among them."""
        pool = ("KV cache", self.kv_pool_bytes, self.kv_pool_low_bytes, self.kv_pool_high_bytes)
        rows = [(one.name, one.bytes, one.low_bytes, one.high_bytes) for one in self.lines]
        unused = ("not used", self.unused_bytes, self.unused_bytes, self.unused_bytes)
        names = ("name", "bytes", "low_bytes", "high_bytes")
        return [dict(zip(names, row, strict=True)) for row in (*rows, pool, unused)]

    def __post_init__(self) -> None:
        usable = self.total_bytes - self.unused_bytes
        low, likely, high = self.kv_pool_low_bytes, self.kv_pool_bytes, self.kv_pool_high_bytes
        _in_order("KV cache", 0, low, likely, high, usable, self.total_bytes)


@record()
class ModelWeights:
    """Bytes of weights, as the engine keeps them: a padded vocabulary, a router in float32, experts as
    their kernel wants them."""

    bytes_per_gpu: Bytes
    """of the fullest GPU"""
    total_bytes: Bytes
    """of the whole model, once"""
    source: str


HOST = "host"


@record()
class Device:
    """One GPU, or the host, where an engine deals whole layers."""

    name: str
    layers: Count
    """whose cache lies there"""
    kv_bytes: Bytes
    """of all requests"""
    weights_bytes: Bytes | None = None
    """null where they are not known"""


MEMORY, SHM = "memory", "shm"


@record()
class HostLine:
    """One use of the host's memory by one engine; low and high enclose what is estimated."""

    name: str
    bytes: Bytes
    low_bytes: Bytes
    high_bytes: Bytes
    where: str
    """memory, or shm: in /dev/shm, which a container limits by itself"""
    source: str
    tokens: Count | None = None
    """of which it keeps the cache; null where that is not known, or it keeps none"""

    def __post_init__(self) -> None:
        _in_order(self.name, 0, self.low_bytes, self.bytes, self.high_bytes)


@record()
class DecodeSpeed:
    """Tokens a second that one request gets while nothing else runs; low and high enclose the estimate."""

    tokens: Count
    """in its cache"""
    tokens_per_second: float
    low: float
    high: float


@record()
class Way:
    """One way to serve one request at a time."""

    options: str
    """what to add to the command; empty: nothing"""
    cache: str
    """the type of the cache's numbers"""
    longest: Count | None
    """the longest context with which the server starts, safely; null where none does"""
    likely: Count | None
    """the same in the likely pool"""
    start: DecodeSpeed | None
    """with an empty cache; null where no published figure is of such a GPU"""
    halfway: DecodeSpeed | None
    """after half of the longest context"""
    hosted: bool = False
    """part of the model is read from host memory"""


TOO_FEW_STATES = "too-few-states"
"""A refusal that a smaller max_num_seqs lifts."""


@record()
class Refusal:
    """Why the engine would not start with these settings, and what would do."""

    code: str
    message: str
    largest_max_model_len: Count | None = None
    """the longest length that fits, where length is the reason"""
    help: tuple[str, ...] = ()


class Verdict(str, Enum):
    """Whether a deployment holds the load."""

    YES = "yes"
    """the safe pool holds it"""
    LIKELY = "likely"
    """the likely pool holds it"""
    UNLIKELY = "unlikely"
    """only the most that may be left for the cache would hold it"""
    NO = "no"


@record()
class Capacity:
    """Requests of the asked shape that run at once."""

    requests: Count
    """in the likely pool, over all replicas"""
    safe_requests: Count
    """in the safe pool, over all replicas"""
    requests_per_pool: Count
    safe_requests_per_pool: Count
    capped: bool = False
    """whether max_num_seqs is what limits the likely pool"""
    memory_requests: Count | None = None
    """requests that the likely pool would hold with a larger max_num_seqs, over all replicas; null: memory is
    the limit, or nobody looked"""


@record()
class DeploymentRef:
    """The servers to be started."""

    gpus: Positive
    gpus_per_replica: Positive
    replicas: Positive
    pools: Positive
    """pools with requests of their own, over all replicas"""
    idle_gpus: Count
    """GPUs that no replica uses"""
    requests: Positive
    """requests at once that were asked for, over all replicas; request.count is the fullest pool's part"""
    chosen: Mapping[str, str]
    """settings that kvplan chose, and why"""
    typed: tuple[str, ...] = ()
    """settings that were given; all others are the defaults of the engine's release"""


class Documented(Shown):
    """A base of answers: an attribute has the name and the value that the JSON has."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._line_()}>"

    def model_dump(self) -> dict[str, Any]:
        """The JSON of the command: only dict, list, str, int, float, bool and None."""
        shown: dict[str, Any] = dumped(self)
        return shown


class Entry(Shown):
    """A base of what stands in a table: as text it is one line."""

    __slots__ = ()

    def __str__(self) -> str:
        return self._line_()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._line_()}>"


class Answered(Documented):
    """A base of answers that keep what they were asked with, and how the ways of a lone user are found,
    beside their value: neither counts for equality."""

    __slots__ = ("asked", "find_ways")
    asked: Any
    find_ways: Callable[[], tuple[Way, ...]]


def row_of(result: SizeResult) -> dict[str, Any]:
    """An answer as one flat row: what people compare models, GPUs and lengths by."""
    pool, budget, capacity = result.pool, result.budget, result.capacity
    sized = result.sized
    per_token = result.per_gpu.bytes_per_token
    return {
        "model": result.model.id,
        "engine": result.engine.name,
        "engine_version": result.engine.version,
        "gpu": None if budget is None else budget.gpu,
        "tokens": result.request.tokens,
        "ok": result.ok,
        "gpus": None if result.deployment is None else result.deployment.gpus,
        "verdict": None if result.verdict is None else result.verdict.value,
        "requests": 0 if not result.ok else None if capacity is None else capacity.requests,
        "safe_requests": None if capacity is None else capacity.safe_requests,
        "kv_bytes_per_request": result.per_gpu.kv_bytes_per_request if sized else None,
        "bytes_per_token": per_token if sized else None,
        "total_kv_bytes_per_request": result.total.kv_bytes_per_request if sized else None,
        "weights_bytes_per_gpu": None if result.weights is None else result.weights.bytes_per_gpu,
        "kv_pool_bytes": None if pool is None else pool.bytes,
        "kv_pool_low_bytes": None if budget is None else budget.kv_pool_low_bytes,
        "max_model_len": result.settings.get("max_model_len"),
        "kv_cache_dtype": result.settings.get("kv_cache_dtype"),
        "tensor_parallel_size": result.settings.get("tensor_parallel_size"),
        "refusal": None if result.refusal is None else result.refusal.message,
    }


def plain_number(value: Fraction) -> int | float:
    """An int where it is whole, else a float.

    >>> plain_number(Fraction(131072)), plain_number(Fraction(17, 2))
    (131072, 8.5)
    """
    return value.numerator if value.denominator == 1 else float(value)


def exact_number(value: float) -> Fraction:
    """The Fraction of which a `plain_number` was made: no bytes of a token have a denominator above 2**16.

    >>> exact_number(plain_number(Fraction(4096, 3)))
    Fraction(4096, 3)
    """
    return Fraction(value).limit_denominator(1 << 16)


@record()
class SizeResult(Answered):
    """The answer of `kvplan size --json` and of `kvplan.size(...).model_dump()`."""

    model: ModelRef
    engine: EngineRef
    settings: Json
    """every resolved setting that influenced the answer"""
    request: Request
    per_gpu: PerGpu
    total: Total
    layers: tuple[LayerTerms, ...]
    pool: Pool | None = None
    refusal: Refusal | None = None
    """set where the engine would not start"""
    warnings: tuple[str, ...] = ()
    budget: Budget | None = None
    weights: ModelWeights | None = None
    devices: tuple[Device, ...] = ()
    """where layers are dealt over several GPUs, or left in host memory"""
    host: tuple[HostLine, ...] = ()
    """what one engine takes of the host's memory, where that is known"""
    deployment: DeploymentRef | None = None
    """the servers that the answer is about"""
    capacity: Capacity | None = None
    """null where no memory is known"""
    verdict: Verdict | None = None
    """yes: the safe pool holds the load; likely: the likely pool does; unlikely: only the upper end of the
    estimate does; no; null where nothing was counted"""
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)

    _JSON = (
        "schema_version", "model", "engine", "settings", "request", "per_gpu", "total", "layers", "weights",
        "budget", "pool", "refusal", "warnings", "devices",
        "host", "ways", "deployment", "capacity", "verdict",
    )  # fmt: skip
    _JSON_OPTIONAL = ("devices", "host", "ways")

    @property
    def ways(self) -> tuple[Way, ...]:
        """where one request at a time was asked about, of an engine that people run at a desk"""
        find = getattr(self, "find_ways", None)
        return () if find is None else find()

    @property
    def _json_per_gpu(self) -> PerGpu | None:
        """null, as total, where the engine refused before anything was sized"""
        return self.per_gpu if self.sized else None

    @property
    def _json_total(self) -> Total | None:
        return self.total if self.sized else None

    def with_warnings(self, said: Sequence[str]) -> SizeResult:
        """The same answer with warnings before its own, and what it keeps beside its value."""
        made = changed(self, warnings=(*said, *self.warnings))
        for name in Answered.__slots__:
            if hasattr(self, name):
                setattr(made, name, getattr(self, name))
        return made

    @property
    def ok(self) -> bool:
        """True when the engine would serve this."""
        return self.refusal is None

    @property
    def sized(self) -> bool:
        """False where the engine refused before anything could be counted: then per_gpu and total are void,
        and the JSON has null in their places."""
        return self.refusal is None or self.per_gpu.kv_bytes > 0 or self.total.kv_bytes > 0

    def to_rows(self) -> list[dict[str, Any]]:
        """The answer as one flat row, for a table of many: ``pandas.DataFrame(answer.to_rows())``."""
        return [row_of(self)]


def exact(name: str, amount: int, source: str) -> BudgetLine:
    """A line that is known to the byte."""
    return BudgetLine(name, amount, amount, amount, source)


def about(name: str, amount: int, margin: int, source: str) -> BudgetLine:
    """An estimate: amount ± margin, never below zero."""
    return BudgetLine(name, amount, max(0, amount - margin), amount + margin, source)


def left_over(
    gpu: str, total: int, usable: int, lines: tuple[BudgetLine, ...], *, calibrated: bool
) -> Budget:
    """usable minus every line: the pool. Its low figure takes every line at its high end.

    Never below zero, neither the likely figure nor the interval's.
    """
    return Budget(
        gpu=gpu,
        total_bytes=total,
        lines=lines,
        kv_pool_bytes=max(0, usable - sum(line.bytes for line in lines)),
        kv_pool_low_bytes=max(0, usable - sum(line.high_bytes for line in lines)),
        kv_pool_high_bytes=max(0, usable - sum(line.low_bytes for line in lines)),
        unused_bytes=total - usable,
        calibrated=calibrated,
    )
