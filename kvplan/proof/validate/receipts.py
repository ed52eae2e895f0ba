"""From what was found to a receipt, and the receipt's file: whole or not there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.files.writing import write_whole
from kvplan.plans.findings import Severity
from kvplan.plans.receipt import (
    CONFIRMED,
    CONSISTENT,
    PROOF,
    REFUTED,
    REHEARSAL,
    STOPPED,
    Figure,
    Receipt,
)
from kvplan.proof.validate.target import Target
from kvplan.version import __version__

if TYPE_CHECKING:
    from kvplan.proof.validate.session import Outcome

FOLDER = "evidence"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def receipt_of(outcome: Outcome, *, created: str) -> Receipt:
    """created: UTC, ISO 8601 with Z (the clock is the caller's).

    Refuted: a figure or a finding says so, or what was predicted could not be made. Stopped: it ended early,
    or a probe of kvplan's own had no memory, which proves nothing either way. Confirmed: by figures that were
    measured against an independent prediction; without one, self-consistent.
    """
    target = outcome.target
    wrong = any(one.severity is Severity.ERROR for one in outcome.findings)
    refuted = wrong or outcome.refuted_by_memory or not all(figure.agrees for figure in outcome.figures)
    return Receipt(
        plan_hash=target.hash,
        plan_name=target.plan.name,
        model_id=target.model.id,
        model_digest=target.digest,
        engine=target.choice.engine.name,
        engine_version=target.choice.version,
        kvplan_version=__version__,
        kind=REHEARSAL if outcome.hardware.kind == "cpu" else PROOF,
        created=created,
        hardware=outcome.hardware.model_dump(),
        settings=target.shown_settings(),
        figures=outcome.figures,
        verdict=REFUTED if refuted else STOPPED if outcome.stopped_by is not None else held(outcome.figures),
        stopped_at=outcome.stopped_at,
        notes=(*outcome.notes, *(f"{one.severity.value}: {one.message}" for one in outcome.findings)),
        stopped_by=outcome.stopped_by,
        attention=tuple(one.model_dump() for done in outcome.workload_tests for one in done.attention),
    )


def held(figures: tuple[Figure, ...]) -> str:
    """The verdict where nothing differs: what the figures are worth."""
    return CONFIRMED if any(one.evidence == CONFIRMED for one in figures) else CONSISTENT


def default_path(target: Target, receipt: Receipt) -> Path | None:
    """``evidence/<plan>-<GPU>.json`` (a rehearsal: ``<plan>-rehearsal.json``) beside the plan; an
    engine's own has its name at the end, so that kvplan's never takes its place; with ``-stopped`` where
    nothing was proved. A bare model has none: None."""
    if not target.plan.path:
        return None
    where = receipt.hardware.get("gpu") or receipt.hardware.get("name")
    words = [Path(target.plan.path).stem, receipt.kind if receipt.kind == REHEARSAL else where]
    words += [str(receipt.engine_run["name"])] if receipt.engine_run else []
    words += [STOPPED] if receipt.verdict == STOPPED else []
    name = "-".join(_UNSAFE.sub("-", str(word)).strip("-") for word in words)
    return Path(target.plan.path).parent / FOLDER / f"{name}.json"


def receipt_text(receipt: Receipt) -> str:
    """The file's text: the same receipt gives the same bytes."""
    return json.dumps(receipt.model_dump(), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def write_receipt(receipt: Receipt, path: Path) -> None:
    """The receipt in its place, its folder made where it is missing. Raises KvplanError(cannot-write)."""
    write_whole(path, receipt_text(receipt), folders=True)
