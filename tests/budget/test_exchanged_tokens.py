"""The estimate of CUDA graphs where data-parallel ranks exchange the tokens of experts."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.results import BudgetLine, SizeResult
from kvplan.units import GIB

M25: dict[str, Any] = {
    "model": "nvidia/MiniMax-M2.5-NVFP4",
    "gpu": "b200x2",
    "engine": "vllm@0.22",
    "max_model_len": 2304,
    "kv_cache_dtype": "fp8",
}
DEP: dict[str, Any] = {"dp": 2, "enable_expert_parallel": True}


def graphs(result: SizeResult) -> BudgetLine | None:
    assert result.budget is not None
    return next((line for line in result.budget.lines if line.name == "CUDA graphs"), None)


def test_the_interval_holds_a_published_start() -> None:
    """vllm-project/vllm#45178: 245,840 tokens with the estimate, 769,888 without it."""
    result = kvplan.size(**{**M25, **DEP})
    assert result.budget is not None
    assert result.pool is not None
    each = result.budget.kv_pool_bytes / result.pool.kv_tokens
    low, high = result.budget.kv_pool_low_bytes / each, result.budget.kv_pool_high_bytes / each
    assert low < 245_840 < result.pool.kv_tokens < 769_888 * 1.05 < high * 1.05
    assert any("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0" in text for text in result.warnings)


def test_without_the_estimate_the_pool_is_the_printed_one() -> None:
    result = kvplan.size(**{**M25, **DEP}, settings={"estimate_cudagraphs": False})
    assert graphs(result) is None
    assert result.pool is not None
    assert abs(result.pool.kv_tokens - 769_888) < 769_888 // 50
    beside = next(text for text in result.warnings if "lie beside the share" in text)
    assert float(beside.split("about ")[1].split(" GiB")[0]) < 3


def test_no_more_is_estimated_than_the_gpu_has() -> None:
    """Copies of every layer's tokens for 100 graphs are 680 GiB of DeepSeek-V3, eight ranks."""
    result = kvplan.size(
        "deepseek-v3", engine="vllm@0.30", gpu="h200x8", dp=8, enable_expert_parallel=True, max_model_len=8192
    )
    line = graphs(result)
    assert line is not None
    assert result.budget is not None
    assert line.high_bytes == result.budget.total_bytes
    assert "more than the GPU has" in line.source
    assert result.budget.kv_pool_low_bytes == 0 < result.budget.kv_pool_bytes
    assert any("and more of CUDA graphs" in text for text in result.warnings)


@pytest.mark.parametrize(("dp", "more"), [(2, 2), (4, 4)])
def test_the_upper_end_grows_with_the_ranks(dp: int, more: int) -> None:
    """layers · graphs · batch · ranks · hidden · 2 bytes, twice: 62 layers of 3,072, graphs up to 512."""
    options = {**M25, "gpu": f"b200x{dp}", "dp": dp, "enable_expert_parallel": True}
    line = graphs(kvplan.size(**options))
    alone = graphs(kvplan.size(**{**M25, "gpu": "b200x2"}, tp=2, enable_expert_parallel=True))
    assert line is not None
    assert alone is not None
    once = 62 * (50 + 50) * 512 * more * 3072 * 2
    assert line.high_bytes - alone.high_bytes == pytest.approx(2 * once, abs=GIB)
    assert line.low_bytes == pytest.approx(alone.low_bytes, abs=GIB)


@pytest.mark.parametrize(
    "options",
    [
        {"model": "qwen3-32b", "gpu": "h100x4", "dp": 2, "tp": 2},
        {"model": "qwen3-30b-a3b", "gpu": "h100x4", "tp": 4, "enable_expert_parallel": True},
    ],
)
def test_dense_models_and_tensor_parallel_ranks_exchange_none(options: dict[str, Any]) -> None:
    line = graphs(kvplan.size(engine="vllm@0.33", max_model_len=4096, **options))
    assert line is not None
    assert "exchange" not in line.source
