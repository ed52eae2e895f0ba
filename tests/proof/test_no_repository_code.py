"""Code of a repository is never run, whoever asks for it: the plan, the config, a library's default."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from kvplan.architectures.config.read import read_config
from kvplan.files.plans.file import read_plan_text
from kvplan.plans.serve import flags_of
from kvplan.proof.validate.installed.question import plan_of_worker, write_model
from tests.live.tiny import MODELS

PACKAGE = Path(__file__).resolve().parents[2] / "kvplan"
PLAN = """\
kvplan: plan/v1
model: llama-3.1-8b
engine: vllm
gpu: h100
serve: {FLAG: true, max_model_len: 4096}
"""
CODE = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "org/evil--evil.Model"}


def test_a_plan_s_leave_to_run_code_reaches_no_worker() -> None:
    for flag in ("trust_remote_code", "trust-remote-code"):
        (read,) = read_plan_text(PLAN.replace("FLAG", flag), engine_of=flags_of)
        if read.plan is not None:
            names = [name for name, _ in plan_of_worker(read.plan).serve]
            assert [name for name in names if "trust" in name] == []
            assert any("max" in name for name in names)


def test_no_worker_s_config_names_code(tmp_path: Path) -> None:
    inner = {**MODELS["dense"], "auto_map": CODE, "some_config": {"auto_map": CODE, "kept": 1}}
    model = read_config(inner, id="evil", source="test")
    write_model(model, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert "auto_map" not in json.dumps(written)
    assert written["some_config"] == {"kept": 1}


def test_every_call_that_could_load_code_says_no() -> None:
    """A library that asks whether it may would ask on the channel that carries the questions."""
    calls = 0
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                if node.func.attr in ("from_pretrained", "from_config") and ".Auto" in owner:
                    calls += 1
                    said = {one.arg: ast.unparse(one.value) for one in node.keywords}
                    assert said.get("trust_remote_code") == "False", f"{file}:{node.lineno}"
    assert calls >= 4
