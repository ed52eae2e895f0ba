"""JUnit XML: a suite for each file, a case for each plan in an environment.

In the form of the Apache Ant schema (windyroad/JUnit-Schema JUnit.xsd), which asks for a timestamp, a host
and times: nothing is measured here and the same plans give the same bytes, so they are the epoch,
``localhost`` and 0. A case has at most one failure; every error of the plan is in its text. Warnings, notes
and figures are in the suite's output."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from kvplan.plans.findings import CheckedPlan, CheckReport, Severity
from kvplan.report.check.shown import (
    Issue,
    cases_of,
    figure,
    issues_of,
    label,
    one_line,
    plain_path,
    printable,
    title_of,
    verdict,
)
from kvplan.version import __version__

_EPOCH = "1970-01-01T00:00:00"
_WHITE = {"\n": "&#10;", "\t": "&#9;"}


def render(report: CheckReport) -> str:
    """The report as one document."""
    files: dict[str, list[CheckedPlan]] = {}
    for one in cases_of(report):
        files.setdefault(plain_path(one.path), []).append(one)
    rows = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    for at, (path, plans) in enumerate(files.items()):
        rows += _suite(at, path, plans)
    return "\n".join((*rows, "</testsuites>")) + "\n"


def _suite(at: int, path: str, plans: Sequence[CheckedPlan]) -> list[str]:
    failures = sum(one.error is None and not one.passed for one in plans)
    attributes: dict[str, str | int] = {
        "name": one_line(path) or "plan",
        "package": "kvplan",
        "id": at,
        "timestamp": _EPOCH,
        "hostname": "localhost",
        "tests": len(plans),
        "failures": failures,
        "errors": sum(one.error is not None for one in plans),
        "skipped": 0,
        "time": 0,
    }
    version = _open("property", {"name": "kvplan", "value": __version__}, closed=True)
    return [
        "  " + _open("testsuite", attributes),
        f"    <properties>{version}</properties>",
        *(line for one in plans for line in _case(path, one)),
        f"    <system-out>{_text(_output(plans))}</system-out>",
        "    <system-err></system-err>",
        "  </testsuite>",
    ]


def _case(path: str, one: CheckedPlan) -> list[str]:
    attributes: dict[str, str | int] = {
        "name": one_line(label(one)),
        "classname": one_line(path) or "plan",
        "time": 0,
    }
    wrong = [issue for issue in issues_of(one) if issue.severity is Severity.ERROR]
    if not wrong:
        return ["    " + _open("testcase", attributes, closed=True)]
    kind = "error" if one.error is not None else "failure"
    opened = _open(kind, {"message": one_line(wrong[0].message), "type": wrong[0].code})
    text = "\n\n".join(_told(issue) for issue in wrong)
    return [
        "    " + _open("testcase", attributes),
        f"      {opened}{_text(text)}</{kind}>",
        "    </testcase>",
    ]


def _told(issue: Issue) -> str:
    place = issue.place
    where = ":".join(str(part) for part in (place.path, place.line, place.column) if part is not None)
    return f"{issue.severity.value}[{issue.code}] {where}\n{issue.text}"


def _output(plans: Sequence[CheckedPlan]) -> str:
    blocks = []
    for one in plans:
        rows = [f"{label(one)}: {verdict(one)}", *([one.summary] if one.summary else [])]
        rows += [f"{title_of(fact.name)}: {figure(fact.value, fact.unit)}" for fact in one.facts]
        rows += [_told(issue) for issue in issues_of(one) if issue.severity is not Severity.ERROR]
        blocks.append("\n".join(rows))
    return "\n\n".join(blocks)


def _open(tag: str, attributes: dict[str, str | int], *, closed: bool = False) -> str:
    given = "".join(
        f" {name}={quoteattr(printable(str(value)), _WHITE)}" for name, value in attributes.items()
    )
    return f"<{tag}{given}{'/' if closed else ''}>"


def _text(text: str) -> str:
    """Character data; ``]]>`` is escaped as every > is."""
    return escape(printable(text))
