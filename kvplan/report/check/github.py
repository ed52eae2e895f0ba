"""GitHub's workflow commands: an annotation for each finding, one folded group of plain lines.

Format: docs.github.com "Workflow commands for GitHub Actions"; escaping as in actions/toolkit
packages/core/src/command.ts (escapeData, escapeProperty). GitHub shows at most ten annotations of each kind
for a step. Plain lines stand between ``::stop-commands::`` and its token, so that no name or path in them
can be taken for a command. The step summary is the form ``markdown``."""

from __future__ import annotations

import hashlib

from kvplan.plans.findings import CheckedPlan, CheckReport, Severity
from kvplan.report.check.shown import (
    Issue,
    cases_of,
    issues_of,
    label,
    one_line,
    printable,
    sentence,
    verdict,
)

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: CheckReport) -> str:
    """Annotations in the order of the plans, then every plan's verdict in a group."""
    rows = [
        annotation(one, issue, severity)
        for severity in Severity
        for one in cases_of(report)
        for issue in issues_of(one)
        if issue.severity is severity
    ]
    plain = [
        one_line(f"{label(one)}: {verdict(one)}{f' ({one.summary})' if one.summary else ''}  {one.path}")
        for one in cases_of(report)
    ]
    plain.append(sentence(report))
    token = "kvplan-" + hashlib.sha256("\n".join(plain).encode("utf-8", "replace")).hexdigest()
    group = [command("group", {}, f"kvplan: {sentence(report)}"), command("stop-commands", {}, token)]
    return "\n".join([*rows, *group, *plain, f"::{token}::", "::endgroup::"]) + "\n"


def annotation(one: CheckedPlan, issue: Issue, severity: Severity) -> str:
    """One ``::error …::`` line."""
    place = issue.place
    properties: dict[str, str | int | None] = {
        "file": place.path,
        "line": place.line,
        "endLine": place.line if place.end_column is not None else None,
        "col": place.column,
        "endColumn": place.end_column,
        "title": f"{one_line(label(one))}: {issue.code}",
    }
    return command(_COMMANDS[severity], properties, issue.text)


def command(name: str, properties: dict[str, str | int | None], message: str) -> str:
    """``::name key=value,…::message``; properties that are None or empty are left out."""
    given = [
        f"{key}={escape_property(str(value))}" for key, value in properties.items() if value not in (None, "")
    ]
    return f"::{name}{' ' if given else ''}{','.join(given)}::{escape_data(message)}"


def escape_data(text: str) -> str:
    """%, carriage return and line feed as percent codes."""
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """As `escape_data`, and : and , besides."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")
