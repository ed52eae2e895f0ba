"""``kvplan export``: a plan that was written starts what was planned, whichever way it is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.cli.commands import MAIN, MORE
from kvplan.report.export import TARGETS
from tests.cli.conftest import Run

PLANNED = {
    "vllm": ("command", "llama-3.1-8b", "-n", "8", "-t", "8k", "--gpu", "h100"),
    "sglang": ("command", "llama-3.1-8b", "-n", "8", "-t", "8k", "--gpu", "2xh100", "--engine", "sglang"),
    "trtllm": ("command", "llama-3.1-8b", "-n", "8", "-t", "8k", "--gpu", "h100", "--engine", "trtllm"),
    "compose": ("compose", "qwen3-32b", "-n", "64", "-t", "8k", "--gpu", "8xh100"),
    "kubernetes": ("kubernetes", "gpt-oss-120b", "-n", "100", "-t", "8k", "--gpu", "h100"),
}
ONE = "kvplan: plan/v1\nname: {}\nmodel: llama-3.1-8b\nengine: vllm@0.32\ngpu: h100\ngpus: 1\n"


@pytest.mark.parametrize("case", PLANNED)
def test_a_plan_on_stdout_in_a_file_and_as_json(run: Run, tmp_path: Path, case: str) -> None:
    target, *words = PLANNED[case]
    file, out = tmp_path / "plan.yaml", tmp_path / "out.txt"
    planned = run("plan", *words, "--write", str(file))
    assert planned.code == 0, planned.err
    printed = run("export", str(file), "--to", target)
    assert printed.code == 0, printed.err
    assert "--max-num-seqs" in printed.out or case in ("sglang", "trtllm")
    assert run("export", str(file), "--to", target, "--output", str(out)).out == f"wrote {out}\n"
    assert out.read_text(encoding="utf-8") == printed.out
    data = json.loads(run("export", str(file), "--to", target, "--json").out)
    assert (data["target"], data["text"]) == (target, printed.out)


def test_one_plan_of_several_documents(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plans.yaml"
    file.write_text(ONE.format("first") + "---\n" + ONE.format("second"), encoding="utf-8")
    assert "has 2 plans" in " ".join(run("export", str(file)).err.split())
    assert run("export", str(file), "--plan", "second").out.startswith("# second:")
    missed = run("export", str(file), "--plan", "secnd")
    assert (missed.code, "did you mean second?" in missed.err) == (2, True)


def test_a_report_is_printed_or_written(run: Run, tmp_path: Path) -> None:
    file, page = tmp_path / "plan.yaml", tmp_path / "page.html"
    file.write_text(ONE.format("chat"), encoding="utf-8")
    words = ("export", str(file), "--compare-gpus", "none", "--to")
    printed = run(*words, "html")
    assert printed.out.startswith("<!DOCTYPE html>")
    assert run(*words, "html", "-o", str(page)).out.splitlines()[-1] == f"wrote {page}"
    assert page.read_text(encoding="utf-8") == printed.out
    assert run(*words, "markdown").out.startswith("## chat")
    assert json.loads(run(*words, "markdown", "--json").out)["plans"][0]["check"]["name"] == "chat"


@pytest.mark.parametrize(
    ("target", "near"),
    [
        ("vllm", "command"),
        ("docker-compose", "compose"),
        ("kubernets", "kubernetes"),
        ("pdf", ", ".join(TARGETS)),
    ],
)
def test_unknown_targets(run: Run, target: str, near: str) -> None:
    ran = run("export", "plan.yaml", "--to", target)
    assert (ran.code, "unknown-target" in ran.err) == (2, True)
    assert near in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("emit", "export PLAN --to command"), ("report", "export PLAN --to html"), ("models", "list models"),
        ("gpus", "list gpus"), ("receipts", "list receipts"),
    ],
)  # fmt: skip
def test_renamed_commands_name_the_new_one(run: Run, old: str, new: str) -> None:
    ran = run(old, "plan.yaml")
    assert (ran.code, "unknown-command" in ran.err) == (2, True)
    assert f"help: did you mean kvplan {new}?" in ran.err


def test_help_shows_six_commands_and_six_more(run: Run) -> None:
    shown = run("-h").out
    for title, names in (("Commands", MAIN), ("More", MORE)):
        rows = shown.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()
        assert tuple(row.split()[0] for row in rows) == names
        assert len(names) == 6
    for name in ("cards", "schema", "doctor", "mcp"):
        assert f"  {name} " not in shown
        assert run(name, "-h").out.startswith(f"Usage: kvplan {name}")
