"""``kvplan check`` as a command: forms, files, GitHub, exit codes."""

from __future__ import annotations

import json
import stat
import sys
import types
from datetime import date
from pathlib import Path

import pytest

from kvplan.cli.check import today
from kvplan.errors import KvplanError
from kvplan.plans.findings import CheckReport
from kvplan.report.check import REPORTERS
from tests.cli.conftest import Run

GOOD, BAD = "inputs/plans/chat.yaml", "inputs/plans/rag.yaml"


def test_exit_codes(run: Run) -> None:
    assert run("check", GOOD).code == 0
    assert run("check", BAD).code == 1
    assert run("check", BAD, "--exit-zero").code == 0
    assert run("check", "inputs/not-a-plan.yaml", BAD).code == 2
    assert run("check", "inputs/not-a-plan.yaml", "--exit-zero").code == 2
    assert run("check").code == 2
    assert run("check", GOOD, "--changed-only").code == 2
    assert run("check", "-", "-").code == 2


def test_json_is_the_same_by_both_names(run: Run) -> None:
    first, second = run("check", BAD, "--json"), run("check", BAD, "--format", "json")
    assert first.out == second.out
    data = json.loads(first.out)
    assert (data["schema_version"], data["exit_code"], first.code) == (1, 1, 1)
    finding = data["plans"][0]["findings"][0]
    assert finding["place"] == {"path": BAD, "line": 8, "column": 21, "end_column": 23}
    assert run("check", BAD, "--json", "--format", "text").code == 2


def test_the_report_is_written_whole(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    ran = run("check", BAD, "--format", "json", "--output", str(target))
    assert ran.code == 1
    assert ran.out.startswith("The plan fails.")
    assert json.loads(target.read_text())["exit_code"] == 1
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_report_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    ran = run("check", GOOD, "--output", str(tmp_path / "none" / "x.txt"))
    assert (ran.code, "cannot-write" in ran.err) == (2, True)


@pytest.fixture
def other_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the forms that annotate and summarise."""
    module = types.ModuleType("stand_in")
    module.github = lambda report: "".join(f"::error::{one.name}\n" for one in report.plans)  # type: ignore[attr-defined]
    module.markdown = lambda report: "| plan |\n"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stand_in", module)
    monkeypatch.setitem(REPORTERS, "github", "stand_in:github")
    monkeypatch.setitem(REPORTERS, "markdown", "stand_in:markdown")


@pytest.mark.usefixtures("other_forms")
def test_under_github_actions(run: Run, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    ran = run("check", BAD, environment=github)
    assert ran.out.startswith("The plan fails.")
    assert ran.out.endswith("::error::rag\n")
    assert summary.read_text() == "before\n| plan |\n"
    assert "::error" not in run("check", BAD, "--json", environment=github).out
    assert "::error" not in run("check", BAD).out


def test_an_unknown_format_is_found_before_the_plans_are_read(run: Run) -> None:
    assert "unknown-format" in run("check", "inputs/none", "--format", "xml").err


def test_the_day_comes_from_the_environment() -> None:
    assert today({"SOURCE_DATE_EPOCH": "86400"}) == date(1970, 1, 2)
    assert today({}) >= date(2026, 1, 1)
    with pytest.raises(KvplanError):
        today({"SOURCE_DATE_EPOCH": "soon"})


def test_an_empty_report_says_so(run: Run) -> None:
    from kvplan.report.check.text import render

    assert render(CheckReport(())) == "No plan has changed.\n"


def test_compare_takes_one_plan(run: Run, tmp_path: Path) -> None:
    head = "kvplan: plan/v1\nmodel: gemma-3-27b\nengine: vllm@0.19\ngpu: h100\n"
    (tmp_path / "two.yaml").write_text(f"{head}name: a\n---\n{head}name: b\n")
    ran = run("compare", str(tmp_path / "two.yaml"), "--log", "inputs/gemma.log")
    assert (ran.code, "one is taken at a time" in ran.err) == (2, True)
    (tmp_path / "one.yaml").write_text(head + "tolerance: 0.001%\nserve: {max_model_len: 16384}\n")
    ran = run("compare", str(tmp_path / "one.yaml"), "--log", "inputs/gemma.log", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["settings"]["max_model_len"] == 16384


@pytest.mark.parametrize("name", ["plan", "fleet", "receipt"])
def test_schemas(run: Run, name: str) -> None:
    assert json.loads(run("schema", name).out)["title"] == f"kvplan {name}"
