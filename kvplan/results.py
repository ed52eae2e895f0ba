"""The answer of ``size``: plain dataclasses whose ``model_dump()`` is the documented JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from itertools import pairwise
from typing import Any

from kvplan.errors import KvplanError
from kvplan.model import Layer
from kvplan.record import record
from kvplan.terms import Term

SCHEMA_VERSION = 1
Exact = int | list[int]
"""A whole number, or [numerator, denominator]."""


def exact(value: Fraction | int) -> Exact:
    """A Fraction as JSON: an int where whole, else [numerator, denominator]."""
    fraction = Fraction(value)
    return fraction.numerator if fraction.denominator == 1 else [fraction.numerator, fraction.denominator]


@record()
class ModelRef:
    id: str
    source: str


@record()
class EngineRef:
    name: str
    version: str


@record()
class Request:
    """The request that was sized; ``count`` of them. answer_tokens: those that are generated."""

    tokens: int
    encoder_tokens: int
    count: int
    answer_tokens: int = 0


@record()
class PerGpu:
    """Bytes on the fullest GPU. peak_bytes adds what is pinned beside the data."""

    kv_bytes_per_request: int
    kv_bytes: int
    peak_bytes: int
    bytes_per_token: Fraction
    fixed_bytes_per_request: int


@record()
class Total:
    """Bytes on all GPUs of one replica."""

    kv_bytes_per_request: int
    kv_bytes: int


@record()
class LayerTerms:
    """``count`` layers with these terms, before sharding."""

    layer: Layer
    count: int
    terms: tuple[Term, ...]


@record()
class PoolGroup:
    """Layers that share one block table."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    blocks_per_request: int


@record()
class Pool:
    """The block pool of one GPU.

    kv_tokens, max_concurrency: what the engine version prints at start-up; max_requests: the same formula in
    whole requests. max_running: requests of the asked shape that run at once without one being thrown out.
    running_blocks, prompt_blocks: what a request holds once its prompt is computed, and what must be free to
    admit one, where that is less and more than what start-up reserves; None: it is what start-up reserves.
    """

    bytes: int
    bytes_per_block: int
    num_blocks: int
    groups: tuple[PoolGroup, ...]
    kv_tokens: int
    max_concurrency: float
    max_requests: int
    requests_that_fit: int
    max_num_seqs: int
    max_running: int
    running_blocks: int | None = None
    prompt_blocks: int | None = None


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
    """One use of a GPU's memory in bytes; low and high enclose it where it is an estimate.

    0 ≤ low ≤ bytes ≤ high holds of every line there is. Raises KvplanError(impossible-budget).
    """

    name: str
    bytes: int
    low_bytes: int
    high_bytes: int
    source: str

    def __post_init__(self) -> None:
        _in_order(self.name, 0, self.low_bytes, self.bytes, self.high_bytes)


@record()
class Budget:
    """The memory of the GPU that decides: the lines, the pool that they leave, and what stays unused.

    kv_pool_bytes is the likely figure; low takes every estimated line at its high end (the safe figure),
    high at its low end. lines, pool and unused add up to total_bytes unless nothing is left for the pool.
    calibrated: the coefficients were fitted on measured starts of this version.

    0 ≤ low ≤ likely ≤ high ≤ total − unused ≤ total holds of every budget there is. Raises
    KvplanError(impossible-budget).
    """

    gpu: str
    total_bytes: int
    lines: tuple[BudgetLine, ...]
    kv_pool_bytes: int
    kv_pool_low_bytes: int
    kv_pool_high_bytes: int
    unused_bytes: int
    calibrated: bool

    def __post_init__(self) -> None:
        usable = self.total_bytes - self.unused_bytes
        low, likely, high = self.kv_pool_low_bytes, self.kv_pool_bytes, self.kv_pool_high_bytes
        _in_order("KV cache", 0, low, likely, high, usable, self.total_bytes)


@record()
class ModelWeights:
    """Bytes of weights on the fullest GPU, and on one GPU that has the whole model; where they come from.

    As the engine keeps them: a padded vocabulary, a router in float32, experts as their kernel wants them.
    """

    bytes_per_gpu: int
    total_bytes: int
    source: str


HOST = "host"


@record()
class Device:
    """A GPU, or the host, where an engine deals whole layers: layers whose cache lies there, bytes of that
    cache, and of the weights (None: not known)."""

    name: str
    layers: int
    kv_bytes: int
    weights_bytes: int | None = None


@record()
class Refusal:
    """The engine would not start with these settings: why, and what would do.

    largest_max_model_len: the longest length that fits, where length is the reason.
    """

    code: str
    message: str
    largest_max_model_len: int | None = None
    help: tuple[str, ...] = ()


@record()
class SizeResult:
    """How much cache a model takes under one engine; ``refusal`` is set when the engine would not start.

    devices: each of them where layers are dealt over several GPUs, or left in host memory.
    """

    model: ModelRef
    engine: EngineRef
    settings: Mapping[str, Any]
    request: Request
    per_gpu: PerGpu
    total: Total
    layers: tuple[LayerTerms, ...]
    pool: Pool | None = None
    refusal: Refusal | None = None
    warnings: tuple[str, ...] = ()
    budget: Budget | None = None
    weights: ModelWeights | None = None
    devices: tuple[Device, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)

    @property
    def ok(self) -> bool:
        """True when the engine would serve this."""
        return self.refusal is None

    @property
    def sized(self) -> bool:
        """False where the engine refused before anything could be counted: then per_gpu and total are void,
        and the JSON has null in their places."""
        return self.refusal is None or self.per_gpu.kv_bytes > 0 or self.total.kv_bytes > 0

    def model_dump(self) -> dict[str, Any]:
        """The JSON of ``kvplan size --json``: only dict, list, str, int, float, bool and None."""
        return {
            "schema_version": self.schema_version,
            "model": {"id": self.model.id, "source": self.model.source},
            "engine": {"name": self.engine.name, "version": self.engine.version},
            "settings": dict(self.settings),
            "request": _plain(self.request),
            "per_gpu": {**_plain(self.per_gpu), "bytes_per_token": exact(self.per_gpu.bytes_per_token)}
            if self.sized
            else None,
            "total": _plain(self.total) if self.sized else None,
            "layers": [_layer(entry) for entry in self.layers],
            "weights": None if self.weights is None else _plain(self.weights),
            "budget": None if self.budget is None else _budget(self.budget),
            "pool": None if self.pool is None else _pool(self.pool),
            "refusal": None
            if self.refusal is None
            else {**_plain(self.refusal), "help": list(self.refusal.help)},
            "warnings": list(self.warnings),
            **({"devices": [_plain(one) for one in self.devices]} if self.devices else {}),
        }


def _plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _pool(pool: Pool) -> dict[str, Any]:
    return {**_plain(pool), "groups": [_plain(group) for group in pool.groups]}


def _budget(budget: Budget) -> dict[str, Any]:
    dumped = _plain(budget)
    del dumped["calibrated"]  # said in words, by the lines' sources and a warning
    return {**dumped, "lines": [_plain(line) for line in budget.lines]}


def _layer(entry: LayerTerms) -> dict[str, Any]:
    return {
        "family": entry.layer.family,
        "count": entry.count,
        "terms": [term_dump(term) for term in entry.terms],
    }


def term_dump(term: Term) -> dict[str, Any]:
    """One term of the JSON: its factors in the order in which they are multiplied."""
    return {
        "name": term.name,
        "factors": [[factor.name, factor.value] for factor in term.factors],
        "packing": {
            "name": term.packing.name,
            "elements": term.packing.elements,
            "bytes": term.packing.bytes,
        },
        "entry_bytes": term.entry_bytes,
        "grows": term.grows.value,
        "part": term.part.value,
        "keep_last": term.keep_last,
        "skip_last": term.skip_last,
        "stride": term.stride,
        "shards": term.shards.value,
    }
