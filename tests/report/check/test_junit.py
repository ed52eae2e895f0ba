"""JUnit files: well-formed, by the rules of the Ant schema, nothing lost."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given

from kvplan.plans.findings import CheckReport
from kvplan.report.check.junit import render
from tests.report.check.reports import HOSTILE_REPORT, REPORT, REPORTS, reports
from tests.report.schemas import junit_errors


@pytest.mark.parametrize("name", REPORTS)
def test_by_the_schemas_rules(name: str) -> None:
    assert junit_errors(render(REPORTS[name])) == []


def test_the_rules_can_fail() -> None:
    assert junit_errors(render(REPORT).replace(' hostname="localhost"', "", 1)) != []
    assert junit_errors(render(REPORT).replace("<system-err></system-err>", "", 1)) != []
    assert junit_errors(render(REPORT).replace('failures="1"', 'failures="2"', 1)) != []


def test_a_case_for_each_plan() -> None:
    root = ElementTree.fromstring(render(REPORT))
    cases = [
        (case.get("name"), case.get("classname"), [part.tag for part in case])
        for case in root.iter("testcase")
    ]
    assert cases == [
        ("chat", "plans/chat.yaml", []),
        ("rag (prod)", "plans/rag.yaml", ["failure"]),
        ("typo", "plans/typo.yaml", ["error"]),
    ]
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("type") == "requests-do-not-fit"
    assert "error[requests-do-not-fit] plans/rag.yaml:12:3" in str(failure.text)
    assert "prefixes are not kept" not in str(failure.text)
    assert "prefixes are not kept" in "".join(str(out.text) for out in root.iter("system-out"))


def test_hostile_text_is_text() -> None:
    root = ElementTree.fromstring(render(HOSTILE_REPORT))
    failure = root.find(".//failure")
    assert failure is not None
    assert "]]>` @team" in str(failure.text)
    assert "\x1b" not in render(HOSTILE_REPORT)


@given(reports)
def test_always_well_formed(report: CheckReport) -> None:
    text = render(report)
    assert junit_errors(text) == []
    root = ElementTree.fromstring(text.encode())
    assert len(list(root.iter("testcase"))) == len(report.plans)
    assert len(list(root.iter("error"))) == report.counts["unreadable"]
    assert len(list(root.iter("failure"))) == report.counts["failed"]
