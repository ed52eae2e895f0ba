"""From what was found to a receipt, and the receipt's file: whole or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError
from kvplan.files.folders import exists
from kvplan.files.writing import write_whole
from kvplan.later import regex
from kvplan.named import NamedTuple
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
_UNSAFE = regex(r"[^A-Za-z0-9._-]+")


def receipt_of(outcome: Outcome, *, created: str, run: dict[str, object] | None = None) -> Receipt:
    """created: UTC, ISO 8601 with Z (the clock is the caller's). run: how it came about (`provenance`).

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
        run=run or {},
    )


def held(figures: tuple[Figure, ...]) -> str:
    """The verdict where nothing differs: what the figures are worth."""
    return CONFIRMED if any(one.evidence == CONFIRMED for one in figures) else CONSISTENT


def default_path(target: Target, receipt: Receipt) -> Path | None:
    """``evidence/<plan>-<GPU>.json`` (a rehearsal: ``<plan>-rehearsal.json``) beside the plan, None of a bare
    model. Who measured stands at the end (``-vllm``, ``-vllm-layers-4``, ``-vllm-served``), so that no other
    takes its place; ``-stopped`` where nothing was proved."""
    if not target.plan.path:
        return None
    where = receipt.hardware.get("gpu") or receipt.hardware.get("name")
    words = [Path(target.plan.path).stem, receipt.kind if receipt.kind == REHEARSAL else where]
    by = by_of(receipt)
    words += [by.who] if receipt.engine_run else []
    words += [f"layers-{by.layers}"] if by.layers is not None else []
    words += ["served"] if by.served else []
    words += [STOPPED] if receipt.verdict == STOPPED else []
    name = "-".join(_UNSAFE.sub("-", str(word)).strip("-") for word in words)
    return Path(target.plan.path).parent / FOLDER / f"{name}.json"


class By(NamedTuple):
    """Who measured what: a receipt takes the place of its like alone. layers: None = all; served: with the
    engine's server."""

    kind: str
    who: str
    layers: int | None = None
    served: bool = False


def by_of(receipt: Receipt) -> By:
    """Of a receipt, as it was written."""
    run = receipt.engine_run
    who = f"{run['name']}{'-attached' if run.get('attached') else ''}" if run else "kvplan"
    served = any(one.stage == "serve" for one in receipt.figures) and not run.get("attached")
    return By(receipt.kind, who, run.get("layers"), served)


def check_place(path: str | None, mine: By) -> None:
    """Before a run: a file that holds a receipt of another kind is not to be lost for one of this.

    Raises KvplanError(other-receipt).
    """
    there = None if path is None else _there(Path(path))
    if there is None:
        return
    theirs = by_of(there)
    if theirs._replace(served=False) == mine._replace(served=False) and (mine.served or not theirs.served):
        return
    raise KvplanError(
        "other-receipt",
        f"{path} holds a receipt of another kind: a {theirs.kind} by {_words(theirs)},"
        f" this is a {mine.kind} by {_words(mine)}",
        help="write it elsewhere: --output FILE",
    )


def _words(by: By) -> str:
    layers = "" if by.layers is None else f" of {by.layers} layers"
    return f"{by.who}{layers}{' with its server' if by.served else ''}"


def place_of(output: str | None, target: Target, receipt: Receipt) -> Path | None:
    """Where the receipt goes: the file that was named, else the default. One that was stopped goes beside a
    file of one that was not."""
    if not output:
        return default_path(target, receipt)
    path = Path(output)
    there = _there(path) if receipt.verdict == STOPPED else None
    if there is None or there.verdict == STOPPED:
        return path
    return path.with_name(f"{path.stem}-{STOPPED}{path.suffix}")


def _there(path: Path) -> Receipt | None:
    from kvplan.files.plans.receipts import read_receipt

    try:
        return read_receipt(path).receipt if exists(path) else None
    except KvplanError:  # no receipt: the user named the file
        return None


def receipt_text(receipt: Receipt) -> str:
    """The file's text: the same receipt gives the same bytes."""
    return json.dumps(receipt.model_dump(), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def write_receipt(receipt: Receipt, path: Path) -> None:
    """The receipt in its place, its folder made where it is missing. Raises KvplanError(cannot-write)."""
    write_whole(path, receipt_text(receipt), folders=True)
