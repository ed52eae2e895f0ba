"""kvplan's Triton kernel compiles for each generation of GPUs, without one, where Triton is installed.

The calls are those of `attend_with_own`: their arguments are what Triton specializes by.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

import torch

from kvplan.proof.validate import triton_reader
from kvplan.proof.validate.engine_kernels import attend_with_engine
from tests.proof.test_attention import KINDS, answers, layout_of_kind


class Compiled:
    """Stands for the kernel: what would be launched is compiled instead."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.done = kernel, 0

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **named: Any) -> None:
            made = self.kernel.run(*arguments, grid=grid, warmup=True, **named)
            assert made.asm["cubin"]
            self.done += 1

        return launch


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    compiled = Compiled(triton_reader._kernel.__wrapped__())
    monkeypatch.setattr(triton_reader, "_kernel", lambda: compiled)
    monkeypatch.setattr("kvplan.proof.validate.engine_kernels.kernels_for", lambda _layout: None)
    return compiled


def on(capability: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    target = GPUTarget("cuda", capability, 32)
    without = SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        get_current_stream=lambda _device: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
    )
    monkeypatch.setattr(driver, "_active", without)


@pytest.mark.parametrize("capability", [80, 90, 100, 120])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "fp8_e4m3", "fp8_e5m2"])
def test_every_kind_of_layer(
    dtype: str, capability: int, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(capability, monkeypatch)
    old = capability < 89
    if dtype == "fp8_e5m2" and old:
        pytest.skip("Triton converts as the first capability of a process does: one process a capability")
    kinds = [kind for kind in KINDS if (kind, dtype) != ("MLA", "fp8_e5m2")]  # which no backend takes
    for kind in kinds:
        (one,) = answers(layout_of_kind(kind, "vllm", dtype), attend_with_engine)
        if dtype == "fp8_e4m3" and old:
            assert "type fp8e4nv not supported in this architecture" in one.note
        else:
            assert not one.note, (kind, one.note)
    assert compiled.done == (0 if dtype == "fp8_e4m3" and old else len(kinds))
