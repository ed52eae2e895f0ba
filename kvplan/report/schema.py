"""The JSON of ``kvplan size --json`` as pydantic models: the schema, and a check that the two agree.

Answers themselves are plain dataclasses (kvplan.results) so that sizing does not load pydantic; a test
validates what they dump against these models, with no key more or less.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Bytes = Annotated[int, Field(ge=0, description="bytes")]
Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ModelEntry(_Strict):
    id: str
    source: str = Field(description="the card, file or address that the model was read from")


class EngineEntry(_Strict):
    name: str
    version: str = Field(description="the release whose rules were applied")


class RequestEntry(_Strict):
    tokens: Count = Field(description="decoder positions of one request")
    encoder_tokens: Count = Field(description="positions that cross attention reads")
    count: Annotated[int, Field(ge=1)] = Field(description="requests at once")
    answer_tokens: Count = Field(description="of `tokens`, those that are generated")


class PerGpuEntry(_Strict):
    """The fullest GPU."""

    kv_bytes_per_request: Bytes
    kv_bytes: Bytes = Field(description="all requests")
    peak_bytes: Bytes = Field(description="kv_bytes and what is pinned beside it after prefill")
    bytes_per_token: Union[int, Annotated[list[int], Field(min_length=2, max_length=2)]] = Field(
        description="growth at this length before block rounding; [numerator, denominator] where not whole"
    )
    fixed_bytes_per_request: Bytes = Field(description="what does not grow with tokens")


class TotalEntry(_Strict):
    """All GPUs of one replica."""

    kv_bytes_per_request: Bytes
    kv_bytes: Bytes


class PackingEntry(_Strict):
    """`elements` numbers take `bytes` bytes, scales included."""

    name: str
    elements: Annotated[int, Field(ge=1)]
    bytes: Annotated[int, Field(ge=1)]


class TermEntry(_Strict):
    """One stored thing, before sharding: prod(factors) numbers an entry."""

    name: str
    factors: list[tuple[str, int]]
    packing: PackingEntry
    entry_bytes: Bytes
    grows: Literal["token", "request", "encoder_token"]
    part: Literal["entries", "waiting", "filled"]
    keep_last: Optional[Count] = Field(description="only the newest so many tokens")  # noqa: UP045
    skip_last: Count = Field(description="the newest so many tokens are held by another term")
    stride: Annotated[int, Field(ge=1)] = Field(description="one entry per so many tokens")
    shards: Literal["heads", "replicated"]


class LayerEntry(_Strict):
    """`count` layers that store these terms."""

    family: str
    count: Annotated[int, Field(ge=1)]
    terms: list[TermEntry]


class GroupEntry(_Strict):
    """Layers that share one block table."""

    kind: str
    layers: Count
    block_size: Count = Field(description="tokens in a block")
    page_bytes: Bytes = Field(description="bytes of one block of one layer")
    blocks_per_request: Count


class PoolEntry(_Strict):
    """The block pool of one GPU."""

    bytes: Bytes
    bytes_per_block: Bytes
    num_blocks: Count
    groups: list[GroupEntry]
    kv_tokens: Count = Field(description="what this engine version prints")
    max_concurrency: float = Field(description="what this engine version prints, unrounded")
    max_requests: Count = Field(
        description="whole requests of `tokens` by the start-up formula, at most max_num_seqs"
    )
    requests_that_fit: Count = Field(description="the same without the cap")
    max_num_seqs: Count
    max_running: Count = Field(
        description="requests of the asked shape, all arriving at once, that run together without a"
        " preemption, at most max_num_seqs"
    )
    running_blocks: Optional[Count] = Field(  # noqa: UP045
        description="most blocks that a request holds once its prompt is computed; null: as start-up reserves"
    )
    prompt_blocks: Optional[Count] = Field(  # noqa: UP045
        description="blocks that must be free to admit a request; null: as start-up reserves"
    )


class BudgetLineEntry(_Strict):
    """One use of a GPU's memory; low and high enclose what is estimated."""

    name: str
    bytes: Bytes
    low_bytes: Bytes
    high_bytes: Bytes
    source: str


class BudgetEntry(_Strict):
    """The memory of the GPU that decides, line by line, and what it leaves for the cache."""

    gpu: str
    total_bytes: Bytes = Field(description="as the runtime reports it")
    lines: list[BudgetLineEntry]
    kv_pool_bytes: Bytes = Field(description="the likely figure")
    kv_pool_low_bytes: Bytes = Field(description="the safe figure: every estimate at its high end")
    kv_pool_high_bytes: Bytes
    unused_bytes: Bytes = Field(description="outside the utilisation")


class WeightsEntry(_Strict):
    """Bytes of weights."""

    bytes_per_gpu: Bytes = Field(description="of the fullest GPU")
    total_bytes: Bytes = Field(description="of the whole model, once")
    source: str


class DeviceEntry(_Strict):
    """One GPU, or the host, where an engine deals whole layers."""

    name: str
    layers: Count = Field(description="whose cache lies there")
    kv_bytes: Bytes = Field(description="of all requests")
    weights_bytes: Optional[Bytes]  # noqa: UP045


class RefusalEntry(_Strict):
    """Why the engine would not start."""

    code: str
    message: str
    largest_max_model_len: Optional[Count]  # noqa: UP045
    help: list[str]


class SizeEntry(_Strict):
    """The answer of `kvplan size --json` and of `kvplan.size(...).model_dump()`."""

    schema_version: Literal[1]
    model: ModelEntry
    engine: EngineEntry
    settings: dict[str, Any] = Field(description="every resolved setting that influenced the answer")
    request: RequestEntry
    per_gpu: Optional[PerGpuEntry] = Field(  # noqa: UP045
        description="null, as total, where the engine refused before anything was sized"
    )
    total: Optional[TotalEntry]  # noqa: UP045
    layers: list[LayerEntry]
    weights: Optional[WeightsEntry]  # noqa: UP045
    budget: Optional[BudgetEntry]  # noqa: UP045
    pool: Optional[PoolEntry]  # noqa: UP045
    refusal: Optional[RefusalEntry]  # noqa: UP045
    warnings: list[str]
    devices: list[DeviceEntry] = Field(
        default=[], description="where layers are dealt over several GPUs, or left in host memory"
    )


def size_schema() -> dict[str, Any]:
    """The JSON Schema of one answer."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(SizeEntry).json_schema(),
        "title": "kvplan size --json",
    }


def validate_size(data: dict[str, Any]) -> SizeEntry:
    """The answer as a model. Raises pydantic.ValidationError where it does not follow the schema.

    Data that was JSON once has lists where the models say tuples; strict mode takes those from JSON only.
    """
    import json

    return SizeEntry.model_validate_json(json.dumps(data))
