"""Receipt files: the JSON that a validation wrote, checked against its layout and its digest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kvplan.errors import KvplanError
from kvplan.files.json_input import parse_json, read_limited
from kvplan.plans.receipt import (
    CLASSES,
    CONFIRMED,
    CONSISTENT,
    FIRST_FORMAT,
    HOLDS,
    PROOF,
    RECEIPT_FORMAT,
    REFUTED,
    REHEARSAL,
    REPORTED,
    STOPPED,
    ReadReceipt,
    Receipt,
    digest_of,
    receipt_from,
)
from kvplan.record import JsonDict
from kvplan.units import MIB

MAX_BYTES = 4 * MIB
_Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
_Number = Annotated[int, Field(ge=-(10**18), le=10**18)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FigureEntry(_Strict):
    """One figure, predicted and measured."""

    name: str
    unit: Literal["bytes", "blocks", "requests", "tokens", "bytes_per_second", "count"]
    predicted: _Number | None
    measured: _Number | None
    allowed_ppm: Annotated[int, Field(ge=0, le=10**9)] | None = Field(
        description="how far the measurement may be off, in millionths of the prediction"
    )
    stage: str
    rank: Annotated[int, Field(ge=0)] | None = Field(description="null: of the whole plan")
    low: _Number | None = Field(default=None, description="the least that was predicted, of an estimate")
    high: _Number | None = Field(default=None, description="the most")
    evidence: Literal[CLASSES] | None = Field(  # type: ignore[valid-type]
        default=None,
        alias="class",
        description="confirmed: measured against an independent prediction; self-consistent: kvplan's own"
        " arithmetic on both sides; reported: decides nothing. A receipt/v1 has none",
    )


class ReceiptModel(_Strict):
    """The model that was served."""

    id: str
    digest: _Digest


class ReceiptEngine(_Strict):
    """The engine that served it."""

    name: str
    version: str


class AttentionEntry(_Strict):
    """One layer's attention over the pages under one kernel."""

    kind: str
    dtype: str
    kernel: str
    layer: Annotated[int, Field(ge=0)]
    tokens: Annotated[int, Field(ge=0)]
    queries: Annotated[int, Field(ge=0)]
    error: float | None = Field(description="largest absolute error; null: not run, or no number")
    tolerance: float | None
    note: str = Field(description="why it was not run")
    decides: bool = Field(description="false: a kernel that no engine uses")


class EngineRun(_Strict):
    """The engine that measured ``engine_`` figures: an installed one, run in a process of its own."""

    name: str
    version: str
    torch: str | None
    python: str | None
    device: str = Field(description="where it ran: the GPU's name, or cpu")
    layers: Annotated[int, Field(ge=1)] | None = Field(description="of the model; null: all of them")
    taken: JsonDict = Field(
        description="settings in which its platform differs from the plan's: it was sized with them"
    )
    settings: JsonDict = Field(description="what it resolved")
    attached: bool = Field(default=False, description="a server that ran already told its figures")
    pool: dict[str, int] = Field(default={}, description="of such a server: what it told of its pool")
    gpus: Annotated[int, Field(ge=1)] = Field(default=1, description="its ranks")
    flashinfer: str | None = Field(default=None, description="FlashInfer's release; null: not installed")
    compile_cache: Literal["cold", "warm"] | None = Field(
        default=None, description="cold: graphs were compiled; warm: all came from the engine's cache"
    )


class Run(_Strict):
    """How the receipt came about."""

    kvplan_commit: str | None = Field(description="with + where files were changed; null: of a wheel")
    seconds: Annotated[int, Field(ge=0)] = Field(description="from the start to this receipt")
    environment: dict[str, str] = Field(
        description="variables of engines, torch and drivers; (set) stands for secrets, paths and addresses"
    )


class ReceiptFile(_Strict):
    """One validation of one plan."""

    kvplan: Literal[RECEIPT_FORMAT, FIRST_FORMAT] = Field(  # type: ignore[valid-type]
        description="in a receipt/v1 no figure has a class, and confirmed says that none that decides differs"
    )
    plan_hash: _Digest
    plan_name: str
    model: ReceiptModel
    engine: ReceiptEngine
    kvplan_version: str
    kind: Literal[PROOF, REHEARSAL] = Field(  # type: ignore[valid-type]
        description="a rehearsal ran in host memory and proves no capacity"
    )
    created: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?Z$", description="UTC")

    @field_validator("created")
    @classmethod
    def _is_a_time(cls, text: str) -> str:
        datetime.fromisoformat(text[:19])
        return text

    hardware: JsonDict
    settings: JsonDict
    figures: list[FigureEntry]
    verdict: Literal[CONFIRMED, CONSISTENT, REFUTED, STOPPED] = Field(  # type: ignore[valid-type]
        description="confirmed: by figures of that class; self-consistent: nothing differs, and none is of it"
    )
    confirmed_by: list[str] | None = Field(
        default=None, description="figures measured against an independent prediction that agree"
    )
    stopped_at: str | None
    notes: list[str]
    stopped_by: Literal["time", "memory", "signal", "fault"] | None = Field(
        default=None, description="what ended it early"
    )
    attention: list[AttentionEntry] = Field(default=[], description="attention over pages, check by check")
    engine_run: EngineRun | None = Field(default=None, description="the installed engine that was run")
    run: Run | None = Field(default=None, description="in receipts of before there is none")
    digest: _Digest = Field(description="SHA-256 of the canonical JSON without this key")

    @model_validator(mode="after")
    def _says_what_it_is(self) -> ReceiptFile:
        """Classes are there or not as the format has it, and a verdict is no better than its figures."""
        classed = self.kvplan != FIRST_FORMAT
        if any((one.evidence is not None) != classed for one in self.figures):
            raise ValueError(f"every figure of a {RECEIPT_FORMAT} has a class, and none of a {FIRST_FORMAT}")
        if not classed:
            return self
        if any((one.evidence == REPORTED) != (one.allowed_ppm is None) for one in self.figures):
            raise ValueError("a figure is reported where nothing is allowed of it, and only there")
        if self.verdict == CONFIRMED and not any(one.evidence == CONFIRMED for one in self.figures):
            raise ValueError("nothing was measured against an independent prediction: it is not confirmed")
        return self


def read_receipt(path: Path, *, name: str | None = None) -> ReadReceipt:
    """The receipt in a file. Raises KvplanError(no-such-file | not-a-file | bad-json | bad-receipt …)."""
    shown = name if name is not None else str(path)
    data = parse_json(read_limited(path, MAX_BYTES), name=shown)
    try:
        file = ReceiptFile.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise KvplanError(
            "bad-receipt", f"{shown} is not a receipt: {place or 'the file'}: {first['msg']}"
        ) from None
    try:
        digest = digest_of(data)
    except ValueError:
        raise KvplanError("bad-receipt", f"{shown} is not a receipt: it has a number that is none") from None
    receipt = receipt_from(data)
    if receipt.has_classes and data.get("confirmed_by") != list(receipt.confirmed_by):
        raise KvplanError(
            "bad-receipt", f"{shown} is not a receipt: confirmed_by names other figures than agree"
        )
    return ReadReceipt(receipt, digest == file.digest)


def receipt_schema() -> dict[str, object]:
    """The JSON Schema of a receipt file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **ReceiptFile.model_json_schema(),
        "title": "kvplan receipt",
    }


def counts_against(one: ReadReceipt, others: Sequence[ReadReceipt]) -> bool:
    """Whether the receipt is edited, refuted, or stopped while none of the others counts for its plan.

    A validation that was stopped proves nothing either way. It is passed over where the same validation (of
    the same kind) was confirmed: of the very same plan, or of a plan of that name, model and engine since.
    """
    receipt = one.receipt
    if one.intact and receipt.verdict == STOPPED:
        return not any(
            other.intact
            and other.receipt.verdict in HOLDS
            and other.receipt.kind in (receipt.kind, PROOF)
            and (
                other.receipt.plan_hash == receipt.plan_hash
                or (_of(other.receipt) == _of(receipt) and other.receipt.created >= receipt.created)
            )
            for other in others
        )
    return not one.intact or receipt.verdict not in HOLDS


def _of(receipt: Receipt) -> tuple[str, str, str]:
    return receipt.plan_name, receipt.model_digest, receipt.engine
