"""The answer of both ways to validate: the receipt as JSON, and the exit code."""

from __future__ import annotations

from pathlib import Path

from kvplan.errors import EXIT_CANNOT_RUN, EXIT_NO, EXIT_OK
from kvplan.plans.receipt import CONFIRMED, HOLDS, PROOF, STOPPED, Receipt
from kvplan.proof.validate.session import Outcome
from kvplan.results import SCHEMA_VERSION


def receipt_data(outcome: Outcome, receipt: Receipt, path: Path | None) -> dict[str, object]:
    """The JSON of a run. path: of the receipt, None where none was written."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": receipt.verdict,
        "kind": receipt.kind,
        "confirmed_by": list(receipt.confirmed_by),
        "stopped_by": outcome.stopped_by,
        "findings": [
            {
                "code": one.code,
                "severity": one.severity.value,
                "message": one.message,
                "detail": list(one.detail),
            }
            for one in outcome.findings
        ],
        "path": None if path is None else str(path),
        "receipt": receipt.model_dump(),
    }


def code_of(receipt: Receipt, outcome: Outcome) -> int:
    """Exit 0 confirmed, 1 refuted, 3 nothing proved."""
    if receipt.verdict == STOPPED:
        return EXIT_CANNOT_RUN
    if receipt.verdict not in HOLDS:
        return EXIT_NO
    proved = receipt.verdict == CONFIRMED if receipt.kind == PROOF else not outcome.target.asks_proof
    return EXIT_OK if proved else EXIT_CANNOT_RUN
