"""Experts that FlashInfer's kernels keep wider than they are stored, and copies of experts.

Bytes on a rank: vLLM 0.33's own classes on the meta device (H200 beside B200), with FlashInfer present.
"""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.results import SizeResult

WIDTH = 128


def asked(model: str, **options: Any) -> SizeResult:
    return kvplan.size(model, max_model_len=4096, max_num_seqs=64, **options)


def weights(model: str, **options: Any) -> int:
    found = asked(model, **options).weights
    assert found is not None
    return found.bytes_per_gpu


def experts_bytes(layers: int, experts: int, hidden: int, more: int, matrices: int = 3) -> int:
    return layers * experts * matrices * hidden * more * 2


@pytest.mark.parametrize(
    ("model", "tp", "layers", "experts", "hidden", "width"),
    [
        ("qwen3-30b-a3b", 4, 48, 128, 2048, 768),
        ("qwen3-30b-a3b", 8, 48, 128, 2048, 768),
        ("qwen3-235b-a22b", 8, 94, 128, 4096, 1536),
        ("zai-org/GLM-4.5-Air", 4, 45, 128, 4096, 1408),
    ],
)
def test_a_share_is_padded_to_128_on_data_centre_blackwell(
    model: str, tp: int, layers: int, experts: int, hidden: int, width: int
) -> None:
    """oracle/unquantized.py: every expert's width on the rank is rounded up, that of no other matrix."""
    share = width // tp
    more = -share % WIDTH
    assert more
    plain = weights(model, gpu=f"h200x{tp}", tp=tp, engine="vllm@0.33")
    for gpu in ("b200", "b300", "gb200"):
        padded = weights(model, gpu=f"{gpu}x{tp}", tp=tp, engine="vllm@0.33")
        assert padded - plain == experts_bytes(layers, experts, hidden, more)


def test_nothing_is_padded_where_the_kernel_does_not_run() -> None:
    """Other GPUs, older releases, other kernels, whole experts, adapters and routes of its own."""
    model: dict[str, Any] = {"model": "qwen3-30b-a3b", "tp": 4}
    plain = weights(**model, gpu="h200x4", engine="vllm@0.33")
    for gpu in ("a100", "h100", "rtx-pro-6000"):
        assert weights(**model, gpu=f"{gpu}x4", engine="vllm@0.33") == plain
    b200: dict[str, Any] = {**model, "gpu": "b200x4"}
    assert weights(**b200, engine="vllm@0.23") == plain < weights(**b200, engine="vllm@0.24")
    for others in ({"moe_backend": "triton"}, {"enable_lora": True}, {"flashinfer": "absent"}):
        assert weights(**b200, engine="vllm@0.33", settings=others) == plain
    whole = weights(**b200, engine="vllm@0.33", enable_expert_parallel=True)
    assert whole == weights(**model, gpu="h200x4", engine="vllm@0.33", enable_expert_parallel=True)
    for route in ("olmoe-1b-7b", "phi-3.5-moe", "gemma-4-26b-a4b"):
        one: dict[str, Any] = {"model": route, "tp": 4, "engine": "vllm@0.33"}
        assert weights(**one, gpu="b200x4") == weights(**one, gpu="h200x4")


def test_no_line_of_an_unquantised_model_has_an_interval() -> None:
    found = asked("qwen3-30b-a3b", gpu="b200x4", tp=4, engine="vllm@0.33").budget
    assert found is not None
    line = found.lines[0]
    assert line.low_bytes == line.bytes == line.high_bytes
    assert "FlashInfer TRT-LLM" in line.source


def test_nvfp4_without_a_gate_is_an_interval() -> None:
    """flashinfer_fp4_moe.py pads them to 128 once they are loaded; the low end is as they are stored."""
    found = asked(
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", gpu="b200x2", tp=2, engine="vllm@0.33"
    ).budget
    assert found is not None
    line = found.lines[0]
    assert line.low_bytes < line.bytes == line.high_bytes


def test_redundant_experts_are_divided_with_the_others() -> None:
    """32 copies of 256 experts over 8 ranks: 36 a rank for 32 (models/deepseek_v2.py, n_physical_experts)."""
    options: dict[str, Any] = {
        "gpu": "h200x8",
        "tp": 8,
        "engine": "vllm@0.33",
        "enable_expert_parallel": True,
    }
    plain = weights("deepseek-ai/DeepSeek-V3.1", **options)
    copies = asked(
        "deepseek-ai/DeepSeek-V3.1", **options, settings={"enable_eplb": True, "num_redundant_experts": 32}
    )
    assert copies.weights is not None
    assert copies.weights.bytes_per_gpu == 95_359_949_856
    assert plain == 85_140_130_848
    assert copies.budget is not None
    balance = next(line for line in copies.budget.lines if line.name == "expert balancer")
    matrices = 3 * 36 * 7168 * 2048
    assert balance.bytes > matrices


@pytest.mark.parametrize(
    "settings", [{"enable_eplb": True}, {"num_redundant_experts": 16, "enable_expert_parallel": True}]
)
def test_the_balancer_wants_experts_on_several_ranks(settings: dict[str, Any]) -> None:
    result = asked("qwen3-30b-a3b", gpu="h200x4", tp=4, engine="vllm@0.33", settings=settings)
    assert result.refusal is not None
    assert result.refusal.code == "expert-parallel"


def test_wrappers_of_b12x_lie_beside_the_weights() -> None:
    """vllm-project/vllm#49476, 0.25.1 on an RTX PRO 6000: 52.89 GiB for the cache, 64.36 with Marlin."""
    options: dict[str, Any] = {
        "gpu": "rtx-pro-6000",
        "engine": "vllm@0.25",
        "kv_cache_dtype": "fp8",
        "max_model_len": 180_224,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 8,
        "gpu_memory_utilization": "0.92",
    }
    model = "nvidia/Qwen3.6-35B-A3B-NVFP4"
    asked_for = kvplan.size(model, **options, settings={"moe_backend": "flashinfer_b12x"}).budget
    marlin = kvplan.size(model, **options, settings={"moe_backend": "marlin"}).budget
    assert asked_for is not None
    assert marlin is not None
    assert asked_for.kv_pool_low_bytes < int(52.89 * 2**30) < asked_for.kv_pool_high_bytes
    assert abs(asked_for.kv_pool_bytes - int(52.89 * 2**30)) < 2 * 2**30
    assert marlin.kv_pool_low_bytes < int(64.36 * 2**30) < marlin.kv_pool_high_bytes
