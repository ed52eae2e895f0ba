"""LoRA: Inductor's benchmarks copy the adapters of the embedding as they copy its table."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.memory import COMPILE
from kvplan.units import GIB

START: dict[str, Any] = {
    "engine": "vllm@0.33", "gpu": "rtx-4090-24gb", "compile_cache": "cold",
    "max_model_len": 8192, "max_num_batched_tokens": 2048,
}  # fmt: skip


def _line(name: str, **options: Any) -> int:
    result = kvplan.size("Qwen/Qwen3-4B", **START, **options)
    assert result.budget is not None
    return sum(line.bytes for line in result.budget.lines if line.name == name)


PEAKS = {1: 0.80, 8: 0.83, 16: 0.87, 64: 1.09}
"""Slots of rank 16 → the peak of a cold start as printed, GiB (held_out.yaml, a5-q3-4b-4090-lora-…)."""


@pytest.mark.parametrize("slots", list(PEAKS))
def test_the_peak_of_a_cold_start_grows_with_the_slots(slots: int) -> None:
    def compiled(count: int) -> int:
        return _line(COMPILE, enable_lora=True, max_loras=count, max_lora_rank=16)

    grown = (compiled(slots) - compiled(1)) / GIB
    assert grown == pytest.approx(PEAKS[slots] - PEAKS[1], abs=0.01)


def test_not_where_the_embedding_takes_no_adapters() -> None:
    aimed = _line(COMPILE, enable_lora=True, max_loras=64, max_lora_rank=16, lora_target_modules=["qkv_proj"])
    assert aimed == _line(COMPILE)
