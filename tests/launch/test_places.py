"""A finding about a plan that was made of a command, a script or a manifest points at what it was made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.api.launching import started_readings
from kvplan.errors import Mark
from kvplan.plans.plan import Plan

SCRIPT = """\
#!/bin/sh
export CUDA_VISIBLE_DEVICES=0,1
vllm serve meta-llama/Llama-3.3-70B-Instruct \\
  --tensor-parallel-size 2 -q fp8 \\
  --max-model-len 16384
"""
TWO = """\
apiVersion: v1
kind: List
items:
  - {kind: Deployment, metadata: {name: chat}, spec: {template: {spec: {containers: [
      {image: vllm/vllm-openai:v0.19.0, args: [--model, Qwen/Qwen3-8B, --max-model-len, "8192"]}]}}}}
  - {kind: Deployment, metadata: {name: code}, spec: {replicas: 2, template: {spec: {containers: [
      {image: vllm/vllm-openai:v0.19.0, args: [--model, Qwen/Qwen3-8B, --max-model-len, "4096"]}]}}}}
"""


def plans(path: Path, text: str) -> list[Plan]:
    path.write_text(text)
    found = [one.plan for one in started_readings(str(path), "h100")]
    assert None not in found
    return [plan for plan in found if plan is not None]


def words(mark: Mark | None, text: str) -> tuple[int, str]:
    """(line, what the caret stands under)."""
    assert mark is not None
    row = text.splitlines()[mark.line - 1]
    assert mark.shown == row
    return mark.line, row[mark.column - 1 : mark.end_column - 1]


@pytest.mark.parametrize(
    ("field", "line", "shown"),
    [
        ("model", 3, "meta-llama/Llama-3.3-70B-Instruct"),
        ("serve.tensor_parallel_size", 4, "--tensor-parallel-size"),
        ("serve.quantization", 4, "-q"),
        ("serve.max_model_len", 5, "--max-model-len"),
        ("gpu", 3, "meta-llama/Llama-3.3-70B-Instruct"),
        (None, 3, "meta-llama/Llama-3.3-70B-Instruct"),
    ],
)
def test_an_option_in_a_script(tmp_path: Path, field: str | None, line: int, shown: str) -> None:
    [plan] = plans(tmp_path / "run.sh", SCRIPT)
    assert words(plan.mark(field), SCRIPT) == (line, shown)


def test_two_servers_of_one_manifest(tmp_path: Path) -> None:
    chat, code = plans(tmp_path / "two.yaml", TWO)
    assert words(chat.mark("serve.max_model_len"), TWO) == (5, "--max-model-len")
    assert words(code.mark("serve.max_model_len"), TWO) == (7, "--max-model-len")
    assert words(code.mark(None), TWO) == (6, "code")
    assert words(code.mark("replicas"), TWO) == (6, "replicas")


def test_no_place_lies_outside_of_the_text(tmp_path: Path) -> None:
    texts = {
        "run.sh": SCRIPT,
        "two.yaml": TWO,
        "win.bat": SCRIPT.replace("\n", "\r\n").replace("\\\r", "^\r"),
    }
    for name, text in texts.items():
        for plan in plans(tmp_path / name, text):
            for mark in plan.marks.values():
                words(mark, text)


def test_an_error_points_into_the_text(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    text = SCRIPT.replace("70B-Instruct", "71B-Instruct").replace("16384", "16384 --gpu-memory-utilization 9")
    path.write_text(text)
    [reading] = started_readings(str(path), "h100")
    marks = [one for error in reading.errors for one in error.places if isinstance(one, Mark)]
    assert marks
    for mark in marks:
        words(mark, text)
