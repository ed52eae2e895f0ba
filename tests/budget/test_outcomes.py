"""Outcomes that others published, and where kvplan stands to them (docs/data/missed-starts.md)."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.results import SizeResult
from kvplan.units import GIB

BLOCK = 16


def asked(model: str, **options: Any) -> SizeResult:
    result = kvplan.size(model, **options)
    assert result.budget is not None
    return result


@pytest.mark.parametrize(("share", "stated"), [("0.70", 117_264), ("0.75", 195_968)])
def test_cards_in_slots_keep_less_than_boards(share: str, stated: int) -> None:
    """MiniMax-M2.7, TP 2 PP 2: the stated tokens, as bytes of the pool, lie in the interval."""
    result = asked(
        "MiniMaxAI/MiniMax-M2.7",
        gpu="rtx-pro-6000",
        tensor_parallel_size=2,
        pipeline_parallel_size=2,
        gpu_memory_utilization=share,
        max_model_len=32_768,
        engine="vllm@0.20",
    )
    assert result.pool is not None
    assert result.budget is not None
    needed = stated * result.budget.kv_pool_bytes // (result.pool.num_blocks * BLOCK)
    assert result.budget.kv_pool_low_bytes <= needed <= result.budget.kv_pool_high_bytes
    assert abs(needed - result.budget.kv_pool_bytes) <= GIB


def test_releases_before_0_11_sort_the_vocabulary() -> None:
    """vllm-project/vllm#19407: at most 3,861,424 tokens of Llama-4-Scout, whose chunks had no groups yet."""
    result = asked(
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        gpu="h200",
        tensor_parallel_size=8,
        disable_hybrid_kv_cache_manager=True,
        engine="vllm@0.9",
    )
    assert result.refusal is not None
    longest = result.refusal.largest_max_model_len
    assert longest is not None
    assert abs(longest - 3_861_424) <= 0.02 * 3_861_424


def test_a_model_of_70b_starts_on_one_mi300x() -> None:
    """vllm-project/recipes renders TP 1: at its full length or within four percent of it, and it may start.
    No start of 0.33 on such a GPU was read; one of 0.28 keeps 1.3 GiB outside torch."""
    result = asked("meta-llama/Llama-3.3-70B-Instruct", gpu="mi300x", engine="vllm@0.33")
    assert result.budget is not None
    assert result.budget.kv_pool_high_bytes >= result.per_gpu.kv_bytes_per_request
    assert result.refusal is None or (result.refusal.largest_max_model_len or 0) >= 0.96 * 131_072


@pytest.mark.parametrize("gpu", ["h20-96gb", "h20-141gb"])
@pytest.mark.parametrize("share", ["0.90", "0.95"])
def test_experts_over_data_parallel_ranks_of_an_h20_are_refused_at_full_length(gpu: str, share: str) -> None:
    result = of_the_coder(gpu, share)
    assert result.refusal is not None
    assert result.refusal.code == "not-enough-memory"


def test_what_an_h20_leaves_beside_all_ranks_tokens() -> None:
    """vllm-project/recipes#12: 55.65 GiB on a card of 141 GB at 0.95."""
    budget = of_the_coder("h20-141gb", "0.95").budget
    assert budget is not None
    assert abs(budget.kv_pool_bytes - 55.65 * GIB) <= 0.02 * 55.65 * GIB


def of_the_coder(gpu: str, share: str) -> SizeResult:
    return kvplan.size(
        "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8",
        gpu=gpu,
        data_parallel_size=8,
        enable_expert_parallel=True,
        gpu_memory_utilization=share,
        max_model_len=262_144,
        engine="vllm@0.10",
    )


def test_a_card_that_tells_no_memory_has_the_small_batch() -> None:
    """GB10: servers of 0.19 to 0.25 took 256 requests and 2,048 tokens."""
    result = asked("qwen3-8b", gpu="gb10", engine="vllm@0.25")
    assert (result.settings["max_num_seqs"], result.settings["max_num_batched_tokens"]) == (256, 2048)
    assert any("shares its memory" in text for text in result.warnings)
