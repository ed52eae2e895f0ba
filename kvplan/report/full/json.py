"""The report as JSON: of each plan the answers of the commands that it is made of."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.api.reporting import PlanReport
from kvplan.errors import KvplanError
from kvplan.plans.findings import CheckReport
from kvplan.record import dumped
from kvplan.results import SCHEMA_VERSION
from kvplan.simulation.shown import shown


def report_data(reports: Sequence[PlanReport]) -> dict[str, object]:
    """``plans``: each with ``check``, ``size``, ``plan`` and ``simulate`` as those commands answer."""
    report = CheckReport(tuple(one.checked for one in reports))
    checks = dumped(report)["plans"]
    return {
        "schema_version": SCHEMA_VERSION,
        "exit_code": report.exit_code,
        "plans": [_plan(one, check) for one, check in zip(reports, checks)],
    }


def _plan(one: PlanReport, check: dict[str, object]) -> dict[str, object]:
    return {
        "check": check,
        "size": None if one.result is None else one.result.model_dump(),
        "lengths": [held._asdict() for held in one.lengths],
        "plan": None if one.kinds is None else one.kinds.model_dump(),
        "levers": dumped(one.levers),
        "receipts": [
            {"path": path}
            | ({"error": read.as_dict()} if isinstance(read, KvplanError) else read.receipt.model_dump())
            for path, read in one.receipts
        ],
        "simulate": None if one.simulation is None else shown(one.simulation).model_dump(),
        "left_out": list(one.left_out),
    }
