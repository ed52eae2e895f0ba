"""Each line of a launch file beside what became of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.cli import main

FILE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 2
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}
      containers:
      - name: v
        image: vllm/vllm-openai:v0.12.0
        args:
        - --model=Qwen/Qwen3-8B
        - --max-model-len=8192
        - --made-up=1
        - --port=8000
        - --enable-log-requests
        resources: {limits: {nvidia.com/gpu: 1}}
        # --tensor-parallel-size=2
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
spec: {template: {spec: {containers: [{name: v, image: "vllm/vllm-openai:v0.12.0", args: [--model=/data]}]}}}
"""
SAID = {
    "replicas: 2": "counted",
    "nodeSelector": "counted",
    "image: vllm": "counted",
    "--model=Qwen": "counted",
    "--max-model-len": "counted",
    "--made-up": "not read",
    "--enable-log-requests": "changes nothing",
    "nvidia.com/gpu: 1": "counted",
    "# --tensor": "",
    "name: other": "refused",
    "kind": "",
}


def test_each_line_says_what_became_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text(FILE, encoding="utf-8")
    assert main(["import", str(path), "-v", "--color", "never"]) == 0
    captured = capsys.readouterr()
    rows = [row for row in captured.out.splitlines() if row.strip()]
    assert len(rows) == len(FILE.splitlines())
    for text, word in SAID.items():
        found = [row[:15].strip() for row in rows if text in row]
        assert set(found) == {word}, (text, found)
    assert "left out: other" in captured.err
