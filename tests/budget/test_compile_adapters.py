"""LoRA: Inductor's benchmarks copy the adapters of the embedding as they copy its table."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.memory.cold_compile import COMPILE
from kvplan.units import GIB

START: dict[str, Any] = {
    "engine": "vllm@0.33", "gpu": "rtx-4090-24gb", "compile_cache": "cold",
    "max_model_len": 8192, "max_num_batched_tokens": 2048,
}  # fmt: skip


def _line(name: str, model: str = "Qwen/Qwen3-4B", **options: Any) -> int:
    result = kvplan.size(model, **{**START, **options})
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


LOADED = {1: 7.63, 8: 8.17, 16: 8.78}
"""Slots of rank 16 → ``Model loading took`` of the same starts (0.27.1), GiB."""


@pytest.mark.parametrize("slots", list(LOADED))
def test_weights_with_adapters_as_a_server_of_0_27_printed_them(slots: int) -> None:
    options: dict[str, Any] = {
        "engine": "vllm@0.27.1",
        "enable_lora": True,
        "max_loras": slots,
        "max_lora_rank": 16,
    }
    names = ("weights", "beside the weights", "LoRA adapters", "rotary tables")
    assert sum(_line(name, **options) for name in names) / GIB == pytest.approx(LOADED[slots], abs=0.025)


def test_a_tied_head_was_wrapped_as_an_embedding_too_until_0_28() -> None:
    """One more A and B of the vocabulary a slot: of a tied Qwen3 alone, where a head is a target."""

    def adapters(model: str, release: str, **more: Any) -> int:
        asked: dict[str, Any] = {
            "engine": f"vllm@{release}",
            "enable_lora": True,
            "max_loras": 4,
            "gpu": "h100-sxm-80gb",
        }
        return _line("LoRA adapters", model, **asked, **more)

    pair = 4 * 16 * (151_936 + 2_560) * 2
    assert adapters("Qwen/Qwen3-4B", "0.27") == adapters("Qwen/Qwen3-4B", "0.28") + pair
    aimed = {"lora_target_modules": ["qkv_proj"]}
    assert adapters("Qwen/Qwen3-4B", "0.27", **aimed) == adapters("Qwen/Qwen3-4B", "0.33", **aimed)
    for model in ("Qwen/Qwen3-8B", "meta-llama/Llama-3.2-1B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"):
        assert adapters(model, "0.20") == adapters(model, "0.33")


@pytest.mark.parametrize("slots", list(LOADED))
def test_weights_that_a_log_prints_have_the_adapters_in_them(slots: int) -> None:
    options: dict[str, Any] = {"enable_lora": True, "max_loras": slots, "max_lora_rank": 16}
    counted, stated = (
        kvplan.size("Qwen/Qwen3-4B", **{**START, **options, "engine": "vllm@0.27.1", **more}).budget
        for more in ({}, {"weights": int(LOADED[slots] * GIB)})
    )
    assert counted is not None
    assert stated is not None
    assert "LoRA adapters" not in [line.name for line in stated.lines]
    assert stated.kv_pool_bytes / GIB == pytest.approx(counted.kv_pool_bytes / GIB, abs=0.08)
    assert _line(COMPILE, **options) == _line(COMPILE, **options, weights=8 * GIB), "what is copied stays"
