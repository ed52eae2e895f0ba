"""A maker's own FP8 build, known by its name, over ranks that would cut its blocks."""

from __future__ import annotations

import kvplan
from kvplan.results import SizeResult

ASSEMBLED = "Qwen/Qwen3.8-Flash-Next-FP8"  # of a model whose config was put together from copies


def asked(model: str, engine: str, tp: int) -> SizeResult:
    return kvplan.size(model, engine=engine, gpu="h200", tensor_parallel_size=tp, max_model_len=4096)


def test_cut_experts_of_a_model_that_was_put_together_are_refused() -> None:
    """640 numbers over 8 ranks are 80, which no block from 32 on divides (vllm-project/vllm#54178)."""
    result = asked(ASSEMBLED, "vllm@0.31", 8)
    assert result.refusal is not None
    assert result.refusal.code == "tensor-parallel"
    assert "the width of an expert would be 80" in result.refusal.message


def test_blocks_that_divide_are_answered() -> None:
    assert asked(ASSEMBLED, "vllm@0.31", 4).refusal is None
    assert asked("Qwen/Qwen3-30B-A3B-FP8", "sglang", 2).refusal is None


def test_another_builder_s_is_warned_of() -> None:
    """Which matrices he spares, and whether he pads them, his build's name does not say."""
    result = asked("RedHatAI/Qwen3-30B-A3B-FP8-block", "vllm@0.19", 8)
    assert result.refusal is None or result.refusal.code != "tensor-parallel"
