"""Every answer that has a schema follows it, as the commands print it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import KvplanError, Mark
from kvplan.planning.levers.results import Effect
from kvplan.plans.findings import CheckedPlan, CheckReport, Fact, Finding, Severity
from kvplan.record import dumped
from kvplan.report import schema
from kvplan.report.schema import ANSWERS, answer_schema
from tests.cli.conftest import Run
from tests.report.schemas import answer_errors

COMMAND = "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --max-model-len 32768 --port 8000"
QUESTIONS: dict[str, list[tuple[str, ...]]] = {
    "size": [("size", "gpt2"), ("size", "qwen3-32b", "--gpu", "h200", "--tokens", "32k")],
    "compare": [],
    "planned": [
        ("plan", "qwen3-0.6b", "--requests", "8", "--tokens", "4k", "--gpu", "l4,h100", "--levers"),
        ("plan", "qwen3-32b", "--requests", "9", "--tokens", "8k", "--gpu", "rtx-4090", "--max-gpus", "1"),
    ],
    "check": [],
    "simulate": [],
    "fits": [],
    "quality": [],
    "import": [("import", COMMAND, "--gpu", "h100")],
}
"""Those without a question stand beside their command (tests/{comparison,simulation,cli,numerics})."""


def test_every_answer_is_asked_here_or_beside_its_command() -> None:
    assert set(QUESTIONS) == set(ANSWERS)


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, all_words in QUESTIONS.items() for words in all_words]
)
def test_an_answer_follows_its_schema(name: str, words: tuple[str, ...], run: Run) -> None:
    data = json.loads(run(*words, "--json").out)
    assert answer_errors(answer_schema(name), data) == []


PLAN = """\
kvplan: plan/v1
name: chat
model: qwen3-0.6b
engine: vllm@0.32
gpu: l4
require: {tokens: 4096, requests: 4}
"""


def test_a_check_follows_its_schema(run: Run, tmp_path: Path) -> None:
    """A plan that passes, one that fails and one that cannot be read, and what changed since."""
    before, now = tmp_path / "before", tmp_path / "now"
    texts = {
        "good": PLAN,
        "bad": PLAN.replace("requests: 4", "requests: 40000"),
        "broken": "kvplan: plan/v1\nmodel: [\n",
    }
    for folder in (before, now):
        folder.mkdir()
        for name, text in texts.items():
            (folder / f"{name}.yaml").write_text(text.replace("name: chat", f"name: {name}"))
    (now / "good.yaml").write_text(PLAN.replace("4096", "8192").replace("name: chat", "name: good"))
    paths = [str(path) for path in sorted(now.glob("*.yaml"))]
    data: dict[str, Any] = json.loads(run("check", *paths, "--format", "json").out)
    assert answer_errors(answer_schema("check"), data) == []
    assert data["counts"] == {"plans": 3, "passed": 1, "failed": 1, "unreadable": 1}
    assert "changes" not in data


def test_changes_follow_the_schema() -> None:
    """A plan that is kept, one that is new and one that is gone."""
    mark = Mark("a.yaml", 1, 2, 3)
    finding = Finding("too-few", Severity.ERROR, "no", "require.requests", ("a",), ("b",), mark)
    before = CheckedPlan("a", "a.yaml", None, facts=(Fact("requests", 3, "requests"),))
    after = replace(
        before, findings=(finding,), facts=(Fact("requests", 5, "requests"), Fact("gpus", 1, "gpus"))
    )
    broken = CheckedPlan("c", "c.yaml", "prod", error=KvplanError("bad-plan", "no"))
    data = dumped(CheckReport((after, broken), (before, replace(before, name="b"))))
    assert answer_errors(answer_schema("check"), data) == []
    kept, new, gone = data["changes"]
    assert [one["state"] for one in (kept, new, gone)] == ["kept", "new", "gone"]
    assert kept["facts"][0] == {
        "name": "requests",
        "unit": "requests",
        "before": 3,
        "after": 5,
        "difference": 2,
    }
    assert kept["facts"][1]["difference"] is None
    assert (kept["passed_before"], kept["passed"]) == (True, False)
    assert data["plans"][0]["findings"][0]["place"] == {
        "path": "a.yaml", "line": 1, "column": 2, "end_column": 3,
    }  # fmt: skip
    assert data["plans"][1]["error"]["code"] == "bad-plan"


def test_two_classes_of_one_name_are_no_schema() -> None:
    defs: dict[str, Any] = {}
    schema._of(Effect, defs)
    schema._of(Effect, defs)
    with pytest.raises(TypeError, match="two classes of one answer are named Effect"):
        schema._of(type("Effect", (), {}), defs)
