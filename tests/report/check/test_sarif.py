"""SARIF logs: by the specification's rules, and the same result stays the same result."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import Mark
from kvplan.plans.findings import CheckReport
from kvplan.report.check.sarif import artifact, render
from tests.report.check.reports import FAILING, HOSTILE_REPORT, REPORT, REPORTS, mark, reports
from tests.report.schemas import sarif_errors


def log_of(report: CheckReport) -> Any:
    return json.loads(render(report))


@pytest.mark.parametrize("name", REPORTS)
def test_by_the_specifications_rules(name: str) -> None:
    assert sarif_errors(log_of(REPORTS[name])) == []


def test_the_rules_can_fail() -> None:
    log = log_of(REPORT)
    log["runs"][0]["results"][0]["ruleIndex"] = 1
    assert sarif_errors(log) != []
    del log["runs"][0]["tool"]["driver"]["name"]
    assert sarif_errors(log) != []


def test_results() -> None:
    run = log_of(REPORT)["runs"][0]
    first = run["results"][0]
    assert (first["ruleId"], first["level"]) == ("requests-do-not-fit", "error")
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "plans/rag.yaml", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 12, "startColumn": 3, "endColumn": 17}
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        "requests-do-not-fit",
        "prefix-caching-off",
        "environments-not-checked",
        "unknown-flag",
    ]
    assert run["tool"]["driver"]["rules"][0]["shortDescription"] == {"text": "Requests do not fit."}
    invocation = run["invocations"][0]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (2, False)
    assert [note["descriptor"]["id"] for note in invocation["toolExecutionNotifications"]] == ["unknown-flag"]


def test_a_failing_plan_is_a_successful_run() -> None:
    invocation = log_of(CheckReport((FAILING,)))["runs"][0]["invocations"][0]
    assert invocation == {"executionSuccessful": True, "exitCode": 1}


def _moved(one: Mark | None, lines: int) -> Mark | None:
    return None if one is None else replace(one, line=one.line + lines, column=one.column + 1, shown="x")


@given(st.integers(1, 500))
def test_fingerprints_do_not_follow_lines_or_figures(lines: int) -> None:
    moved = replace(
        FAILING,
        findings=tuple(
            replace(finding, mark=_moved(finding.mark, lines), message=f"{lines} do not fit")
            for finding in FAILING.findings
        ),
    )
    assert _prints(CheckReport((moved,))) == _prints(CheckReport((FAILING,)))


def test_fingerprints_tell_findings_apart() -> None:
    twice = replace(FAILING, findings=(FAILING.findings[0],) * 2)
    other = replace(FAILING, environment="staging")
    prints = _prints(CheckReport((FAILING, replace(twice, name="twice"), other)))
    assert len({tuple(sorted(one.items())) for one in prints}) == len(prints) == 8


def _prints(report: CheckReport) -> list[dict[str, str]]:
    return [result["partialFingerprints"] for result in log_of(report)["runs"][0]["results"]]


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("plans/chat one.yaml", "plans/chat%20one.yaml"),
        ("../plans/é.yaml", "../plans/%C3%A9.yaml"),
        ("a:b.yaml", "a%3Ab.yaml"),
        ("50%.yaml", "50%25.yaml"),
        ("/srv/a b.yaml", "file:///srv/a%20b.yaml"),
        ("C:/plans/a.yaml", "file:///C:/plans/a.yaml"),
        ("//host/share/a.yaml", "file://host/share/a.yaml"),
        ("#a?.yaml", "%23a%3F.yaml"),
    ],
)
def test_paths_are_uris(path: str, uri: str) -> None:
    assert artifact(path)["uri"] == uri


def test_windows_paths_have_slashes() -> None:
    result = log_of(HOSTILE_REPORT)["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "plans/chat%20one.yaml"


@given(reports)
def test_always_by_the_rules(report: CheckReport) -> None:
    assert sarif_errors(log_of(report)) == []


def test_the_same_bytes() -> None:
    assert render(REPORT) == render(REPORT)
    assert render(REPORT).isascii()


def test_a_place_without_a_mark_is_the_file() -> None:
    plain = replace(FAILING, mark=None, findings=(replace(FAILING.findings[2], mark=None),))
    location = log_of(CheckReport((plain,)))["runs"][0]["results"][0]["locations"][0]
    assert "region" not in location["physicalLocation"]
    assert mark("x").line == 12
