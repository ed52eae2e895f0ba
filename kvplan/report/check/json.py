"""The check as JSON: ``kvplan check --format json``."""

from __future__ import annotations

import json
from typing import Any

from kvplan.errors import Mark
from kvplan.plans.findings import CheckedPlan, CheckReport, Fact, Finding
from kvplan.results import SCHEMA_VERSION


def render(report: CheckReport) -> str:
    """The same bytes for the same report on every machine."""
    return json.dumps(dump(report), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def dump(report: CheckReport) -> dict[str, Any]:
    """The report as plain data; ``changes`` only where there is a baseline."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "exit_code": report.exit_code,
        "counts": report.counts(),
        "plans": [_plan(one) for one in report.plans],
    }
    if report.baseline:
        data["changes"] = [_change(before, after) for before, after in report.pairs()]
    return data


def _plan(one: CheckedPlan) -> dict[str, Any]:
    return {
        "name": one.name,
        "path": one.path,
        "environment": one.environment,
        "passed": one.passed,
        "summary": one.summary,
        "findings": [_finding(finding) for finding in one.findings],
        "facts": [_fact(fact) for fact in one.facts],
        "error": None if one.error is None else one.error.as_dict(),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "message": finding.message,
        "field": finding.field,
        "detail": list(finding.detail),
        "help": list(finding.help),
        "place": _place(finding.mark),
    }


def _place(mark: Mark | None) -> dict[str, Any] | None:
    if mark is None:
        return None
    return {"path": mark.path, "line": mark.line, "column": mark.column, "end_column": mark.end_column}


def _fact(fact: Fact) -> dict[str, Any]:
    return {"name": fact.name, "value": fact.value, "unit": fact.unit}


def _change(before: CheckedPlan | None, after: CheckedPlan | None) -> dict[str, Any]:
    """The figures of one plan before and after; null where there is none."""
    one = after or before
    assert one is not None
    names = dict.fromkeys(
        (fact.name, fact.unit) for side in (before, after) if side is not None for fact in side.facts
    )
    figures = []
    for name, unit in names:
        old, new = (side.fact(name) if side is not None else None for side in (before, after))
        difference = new - old if old is not None and new is not None else None
        figures.append({"name": name, "unit": unit, "before": old, "after": new, "difference": difference})
    return {
        "name": one.name,
        "path": one.path,
        "environment": one.environment,
        "state": "gone" if after is None else "new" if before is None else "kept",
        "passed_before": None if before is None else before.passed,
        "passed": None if after is None else after.passed,
        "facts": figures,
    }
