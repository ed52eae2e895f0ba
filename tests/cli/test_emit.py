"""``kvplan emit`` and ``kvplan plan --emit``: the same plan gives the same text both ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

ASKS = {
    "vllm": ("llama-3.1-8b", "-n", "8", "-t", "8k", "--gpu", "h100"),
    "sglang": ("llama-3.1-8b", "-n", "8", "-t", "8k", "--gpu", "2xh100", "--engine", "sglang"),
    "trtllm": ("llama-3.1-8b", "-n", "8", "-t", "8k", "--gpu", "h100", "--engine", "trtllm"),
    "docker-compose": ("qwen3-32b", "-n", "64", "-t", "8k", "--gpu", "8xh100"),
    "kubernetes": ("gpt-oss-120b", "-n", "100", "-t", "8k", "--gpu", "h100"),
}


@pytest.mark.parametrize("target", ASKS)
def test_a_written_plan_emits_what_the_plan_emitted(run: Run, tmp_path: Path, target: str) -> None:
    file, out = tmp_path / "plan.yaml", tmp_path / "out.txt"
    direct = run("plan", *ASKS[target], "--emit", target, "--write", str(file))
    assert direct.code == 0, direct.err
    later = run("emit", str(file), "--to", target)
    assert (later.code, later.out) == (0, direct.out)
    assert run("emit", str(file), "--to", target, "--output", str(out)).out == f"wrote {out}\n"
    assert out.read_text(encoding="utf-8") == direct.out
    held = json.loads(run("emit", str(file), "--to", target, "--json").out)
    assert (held["target"], held["text"]) == (target, direct.out)


def test_one_plan_of_several_documents(run: Run, tmp_path: Path) -> None:
    one = "kvplan: plan/v1\nname: {}\nmodel: llama-3.1-8b\nengine: vllm@0.32\ngpu: h100\ngpus: 1\n"
    file = tmp_path / "plans.yaml"
    file.write_text(one.format("first") + "---\n" + one.format("second"), encoding="utf-8")
    assert "has 2 plans" in " ".join(run("emit", str(file)).err.split())
    assert run("emit", str(file), "--plan", "second").out.startswith("# second:")
    missed = run("emit", str(file), "--plan", "secnd")
    assert (missed.code, "did you mean second?" in missed.err) == (2, True)


def test_forms_exclude_each_other(run: Run) -> None:
    for words in (("--json", "--emit", "vllm"), ("--markdown", "--emit", "vllm"), ("--image", "x")):
        ran = run("plan", "llama-3.1-8b", "-t", "8k", "--gpu", "h100", *words)
        assert (ran.code, "bad-usage" in ran.err) == (2, True)
