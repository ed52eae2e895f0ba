"""vLLM starts only where its share of the total is free: of memory that is shared it may not be."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.memory.rank_budget import FREE, free_line
from kvplan.files.gpus.find import load_gpu
from kvplan.results import SizeResult

GB10 = load_gpu("gb10")


def asked(share: str, **more: Any) -> SizeResult:
    options: dict[str, Any] = {"engine": "vllm@0.31", "gpu": GB10, "tokens": 32768, **more}
    return kvplan.size("Qwen/Qwen3-32B", gpu_memory_utilization=share, **options)


def test_what_every_machine_has_free_changes_nothing() -> None:
    budget = asked("0.83").budget
    assert budget is not None
    assert budget.kv_pool_low_bytes > 0
    assert FREE not in {line.name for line in budget.lines}


@pytest.mark.parametrize("share", ["0.85", "0.87", "0.92", "0.95"])
def test_what_some_have_is_likely_and_not_safe(share: str) -> None:
    """Of 121.69 GiB one had 104.46 free and was refused at 0.87; others started at 0.95."""
    result = asked(share)
    assert result.budget is not None
    assert result.budget.kv_pool_low_bytes == 0
    assert result.budget.kv_pool_bytes > 0
    assert result.verdict is not None
    assert result.verdict.value == "likely"
    assert any("--gpu-memory-utilization 0.83" in text for text in result.warnings)


def test_what_no_machine_had_is_unlikely() -> None:
    result = asked("0.97")
    assert result.budget is not None
    assert (result.budget.kv_pool_low_bytes, result.budget.kv_pool_bytes) == (0, 0)
    assert result.budget.kv_pool_high_bytes > 0


def test_the_named_share_starts_everywhere() -> None:
    total = GB10.memory_total_bytes
    assert total is not None
    lower = min(GB10.memory_free_seen) * 100 // total
    assert free_line(GB10, total, Fraction(lower, 100)) == ()
    assert free_line(GB10, total, Fraction(lower + 1, 100)) != ()


@pytest.mark.parametrize("name", ["h100", "rtx-4090", "mi300x"])
def test_memory_of_its_own_is_free(name: str) -> None:
    gpu = load_gpu(name)
    assert gpu.memory_total_bytes is not None
    assert free_line(gpu, gpu.memory_total_bytes, Fraction(1)) == ()
