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


def judged(folder: Path, name: str, text: str) -> list[Finding]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    plans = kvplan.check(path, gpu="h100").plans
    assert len(plans) == 2
    return [finding for plan in plans for finding in plan.findings if finding.code == "shared-gpu"]


BOTH = ("vllm serve Qwen/Qwen3-8B --max-model-len 8192", "vllm serve Qwen/Qwen3-0.6B --max-model-len 8192")
DOCKER = "docker run -d --gpus {} vllm/vllm-openai:v0.33.0 --model {} --max-model-len 8192"


@pytest.mark.parametrize(
    ("lines", "shares"),
    [
        (f"{BOTH[0]} &\n{BOTH[1]} &\nwait", True),
        (f"{BOTH[0]} &\n{BOTH[1]}", True),
        (f"nohup {BOTH[0]} > a.log 2>&1 &\n{BOTH[1]} &", True),
        (DOCKER.format("all", "Qwen/Qwen3-8B") + "\n" + DOCKER.format(1, "Qwen/Qwen3-0.6B"), True),
        (f"{BOTH[0]}\n{BOTH[1]}", False),  # the second starts when the first has ended
        (f"{BOTH[0]} &\nkill $!\n{BOTH[1]} &", False),
        (f"CUDA_VISIBLE_DEVICES=0 {BOTH[0]} &\nCUDA_VISIBLE_DEVICES=1 {BOTH[1]} &", False),
        (f"CUDA_VISIBLE_DEVICES=MIG-1 {BOTH[0]} &\nCUDA_VISIBLE_DEVICES=MIG-2 {BOTH[1]} &", False),
        (f"CUDA_VISIBLE_DEVICES=MIG-1 {BOTH[0]} &\nCUDA_VISIBLE_DEVICES=MIG-1 {BOTH[1]} &", True),
        (f"CUDA_VISIBLE_DEVICES=$A {BOTH[0]} &\nCUDA_VISIBLE_DEVICES=$B {BOTH[1]} &", False),
        (f"ssh one '{BOTH[0]}' &\nssh two '{BOTH[1]}' &", False),
        (f"srun -N1 {BOTH[0]} &\nsrun -N1 {BOTH[1]} &", False),
    ],
)  # fmt: skip
def test_servers_that_are_given_no_gpu_take_the_first(tmp_path: Path, lines: str, shares: bool) -> None:
    found = judged(tmp_path, "serve.sh", f"#!/bin/bash\n{lines}\n")
    assert [one.severity for one in found] == [Severity.ERROR] * shares


@pytest.mark.parametrize(
    ("first", "second", "shares"),
    [
        ("gpus: 1", "gpus: 1", True),
        ("gpus: all", "gpus: [{driver: nvidia, count: 1}]", True),
        ("gpus: [{driver: nvidia, device_ids: ['1']}]", "gpus: 1", False),
        ("runtime: nvidia", "gpus: all", True),
        ("gpus: all\n    profiles: [small]", "gpus: all\n    profiles: [large]", False),
        ("restart: always", "gpus: all", False),  # nothing says that it sees one
        ("environment: [CUDA_VISIBLE_DEVICES=1]", "gpus: all", False),
    ],
)
def test_docker_shows_the_first_gpus(tmp_path: Path, first: str, second: str, shares: bool) -> None:
    """So two services with ``count: 1`` are on one."""
    services = "".join(
        f"  s{place}:\n    image: vllm/vllm-openai:v0.33.0\n    command: --model {model}"
        " --max-model-len 8192\n"
        f"    {line}\n"
        for place, (model, line) in enumerate([("Qwen/Qwen3-8B", first), ("Qwen/Qwen3-0.6B", second)])
    )
    found = judged(tmp_path, "compose.yaml", f"services:\n{services}")
    assert [one.severity for one in found] == [Severity.ERROR] * shares


def test_a_server_that_sleeps_leaves_room(tmp_path: Path) -> None:
    (finding,) = shared(tmp_path, VLLM, "0.9 --enable-sleep-mode", "0.9")
    assert finding.severity is Severity.WARNING
    assert "sleeps" in finding.message
