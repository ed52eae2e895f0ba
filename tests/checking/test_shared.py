"""Servers on one GPU are judged together."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvplan
from kvplan.plans.findings import Finding, Severity

FILE = """
services:
  one:
    image: {image}
    command: {command} Qwen/Qwen3-8B {length} 8192 {share} {first}
    environment: [NVIDIA_VISIBLE_DEVICES=0]
  two:
    image: {image}
    command: {command} Qwen/Qwen3-0.6B {length} 8192 {share} {second}
    environment: [NVIDIA_VISIBLE_DEVICES={device}]
"""
VLLM = {
    "image": "vllm/vllm-openai:v0.33.0", "command": "--model", "length": "--max-model-len",
    "share": "--gpu-memory-utilization",
}  # fmt: skip
SGLANG = {
    "image": "lmsysorg/sglang:v0.5.23", "command": "python -m sglang.launch_server --model-path",
    "length": "--context-length", "share": "--mem-fraction-static",
}  # fmt: skip


def shared(folder: Path, words: dict[str, str], first: str, second: str, device: int = 0) -> list[Finding]:
    path = folder / "compose.yaml"
    path.write_text(FILE.format(**words, first=first, second=second, device=device), encoding="utf-8")
    plans = kvplan.check(path, gpu="h100").plans
    return [finding for plan in plans for finding in plan.findings if finding.code == "shared-gpu"]


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [("0.6", "0.5", Severity.ERROR), ("0.6", "0.3", Severity.NOTE)],
)
def test_shares_of_one_gpu_are_added(tmp_path: Path, first: str, second: str, severity: Severity) -> None:
    (finding,) = shared(tmp_path, VLLM, first, second)
    assert finding.severity is severity
    assert ("would not start" in finding.message) is (severity is Severity.ERROR)


def test_servers_on_gpus_of_their_own_share_nothing(tmp_path: Path) -> None:
    assert shared(tmp_path, VLLM, "0.9", "0.9", device=1) == []


def test_a_share_of_what_is_free_is_not_added(tmp_path: Path) -> None:
    (finding,) = shared(tmp_path, SGLANG, "0.5", "0.6")
    assert finding.severity is Severity.WARNING
    assert "of what they leave free" in finding.message


def test_what_is_not_known_is_not_said_to_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.checking.shared._taken", lambda *_: None)
    (finding,) = shared(tmp_path, VLLM, "0.6", "0.3")
    assert finding.severity is Severity.WARNING
    assert "not known" in finding.message
