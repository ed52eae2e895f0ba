"""A receipt: what a validation predicted and measured, on which hardware, for which plan.

``digest`` is the SHA-256 of the receipt's canonical JSON without that key: it shows an edited figure. It is
no signature: who can write the file can compute it anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from kvplan.record import record

RECEIPT_FORMAT = "receipt/v1"
PROOF, REHEARSAL = "proof", "rehearsal"
CONFIRMED, REFUTED, STOPPED = "confirmed", "refuted", "stopped"


@record()
class Figure:
    """One figure, predicted and measured. unit: bytes, blocks, requests, tokens, bytes_per_second, or count.

    allowed_ppm: how far the measurement may lie from the prediction, in millionths of the prediction;
    None where the figure is only reported. stage: where it was measured. rank: None = of the whole plan.
    """

    name: str
    unit: str
    predicted: int | None
    measured: int | None
    allowed_ppm: int | None = None
    stage: str = ""
    rank: int | None = None

    @property
    def agrees(self) -> bool:
        """Whether the measurement is within what is allowed; a figure that is only reported agrees."""
        if self.allowed_ppm is None:
            return True
        if self.predicted is None or self.measured is None:
            return False
        return abs(self.measured - self.predicted) * 1_000_000 <= self.allowed_ppm * abs(self.predicted)


@record()
class Receipt:
    """One validation. kind: ``proof`` (on a GPU) or ``rehearsal`` (host memory: layout and arithmetic, never
    capacity). created: UTC, ISO 8601 with Z. stopped_at: the stage at which it ended early; stopped_by: time,
    memory, signal or fault. attention: each check with its kernel, error, tolerance and note."""

    plan_hash: str
    plan_name: str
    model_id: str
    model_digest: str
    engine: str
    engine_version: str
    kvplan_version: str
    kind: str
    created: str
    hardware: Mapping[str, Any] = field(default_factory=dict, hash=False)
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    figures: tuple[Figure, ...] = ()
    verdict: str = CONFIRMED
    stopped_at: str | None = None
    notes: tuple[str, ...] = ()
    stopped_by: str | None = None
    attention: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)

    def model_dump(self) -> dict[str, Any]:
        """The receipt file's JSON, digest last."""
        names = ("name", "unit", "predicted", "measured", "allowed_ppm", "stage", "rank")
        body: dict[str, Any] = {
            "kvplan": RECEIPT_FORMAT,
            "plan_hash": self.plan_hash,
            "plan_name": self.plan_name,
            "model": {"id": self.model_id, "digest": self.model_digest},
            "engine": {"name": self.engine, "version": self.engine_version},
            "kvplan_version": self.kvplan_version,
            "kind": self.kind,
            "created": self.created,
            "hardware": dict(self.hardware),
            "settings": dict(self.settings),
            "figures": [{name: getattr(figure, name) for name in names} for figure in self.figures],
            "verdict": self.verdict,
            "stopped_at": self.stopped_at,
            "notes": list(self.notes),
        }
        # Receipts of before have neither: what is not there is not written, so that they stay what they were.
        if self.stopped_by is not None:
            body["stopped_by"] = self.stopped_by
        if self.attention:
            body["attention"] = [dict(one) for one in self.attention]
        return {**body, "digest": digest_of(body)}


def receipt_from(data: Mapping[str, Any]) -> Receipt:
    """A receipt file's JSON as values; its layout is the caller's to check. Raises KeyError, TypeError."""
    model, engine = data["model"], data["engine"]
    return Receipt(
        plan_hash=data["plan_hash"],
        plan_name=data["plan_name"],
        model_id=model["id"],
        model_digest=model["digest"],
        engine=engine["name"],
        engine_version=engine["version"],
        kvplan_version=data["kvplan_version"],
        kind=data["kind"],
        created=data["created"],
        hardware=data["hardware"],
        settings=data["settings"],
        figures=tuple(Figure(**entry) for entry in data["figures"]),
        verdict=data["verdict"],
        stopped_at=data["stopped_at"],
        notes=tuple(data["notes"]),
        stopped_by=data.get("stopped_by"),
        attention=tuple(data.get("attention", ())),
    )


def digest_of(body: Mapping[str, Any]) -> str:
    """``sha256:`` and the digest of the canonical JSON (sorted keys, no blanks) without ``digest``."""
    plain = {key: value for key, value in body.items() if key != "digest"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


class ReadReceipt(NamedTuple):
    """A receipt, and whether its digest is that of its content."""

    receipt: Receipt
    intact: bool
