"""What one GPU holds and what the whole model has are counted alike (one rule for both figures)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model
from kvplan.architectures.weights import sources_of
from kvplan.dtypes import BFLOAT16
from kvplan.weights.facts import weights_per_rank
from kvplan.weights.ranks import Parallel
from tests.laws.sampling import for_each

CARDS = sorted(path.stem for path in (Path(__file__).parents[2] / "model_cards").glob("*.yaml"))


@for_each("card", CARDS)
def test_one_gpu_has_the_total(card: str) -> None:
    """Routers in float32, a padded vocabulary, correction biases: in both or in none."""
    try:
        facts = weights_per_rank(sources_of(load_model(card)), Parallel(), BFLOAT16)
    except kvplan.KvplanError:
        return
    assert facts.bytes_per_gpu == facts.total_bytes


@given(
    st.sampled_from(["minimax-m2", "gpt-oss-20b", "glm-4.5-air", "qwen3-30b-a3b", "gpt2", "gemma-3-4b"]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2]),
    st.sampled_from([(8, 0), (9, 0), (12, 0)]),
)
def test_ranks_together_have_no_less_than_the_total(
    card: str, tp: int, pp: int, capability: tuple[int, int]
) -> None:
    parallel = Parallel(tp, pp, compute_capability=capability)
    try:
        facts = weights_per_rank(sources_of(load_model(card)), parallel, BFLOAT16)
    except kvplan.KvplanError:
        return
    assert sum(facts.bytes_per_rank) * tp >= facts.total_bytes
    assert facts.bytes_per_gpu <= facts.total_bytes


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.14", "sglang", "trtllm"])
@pytest.mark.parametrize("model", ["minimax-m2", "gpt-oss-20b", "llama-3.1-8b", "mixtral-8x7b"])
def test_the_answer_says_the_same(model: str, engine: str) -> None:
    result: Any = kvplan.size(model, engine=engine, gpu="b200")
    assert result.weights is not None
    assert result.weights.bytes_per_gpu == result.weights.total_bytes
    assert result.budget.lines[0].bytes == result.weights.bytes_per_gpu
