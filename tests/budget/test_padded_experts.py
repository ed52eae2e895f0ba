"""Rows of experts that vLLM pads on AMD's GPUs, and what that leaves in torch's allocator."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.memory.padded_experts import PADDED
from kvplan.results import BudgetLine
from kvplan.units import GIB, MIB

MODEL = "Qwen/Qwen3-30B-A3B-Instruct-2507"
LAYERS = 48


def _line(
    model: str = MODEL, release: str = "0.28", gpu: str = "mi300x", **options: Any
) -> BudgetLine | None:
    asked: dict[str, Any] = {"max_model_len": 8192, **options}
    result = kvplan.size(model, engine=f"vllm@{release}", gpu=gpu, **asked)
    assert result.budget is not None
    return next((line for line in result.budget.lines if line.name == PADDED), None)


def test_of_one_model_by_hand() -> None:
    """128 experts: 1,536 rows of 4,096 bytes and 2,048 of 1,536 a layer: 768 and 384 MiB, 48 and 64 more."""
    line = _line()
    assert line is not None
    padding = 128 * (1536 + 2048) * 256 * LAYERS
    holes = (768 - 384 - 64) * MIB * LAYERS
    assert padding == 112 * MIB * LAYERS
    assert (line.low_bytes, line.bytes, line.high_bytes) == (
        padding,
        padding + holes,
        padding + holes + holes // 3,
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpu": "h200"}, "other GPUs read them as they are"),
        ({"release": "0.24"}, "a later copy undid it"),
        ({"model": "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8"}, "quantised experts have kernels of their own"),
        ({"model": "qwen3-32b"}, "no experts"),
    ],
)
def test_where_nothing_is_padded(changes: dict[str, Any], why: str) -> None:
    assert _line(**changes) is None, why


@pytest.mark.parametrize(
    ("changes", "holes"),
    [
        ({"release": "0.26"}, 0),
        ({"pytorch_alloc_conf": "expandable_segments:True"}, 0),
        ({"release": "0.33"}, 320 * MIB * LAYERS),
    ],
)
def test_holes_count_since_0_27_and_are_given_back_page_by_page(changes: dict[str, Any], holes: int) -> None:
    line = _line(**changes)
    assert line is not None
    assert line.bytes - line.low_bytes == holes


def test_rows_that_do_not_divide_are_left() -> None:
    """DeepSeek-V2-Lite's 1,408 · 2 bytes are no multiple of 512: w2 stays, w13's block is given back."""
    line = _line("deepseek-v2-lite")
    assert line is not None
    assert line.bytes == line.low_bytes == 26 * 64 * 2 * 1408 * 256


def test_ranks_and_stages_share_it() -> None:
    """768 / 2 is no multiple of 512 bytes: w13 alone is padded; whole experts are as before."""
    alone, halves = _line(), _line(tp=2)
    experts, stages = _line(tp=2, enable_expert_parallel=True), _line(pp=2)
    assert alone is not None
    assert halves is not None
    assert experts is not None
    assert stages is not None
    assert halves.bytes == 128 * 768 * 256 * LAYERS + 128 * 2048 * 256 * LAYERS * (384 * 2 % 512 == 0)
    assert experts.bytes == stages.bytes == alone.bytes // 2


def test_a_start_that_printed_it() -> None:
    """An MI300X with 0.28 printed 86.81 GiB of cache; without the line the pool were 110 GiB."""
    result = kvplan.size(
        MODEL, engine="vllm@0.28", gpu="mi300x", max_model_len=8192, gpu_memory_utilization="0.9"
    )
    assert result.budget is not None
    low, high = result.budget.kv_pool_low_bytes, result.budget.kv_pool_high_bytes
    assert low <= 86.81 * GIB <= high
    assert result.budget.kv_pool_bytes <= 92 * GIB
