"""Copies between two GPUs, over a stand-in: measured where the other is free, left alone where it is not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvplan.files.gpus.nvml import NvmlGpu, Process
from kvplan.plans.receipt import REPORTED
from kvplan.proof.validate.stages import bandwidth
from kvplan.proof.validate.stages.base import Bench

torch = pytest.importorskip("torch", reason="torch is not installed")
GIB = 1 << 30


def bench_on(device: str, patch: pytest.MonkeyPatch, *, gpus: int = 2, direct: bool = True) -> Bench:
    """Two GPUs whose tensors lie in host memory; what is made is noted."""
    patch.setattr(torch.cuda, "device_count", lambda: gpus)
    patch.setattr(torch.cuda, "can_device_access_peer", lambda one, two: direct)

    def in_host_memory(*size: Any, device: str, **named: Any) -> Any:
        assert device.startswith("cuda:")
        return torch.zeros(*size, **named)

    patch.setattr(torch, "empty", in_host_memory)
    on: Any = SimpleNamespace(name=device, is_gpu=True)
    return Bench(on)


def run(bench: Bench) -> list[tuple[str, int | None]]:
    done: list[int] = []

    def speed(_: Bench, work: Callable[[], Any], moved: int) -> int:
        work()
        done.append(moved)
        return moved * 10

    bandwidth.measure_peer(bench, torch.arange(64), speed)
    assert done in ([], [512, 512])
    assert all(one.evidence == REPORTED for one in bench.figures)
    return [(one.name, one.measured) for one in bench.figures]


def gpu(**more: Any) -> NvmlGpu:
    return NvmlGpu(**{"name": "NVIDIA H200", "memory_bytes": 140 * GIB, "used_bytes": 0, **more})


def test_both_ways_are_measured_and_the_way_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "nvml_entry", lambda index: gpu())
    for direct, said in ((True, "GPU 1 and 0: peer access"), (False, "GPU 1 and 0: copies go through host")):
        bench = bench_on("cuda:1", monkeypatch, direct=direct)
        assert run(bench) == [("to_peer_bytes_per_second", 5120), ("from_peer_bytes_per_second", 5120)]
        assert bench.notes[0].startswith(said)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (None, "NVML does not say who is on GPU 1"),
        (gpu(processes=(Process(1, 1 << 20),)), "runs on NVIDIA H200"),
        (gpu(used_bytes=100 * GIB), ""),
    ],
)
def test_a_gpu_that_somebody_may_be_on_is_left_alone(
    entry: NvmlGpu | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth, "nvml_entry", lambda index: entry)
    bench = bench_on("cuda:0", monkeypatch)
    assert run(bench) == []
    assert "no copy between GPUs was measured" in bench.notes[0]
    assert said in bench.notes[0]


def test_one_gpu_has_no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_on("cuda:0", monkeypatch, gpus=1)
    assert run(bench) == []
    assert bench.notes == []
