"""Whether a receipt proves a plan: of this very plan, as it was written, young enough, figures that agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from fractions import Fraction

from kvplan.checking.case import Case
from kvplan.errors import KvplanError
from kvplan.plans.findings import Fact, Finding, Severity
from kvplan.plans.identity import model_digest, plan_hash
from kvplan.plans.plan import Evidence
from kvplan.plans.receipt import CONFIRMED, REHEARSAL, Figure, Receipt
from kvplan.readers.plans.receipts import ReadReceipt

Found = Iterator[Finding]
Receipts = Mapping[str, "ReadReceipt | KvplanError"]


def hash_of(case: Case) -> str | None:
    """What makes the plan this plan; None where the engine gives no answer."""
    if case.result is None:
        return None
    return plan_hash(case.plan, model_digest(case.model, case.result.layers))


def evidence_of(case: Case, receipts: Receipts, facts: tuple[Fact, ...], today: date | None) -> Found:
    """What is wrong with the plan's receipts."""
    listed = len(case.plan.evidence) > 1 or "evidence.0" in case.plan.marks
    for index, entry in enumerate(case.plan.evidence):
        field = f"evidence.{index}" if listed else "evidence"
        read = receipts.get(entry.path)
        if read is None or isinstance(read, KvplanError):
            error = read or KvplanError("no-such-file", f"{entry.path} was not read")
            yield _wrong("evidence-unreadable", error.message, field)
        elif not read.intact:
            yield _wrong(
                "evidence-edited",
                f"{entry.path} was changed after it was written: its digest is another",
                field,
            )
        else:
            yield from _of_receipt(case, read.receipt, entry, field, facts, today)


def _wrong(code: str, message: str, field: str, *detail: str) -> Finding:
    again = ("kvplan validate writes a new receipt",) if code != "evidence-disagrees" else ()
    return Finding(code, Severity.ERROR, message, field, detail, again)


def _of_receipt(
    case: Case, receipt: Receipt, entry: Evidence, field: str, facts: tuple[Fact, ...], today: date | None
) -> Found:
    mine = hash_of(case)
    if mine is not None and receipt.plan_hash != mine:
        detail = [f"plan {mine[:19]}…, receipt {receipt.plan_hash[:19]}…"]
        own = model_digest(case.model, case.result.layers) if case.result is not None else None
        if receipt.model_digest != own:
            detail.append(f"the model is another one too: {receipt.model_id}")
        yield _wrong(
            "evidence-of-another-plan",
            f"the receipt belongs to another state of the plan ({receipt.plan_name})",
            field,
            *detail,
        )
    if receipt.kind == REHEARSAL:
        yield _wrong(
            "rehearsal-is-no-proof",
            "the receipt is of a rehearsal in host memory: it shows layout and arithmetic, no GPU's capacity",
            field,
        )
    if receipt.verdict != CONFIRMED:
        stopped = f" at {receipt.stopped_at}" if receipt.stopped_at else ""
        yield _wrong("evidence-not-confirmed", f"the validation ended {receipt.verdict}{stopped}", field)
    if today is not None:
        age = (today - date.fromisoformat(receipt.created[:10])).days
        if age > entry.max_age_days:
            yield _wrong(
                "evidence-too-old",
                f"the receipt is {age:,} days old, and {entry.max_age_days:,} are allowed",
                field,
                f"written {receipt.created}",
            )
        elif age < -1:
            yield _wrong("evidence-from-the-future", f"the receipt was written {receipt.created}", field)
    known = {fact.name: fact for fact in facts}
    for figure in receipt.figures:
        if figure.rank is None and figure.name in known:
            yield from _prediction(figure, known[figure.name], field)
        yield from _measured(figure, case.plan.tolerance, field)


def _prediction(figure: Figure, fact: Fact, field: str) -> Found:
    if figure.predicted is not None and figure.unit == fact.unit and figure.predicted != fact.value:
        yield _wrong(
            "evidence-outdated",
            f"{figure.name}: the receipt's prediction was {figure.predicted:,}, today's is {fact.value:,}",
            field,
        )


def _measured(figure: Figure, tolerance: Fraction, field: str) -> Found:
    """A figure that has to agree is within what the receipt allows, and within the plan's tolerance."""
    if figure.allowed_ppm is None:
        return
    within = figure.agrees
    if figure.predicted is not None and figure.measured is not None:
        within = within and abs(figure.measured - figure.predicted) <= tolerance * abs(figure.predicted)
    if not within:
        shown = "nothing" if figure.measured is None else f"{figure.measured:,}"
        wanted = "nothing" if figure.predicted is None else f"{figure.predicted:,}"
        yield _wrong(
            "evidence-disagrees",
            f"{figure.name}: {shown} measured, {wanted} predicted ({figure.unit})",
            field,
            f"allowed: {float(tolerance * 100):g} % by the plan,"
            f" {figure.allowed_ppm / 10_000:g} % by the receipt",
        )
