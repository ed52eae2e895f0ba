"""The encoder of images beside llama.cpp's model, against what logs printed of it.

Printed: ``load_hparams: model size``, ``alloc_compute_meta`` / ``reserve_compute_meta`` of CUDA0 and of the
CPU (the image itself, which the GPU has too), ``[mtmd] estimated worst-case memory usage of mmproj``.
"""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api.launching import import_launches, launched_plans
from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.llamacpp.memory.image_encoder import encoder_bytes, encoder_line
from kvplan.engines.llamacpp.options import LlamacppOptions
from kvplan.results import BudgetLine, SizeResult
from kvplan.units import MIB


def _line(model: str, *, flash: bool = True) -> BudgetLine:
    found = kvplan.load_model(model)
    (line,) = encoder_line(found, shape_of(found, 2), LlamacppOptions(mmproj=True, flash_attn=flash))
    return line


@pytest.mark.parametrize(
    ("model", "flash", "printed"),
    [
        ("qwen3.6-27b", True, 248.10),  # RTX 3090, Vulkan, Tesla P100
        ("qwen3.6-27b", False, 4657.81),  # P100: what it tried to allocate
        ("qwen3.5-4b", False, 4628.88),  # Tesla M10 under Ollama, without flash attention
        ("qwen3-vl-4b-instruct", True, 322.49),  # OpenCL
        ("qwen3.5-2b", True, 223.3),
    ],
)
def test_the_graph_is_the_one_that_was_printed(model: str, flash: bool, printed: float) -> None:
    line = _line(model, flash=flash)
    assert line.bytes / MIB == pytest.approx(printed, abs=0.06)
    assert line.low_bytes < line.bytes < line.high_bytes


@pytest.mark.parametrize(("model", "printed"), [("qwen3.5-0.8b", 161.3), ("gemma-4-31b-it", 149.0)])
def test_the_interval_has_what_was_printed(model: str, printed: float) -> None:
    """161.3 MiB of Qwen3.5-0.8B; of Gemma 4's 1,300.79 in all 1,144.8 are its file and 7 the CPU's."""
    line = _line(model)
    assert line.low_bytes <= printed * MIB <= line.high_bytes


@pytest.mark.parametrize(
    ("model", "mib"),
    [
        ("qwen3.6-27b", 887.99),
        ("gemma-3-4b-it", 811.8),  # mmproj-model-f16.gguf: 851,251,104 B
        ("gemma-4-31b-it", 1144.8),  # 1.118 GiB
    ],
)
def test_the_weights_are_those_of_the_file(model: str, mib: float) -> None:
    found = encoder_bytes(kvplan.load_model(model))
    assert found is not None
    assert found / MIB == pytest.approx(mib, rel=0.002)


def test_in_all_it_is_what_the_server_estimates() -> None:
    """Qwen3-VL-8B, F16: 1,502.33 MiB with the CPU's 24.93."""
    found = encoder_bytes(kvplan.load_model("qwen3-vl-8b-instruct"))
    assert found is not None
    line = _line("qwen3-vl-8b-instruct")
    assert (found + line.bytes) / MIB + 24.93 == pytest.approx(1502.33, rel=0.01)


def _asked(words: str) -> SizeResult:
    command = f"llama-server -hf bartowski/Qwen_Qwen3.5-9B-GGUF:Q4_K_M -c 8192 -np 1 {words}"
    (plan,) = launched_plans(import_launches(command), gpu="rtx-3060")
    serve: dict[str, Any] = dict(plan.serve)
    return kvplan.size(plan.model, engine="llamacpp", gpu="rtx-3060", settings=serve)


def _bytes_of(found: SizeResult) -> dict[str, int]:
    assert found.budget is not None
    return {line.name: line.bytes for line in found.budget.lines}


def test_where_the_encoder_lies() -> None:
    """--no-mmproj-offload: neither its weights nor its graph are on the GPU; --no-mmproj: nowhere."""
    whole, host, none = _asked(""), _asked("--no-mmproj-offload"), _asked("--no-mmproj")
    assert "image encoder" in _bytes_of(whole)
    assert "image encoder" not in {**_bytes_of(host), **_bytes_of(none)}
    assert _bytes_of(host)["weights"] == _bytes_of(none)["weights"] < _bytes_of(whole)["weights"]
    assert any("lies in host memory" in line for line in host.warnings)
    assert whole.budget is not None
    assert host.budget is not None
    more = host.budget.kv_pool_bytes - whole.budget.kv_pool_bytes
    size = encoder_bytes(kvplan.load_model("qwen3.5-9b"))
    assert size is not None
    assert more == size + _bytes_of(whole)["image encoder"]


def test_what_is_not_counted_is_said() -> None:
    """Gemma 4's E2B hears too: Ollama's log estimated 1,154 MiB of its encoders, 134 of them of sound."""
    found = kvplan.size("gemma4:e2b", engine="ollama", gpu="rtx-3060", tokens=8192)
    assert any("encoder of sound" in line for line in found.warnings)
    plain = kvplan.size("gemma3:4b", engine="ollama", gpu="rtx-3060", tokens=8192)
    assert not any("encoder of" in line for line in plain.warnings)
