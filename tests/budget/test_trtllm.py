"""TensorRT-LLM's budget: (total − peak) · fraction, with a wide interval."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.report.schema import answer_schema
from kvplan.results import Budget, SizeResult
from kvplan.units import GIB
from tests.report.schemas import answer_errors


def sized(model: Any = "llama-3.1-8b", **options: Any) -> SizeResult:
    return kvplan.size(model, **{"engine": "trtllm", "gpu": "h100", **options})


def budget_of(result: SizeResult) -> Budget:
    assert result.budget is not None
    return result.budget


@pytest.mark.parametrize("fraction", [None, "0.5", "1"])
def test_a_fraction_of_what_the_peak_leaves(fraction: str | None) -> None:
    result = sized(free_gpu_memory_fraction=fraction)
    budget, share = budget_of(result), Fraction(fraction or "0.9")
    free = budget.total_bytes - sum(line.bytes for line in budget.lines)
    assert budget.kv_pool_bytes == int(free * share)
    assert budget.unused_bytes == free - budget.kv_pool_bytes
    assert budget.kv_pool_high_bytes - budget.kv_pool_low_bytes > GIB
    assert result.settings["free_gpu_memory_fraction"] == float(share)
    assert result.pool is not None
    assert result.pool.bytes == budget.kv_pool_bytes
    assert any("uncalibrated" in text for text in result.warnings)
    assert answer_errors(answer_schema("size"), result.model_dump()) == []


def test_more_tokens_at_start_up_leave_less() -> None:
    small, large = sized(), sized(max_num_batched_tokens=65536)
    assert budget_of(large).kv_pool_bytes < budget_of(small).kv_pool_bytes


def test_a_model_that_is_too_large() -> None:
    result = sized("llama-3.3-70b")
    assert result.refusal is not None
    assert result.refusal.code == "no-memory-for-cache"
    assert "--tp 4" in result.refusal.help or "--tp 2" in result.refusal.help
    assert not any("gpu-memory-utilization" in way for way in result.refusal.help)


def test_fractions_and_attention_that_are_refused() -> None:
    for wrong in ("0", "1.1", "x"):
        with pytest.raises(KvplanError) as caught:
            sized(free_gpu_memory_fraction=wrong)
        assert caught.value.code == "bad-setting"
    asked = sized("llama-3.3-70b", gpu="h200", tp=8, enable_attention_dp=True)
    assert asked.budget is None
    assert any("--weights 15GiB" in text for text in asked.warnings)


def test_what_a_server_printed() -> None:
    """Llama-3-8B on an H200, 1.2.0rc4: a peak of 17.76 GiB and 109.96 GiB for the cache."""
    asked = {"gpu": "h200", "max_num_batched_tokens": 1024, "max_num_seqs": 32, "max_model_len": 1025}
    budget = budget_of(sized("llama-3-8b", **asked))
    peak = sum(line.bytes for line in budget.lines)
    assert abs(peak - 17.76 * GIB) < 0.2 * GIB
    assert budget.kv_pool_low_bytes < 109.96 * GIB < budget.kv_pool_high_bytes
    assert abs(budget.kv_pool_bytes - 109.96 * GIB) < 0.3 * GIB
