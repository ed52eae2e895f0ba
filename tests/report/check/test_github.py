"""Workflow commands, read as the runner reads them."""

from __future__ import annotations

import re
from typing import NamedTuple

from hypothesis import given

from kvplan.plans.findings import CheckReport, Severity
from kvplan.report.check.github import escape_data, escape_property, render
from kvplan.report.check.shown import issues_of, printable
from tests.report.check.reports import COMPARED, HOSTILE_REPORT, REPORT, reports

KINDS = {"error": Severity.ERROR, "warning": Severity.WARNING, "notice": Severity.NOTE}


class Command(NamedTuple):
    name: str
    properties: dict[str, str]
    data: str


def run(text: str) -> tuple[list[Command], list[str]]:
    """(commands, plain lines) as actions/runner takes them (ActionCommand.TryParseV2, StopCommands): a
    command is ``::`` at the start of a trimmed line, its properties end at the next ``::``."""
    commands, plain, stopped = [], [], None
    for line in re.split(r"\r\n|\r|\n", text):
        trimmed = line.lstrip()
        if stopped is not None:
            if trimmed == f"::{stopped}::":
                stopped = None
            else:
                plain.append(line)
            continue
        if not trimmed.startswith("::") or "::" not in trimmed[2:]:
            plain.append(line)
            continue
        head, _, data = trimmed[2:].partition("::")
        name, _, rest = head.partition(" ")
        properties = dict(pair.split("=", 1) for pair in rest.split(",") if "=" in pair)
        back = {"%2C": ",", "%3A": ":", "%0D": "\r", "%0A": "\n", "%25": "%"}
        for code, one in back.items():
            properties = {key: value.replace(code, one) for key, value in properties.items()}
        for code in ("%0D", "%0A", "%25"):
            data = data.replace(code, back[code])
        if name == "stop-commands":
            stopped = data
        commands.append(Command(name, properties, data))
    return commands, plain


def test_an_error_stands_at_its_place() -> None:
    commands, plain = run(render(REPORT))
    error = next(one for one in commands if "requests-do-not-fit" in one.properties.get("title", ""))
    assert error.name == "error"
    assert error.properties == {
        "file": "plans/rag.yaml",
        "line": "12",
        "endLine": "12",
        "col": "3",
        "endColumn": "17",
        "title": "rag (prod): requests-do-not-fit",
    }
    assert error.data.split("\n") == [
        "12 requests of 131,072 tokens do not fit: 9 do",
        "the pool has 62.30 GiB",
        "a request takes 6.40 GiB",
        "help: gpus: 4",
    ]
    assert "1 of 3 plans pass, 1 fails, 1 could not be judged." in plain


def test_what_cannot_be_read_stands_where_the_error_says() -> None:
    commands, _ = run(render(REPORT))
    error = next(one for one in commands if one.properties.get("title") == "typo: unknown-flag")
    assert (error.properties["file"], error.properties["line"], error.properties["col"]) == (
        "plans/typo.yaml",
        "7",
        "3",
    )


def test_kinds_and_the_group() -> None:
    names = [one.name for one in run(render(REPORT))[0]]
    assert names == ["error", "error", "warning", "notice", "group", "stop-commands", "endgroup"]


def test_windows_paths_and_hostile_names() -> None:
    commands, plain = run(render(HOSTILE_REPORT))
    assert [one.name for one in commands] == ["error", "group", "stop-commands", "endgroup"]
    assert commands[0].properties["file"] == "plans/chat one.yaml"
    assert not any(
        "##[" in line for line in render(HOSTILE_REPORT).split("::stop-commands::")[0].splitlines()[1:]
    )
    assert any("::error::x" in line for line in plain)


def test_escaping_is_the_toolkits() -> None:
    assert escape_data("50%\n:,") == "50%25%0A:,"
    assert escape_property("a:b,c%\n") == "a%3Ab%2Cc%25%0A"


@given(reports)
def test_nothing_in_a_plan_becomes_a_command(report: CheckReport) -> None:
    """Annotations are those of the findings, one each, and say what they say."""
    commands, _ = run(render(report))
    found = [(KINDS[one.name], one.data) for one in commands if one.name in KINDS]
    expected = [(issue.severity, printable(issue.text)) for one in report.plans for issue in issues_of(one)]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert [one.name for one in commands if one.name not in KINDS] == ["group", "stop-commands", "endgroup"]


def test_a_baseline_changes_no_annotation() -> None:
    assert len(run(render(COMPARED))[0]) == 6
