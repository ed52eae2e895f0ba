"""From what was found to a receipt, and the receipt's file: whole or not there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kvplan.plans.findings import Finding, Severity
from kvplan.plans.receipt import CONFIRMED, PROOF, REFUTED, REHEARSAL, STOPPED, Figure, Receipt
from kvplan.readers.writing import write_whole
from kvplan.validate.probe import Hardware
from kvplan.validate.target import Target
from kvplan.version import __version__

FOLDER = "evidence"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def receipt_of(
    target: Target,
    hardware: Hardware,
    figures: tuple[Figure, ...],
    findings: tuple[Finding, ...],
    notes: tuple[str, ...],
    *,
    created: str,
    stopped_at: str | None = None,
    out_of_memory: bool = False,
) -> Receipt:
    """created: UTC, ISO 8601 with Z (the clock is the caller's). A run that ran out of memory is refuted, one
    that was stopped proves nothing either way."""
    wrong = any(one.severity is Severity.ERROR for one in findings)
    refuted = wrong or out_of_memory or not all(figure.agrees for figure in figures)
    stopped = stopped_at is not None and not out_of_memory
    return Receipt(
        plan_hash=target.hash,
        plan_name=target.plan.name,
        model_id=target.model.id,
        model_digest=target.digest,
        engine=target.choice.engine.name,
        engine_version=target.choice.version,
        kvplan_version=__version__,
        kind=REHEARSAL if hardware.kind == "cpu" else PROOF,
        created=created,
        hardware=hardware.model_dump(),
        settings=target.shown_settings(),
        figures=figures,
        verdict=STOPPED if stopped else REFUTED if refuted else CONFIRMED,
        stopped_at=stopped_at,
        notes=(*notes, *(f"{one.severity.value}: {one.message}" for one in findings)),
    )


def default_path(target: Target, receipt: Receipt) -> Path | None:
    """``evidence/<plan>-<GPU>.json`` (a rehearsal: ``<plan>-rehearsal.json``) beside the plan. A bare
    model has no place: None."""
    if not target.plan.path:
        return None
    where = receipt.hardware.get("gpu") or receipt.hardware.get("name")
    words = (Path(target.plan.path).stem, receipt.kind if receipt.kind == REHEARSAL else where)
    name = "-".join(_UNSAFE.sub("-", str(word)).strip("-") for word in words)
    return Path(target.plan.path).parent / FOLDER / f"{name}.json"


def receipt_text(receipt: Receipt) -> str:
    """The file's text: the same receipt gives the same bytes."""
    return json.dumps(receipt.model_dump(), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def write_receipt(receipt: Receipt, path: Path) -> None:
    """The receipt in its place, its folder made where it is missing. Raises KvplanError(cannot-write)."""
    write_whole(path, receipt_text(receipt), folders=True)
