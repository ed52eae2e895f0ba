"""SARIF 2.1.0: rules from the findings' codes, a result for each finding.

OASIS "Static Analysis Results Interchange Format 2.1.0". Paths are URIs against ``%SRCROOT%``, the folder in
which kvplan was started. A fingerprint is made of plan, environment, code and field, not of lines, so that a
result keeps its identity when a file is edited above it; it is also given under the name by which GitHub's
code scanning tracks alerts. A plan that could not be judged is a result too, and the invocation then did not
succeed."""

from __future__ import annotations

import hashlib
import json
from urllib.parse import quote

from kvplan.errors import EXIT_NO
from kvplan.plans.findings import CheckedPlan, CheckReport
from kvplan.report.check.shown import (
    Issue,
    cases_of,
    is_absolute,
    issues_of,
    label,
    plain_path,
    printable,
    verdict,
)
from kvplan.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"


def render(report: CheckReport) -> str:
    """The report as one log with one run."""
    found = [(one, issue) for one in cases_of(report) for issue in issues_of(one)]
    rules: dict[str, Issue] = {}
    for _, issue in found:
        rules.setdefault(issue.code, issue)
    index = {code: at for at, code in enumerate(rules)}
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kvplan",
                        "version": __version__,
                        "semanticVersion": __version__,
                        "rules": [_rule(code, issue) for code, issue in rules.items()],
                    }
                },
                "invocations": [_invocation(report)],
                "originalUriBaseIds": {
                    ROOT: {"description": {"text": "The folder in which kvplan check was started."}}
                },
                "columnKind": "unicodeCodePoints",
                "properties": {
                    "plans": [
                        {"name": label(one), "verdict": verdict(one), "summary": printable(one.summary)}
                        for one in cases_of(report)
                    ]
                },
                "results": [_result(one, issue, index[issue.code]) for one, issue in found],
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _rule(code: str, issue: Issue) -> dict[str, object]:
    """A code is a phrase in kebab-case: the rule's name and description are that phrase."""
    words = code.split("-")
    phrase = " ".join(words)
    return {
        "id": code,
        "name": "".join(word[:1].upper() + word[1:] for word in words),
        "shortDescription": {"text": f"{phrase[:1].upper()}{phrase[1:]}."},
        "help": {"text": "kvplan check PLAN prints what was computed and what would mend it."},
        "defaultConfiguration": {"level": issue.severity.value},
    }


def _result(one: CheckedPlan, issue: Issue, rule: int) -> dict[str, object]:
    digest = fingerprint(one, issue)
    return {
        "ruleId": issue.code,
        "ruleIndex": rule,
        "level": issue.severity.value,
        "message": {"text": printable(f"{label(one)}: {issue.text}")},
        "locations": [_location(one, issue)],
        "partialFingerprints": {"kvplanFinding/v1": digest, "primaryLocationLineHash": f"{digest[:16]}:1"},
    }


def _location(one: CheckedPlan, issue: Issue) -> dict[str, object]:
    place = issue.place
    physical: dict[str, object] = {"artifactLocation": artifact(place.path)}
    if place.line is not None:
        region = {"startLine": place.line, "startColumn": place.column, "endColumn": place.end_column}
        physical["region"] = {key: value for key, value in region.items() if value is not None}
    whole = label(one) if issue.field is None else f"{label(one)}.{issue.field}"
    logical = {"name": label(one), "fullyQualifiedName": whole}
    return {"physicalLocation": physical, "logicalLocations": [logical]}


def artifact(path: str) -> dict[str, str]:
    """A path as an artifact location: relative ones against `ROOT`, absolute ones as ``file:`` URIs."""
    if not is_absolute(path):
        # A colon in the first part of a relative reference would make it a scheme (RFC 3986, 4.2).
        return {"uri": quote(path, safe="/-._~"), "uriBaseId": ROOT}
    host = "" if path.startswith("//") else "//" if path.startswith("/") else "///"
    return {"uri": f"file:{host}{quote(path, safe='/:-._~')}"}


def fingerprint(one: CheckedPlan, issue: Issue) -> str:
    """SHA-256 of what makes it the same finding: not its line, its words or its figures."""
    parts = [plain_path(one.path), one.name, one.environment, issue.code, issue.field, issue.ordinal]
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()


def _invocation(report: CheckReport) -> dict[str, object]:
    code = report.exit_code
    invocation: dict[str, object] = {"executionSuccessful": code <= EXIT_NO, "exitCode": code}
    texts = dict.fromkeys(  # the schema wants no two alike
        (one.error.code, printable(f"{label(one)}: {one.error.message}"))
        for one in report.plans
        if one.error is not None
    )
    notes = [
        {"level": "error", "descriptor": {"id": kind}, "message": {"text": text}} for kind, text in texts
    ]
    return {**invocation, "toolExecutionNotifications": notes} if notes else invocation
