"""llama.cpp's compute buffer: logits of the slots' tokens, and copies of what lies in host memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.results import BudgetLine
from kvplan.units import MIB

ASKED: dict[str, Any] = {"engine": "llamacpp", "quantization": "q4_0", "gpu": "rtx-4090", "parallel": 1}


def _line(model: str, **options: Any) -> BudgetLine:
    budget = kvplan.size(model, **{**ASKED, **options}).budget
    assert budget is not None
    return next(line for line in budget.lines if line.name == "compute buffer")


@pytest.mark.parametrize(("layers", "printed"), [(33, 140), (15, 248), (16, 248), (0, 248)])
def test_an_eight_billion_model_on_a_small_card(layers: int, printed: int) -> None:
    """What llama-server printed for Hermes 3 of Llama 3.1 8B in Q4_0, -c 32768 -np 1 -ub 512, on an RTX 2060
    (its memory breakdown, June 2026)."""
    line = _line("llama-3.1-8b", ctx_size=32768, tokens=32768, n_gpu_layers=layers)
    assert line.low_bytes <= printed * MIB <= line.high_bytes
    assert abs(line.bytes - printed * MIB) <= printed * MIB * 6 // 100


def test_copies_are_named_where_there_are_any() -> None:
    whole = _line("llama-3.1-8b", ctx_size=8192, tokens=8192, n_gpu_layers=99)
    part = _line("llama-3.1-8b", ctx_size=8192, tokens=8192, n_gpu_layers=20)
    assert "host memory" not in whole.source
    assert "copies of what lies in host memory" in part.source


def test_experts_are_copied_a_matrix_at_a_time() -> None:
    """The largest matrix of all experts of a layer, whatever the context."""
    for tokens in (4096, 32768):
        asked = {"ctx_size": tokens, "tokens": tokens, "quantization": "q8_0", "gpu": "h200"}
        whole = _line("qwen3-30b-a3b", n_gpu_layers=99, **asked)
        part = _line("qwen3-30b-a3b", n_cpu_moe=4, **asked)
        assert part.bytes - whole.bytes == 128 * 768 * 2048 * 34 // 32


def test_without_offload_of_the_cache_nothing_of_it_is_copied() -> None:
    asked = {"ctx_size": 65536, "tokens": 65536, "host_memory": "64GiB"}
    assert _line("llama-3.1-8b", kv_offload=False, **asked) == _line("llama-3.1-8b", n_gpu_layers=99, **asked)


@given(st.integers(0, 32), st.integers(1, 8), st.sampled_from([128, 512, 2048]))
@settings(max_examples=25, deadline=None)
def test_more_in_host_memory_never_makes_it_smaller(layers: int, slots: int, ubatch: int) -> None:
    """Laws: whole is the least; more slots have more logits; the high end holds builds with all logits."""
    asked = {"ctx_size": 8192 * slots, "tokens": 8192, "parallel": slots, "ubatch_size": ubatch}
    whole = _line("llama-3.1-8b", n_gpu_layers=33, **asked)
    part = _line("llama-3.1-8b", n_gpu_layers=layers, **asked)
    assert whole.bytes <= part.bytes
    assert whole.high_bytes >= 128_256 * min(ubatch, 8192 * slots) * 4
