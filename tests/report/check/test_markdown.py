"""The comment: answer first, nothing in a plan becomes markup, never too long."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.plans.findings import CheckReport
from kvplan.report.check.markdown import LIMIT, code, fenced, render
from tests.report.check.reports import (
    COMPARED,
    FAILING,
    HOSTILE,
    HOSTILE_REPORT,
    PASSING,
    REPORT,
    REPORTS,
    facts,
    reports,
)


@pytest.mark.parametrize("name", REPORTS)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    path = Path(__file__).parent / "golden" / f"{name}.md"
    text = render(REPORTS[name])
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
    assert path.read_bytes().decode() == text


def test_the_answer_is_first() -> None:
    assert render(REPORT).splitlines()[0] == "### kvplan: 1 of 3 plans pass, 1 fails, 1 could not be judged."


def test_what_changed() -> None:
    rows = [row for row in render(COMPARED).splitlines() if row.startswith("|")]
    assert "| `chat` | Requests | 72 | 60 | -12 |" in rows
    assert "| `chat` | KV pool of one GPU | 48.00 GiB | 40.00 GiB | -8.00 GiB |" in rows
    assert "| `rag (prod)` | Verdict | – | fails |  |" in rows
    assert "| `gone` | Verdict | passes | – |  |" in rows
    assert not any("Cost per hour | 7.98 |" in row and "`chat` | Cost" in row for row in rows)


def test_nothing_changed() -> None:
    text = render(CheckReport((PASSING,), (PASSING,)))
    assert "Nothing changes against the baseline." in text


def test_failing_plans_are_open_and_first() -> None:
    text = render(REPORT)
    assert text.index("<code>rag (prod)</code>") < text.index("<code>chat</code>")
    assert text.count("<details open>") == 2
    assert text.count("<details>") == 1


def cells(row: str) -> int:
    """Cells of a table's row as GitHub splits it."""
    return len(re.findall(r"(?<!\\)\|", row)) - 1


def test_hostile_names_keep_the_table() -> None:
    rows = [row for row in render(HOSTILE_REPORT).splitlines() if row.startswith("| ")]
    table = rows[: rows.index(next(row for row in rows if row.startswith("| Plan"))) + 4]
    assert {cells(row) for row in table} == {5, 6} or len({cells(row) for row in table}) == 1


def outside(text: str) -> str:
    """The text without fenced blocks, code spans, and ``<code>``."""
    kept: list[str] = []
    fence = ""
    for line in text.split("\n"):
        ticks = re.match(r"(`{3,})", line)
        if fence:
            if ticks and ticks[1] == fence and line == fence:
                fence = ""
            continue
        if ticks and line == ticks[1] + "text":
            fence = ticks[1]
            continue
        kept.append(line)
    assert fence == ""
    rest = re.sub(r"<code>.*?</code>", "", "\n".join(kept))
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", rest)


def test_nobody_is_mentioned() -> None:
    report = CheckReport((replace(PASSING, name="@team", summary=""), replace(FAILING, name="x @team `y")))
    assert "@team" in render(report)
    assert "@" not in outside(render(report))


@given(st.text(max_size=40))
def test_code_spans_hold(text: str) -> None:
    span = code(text)
    assert "\n" not in span
    assert cells(f"|{span}|") == 1
    assert outside(span) == ""


@given(st.text(max_size=60) | st.just(HOSTILE))
def test_fences_hold(text: str) -> None:
    assert outside(fenced(text)) == ""


@given(reports)
def test_every_block_is_closed(report: CheckReport) -> None:
    text = outside(render(report))
    assert text.count("<details") == text.count("</details>")
    assert "<script" not in text


def test_too_long_is_cut_between_blocks_and_says_so() -> None:
    long = replace(FAILING, findings=FAILING.findings * 20)
    report = CheckReport(tuple(replace(long, name=f"plan {at}") for at in range(400)))
    text = render(report)
    assert len(text) <= LIMIT
    assert re.search(r"\*The details of [\d,]+ plans do not fit here: run `kvplan check`\.\*\n\Z", text)
    assert text.count("<details") == text.count("</details>") > 5
    assert outside(text).startswith("### kvplan: 0 of 400 plans pass")


def test_a_table_too_long_is_cut_between_rows() -> None:
    plans = tuple(replace(PASSING, name=f"{at}" + "😀" * 90, facts=facts(at, at)) for at in range(2000))
    text = render(CheckReport(plans))
    assert len(text.encode("utf-16-le")) // 2 <= LIMIT
    assert re.search(r"\*[\d,]+ more plans not shown", text)
    assert re.search(r"\*The details of 2,000 plans do not fit", text)
