"""Ranks over which a matrix of the decoder does not divide: refused, with ranks that start."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.results import Refusal

DENSE: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "head_dim": 64,
    "hidden_size": 512,
    "intermediate_size": 3 * 5 * 7 * 64,
    "max_position_embeddings": 4096,
    "dtype": "bfloat16",
}
ENGINES = ("vllm", "sglang")


def refused(model: Any, tp: int, engine: str, **options: Any) -> Refusal | None:
    return kvplan.size(
        model, engine=engine, gpu="b300", tensor_parallel_size=tp, tokens=16, **options
    ).refusal


@given(
    st.integers(1, 48),
    st.integers(1, 4),
    st.integers(1, 1200),
    st.integers(1, 16),
    st.sampled_from(ENGINES),
)
def test_ranks_start_where_everything_divides(kv: int, group: int, words: int, tp: int, engine: str) -> None:
    """Heads, KV heads (or repeated), the perceptron and the vocabulary in whole 64s."""
    config = {**DENSE, "num_attention_heads": kv * group, "num_key_value_heads": kv, "vocab_size": words}
    padded = -(-words // 64) * 64
    divides = kv * group % tp == 0 and (kv % tp == 0 or tp % kv == 0) and padded % tp == 0
    refusal = refused(config, tp, engine)
    assert (refusal is None) == (divides and DENSE["intermediate_size"] % tp == 0)
    if refusal is not None:
        assert refusal.code == "tensor-parallel"
        assert refused(config, int(refusal.help[0].removeprefix("--tp ")), engine) is None


@pytest.mark.parametrize(
    ("engine", "name", "tp", "words", "ways"),
    [
        ("sglang", "phi-4", 4, "10 KV heads", "--tp 2"),
        ("sglang", "gemma-3-1b", 8, "4 attention heads", "--tp 4"),
        ("sglang", "qwen3-8b", 3, "32 attention heads", "--tp 2"),
        ("sglang", "deepseek-v4-flash", 16, "8 of o_groups", "--tp 8"),
        ("vllm", "deepseek-v4-flash", 16, "8 of o_groups", "--tp 8"),
        ("vllm", "kimi-k3", 12, "163,840 words of the vocabulary", "--tp 8"),
    ],
)
def test_what_does_not_divide_is_named(engine: str, name: str, tp: int, words: str, ways: str) -> None:
    refusal = refused(name, tp, engine)
    assert refusal is not None
    assert refusal.message == f"{words} cannot be divided over {tp} tensor-parallel ranks"
    assert refusal.help == (ways,)


def test_attention_in_groups_is_divided_among_fewer() -> None:
    """Four of sixteen ranks share the 20 heads of GLM-4.7-Flash; sixteen would not."""
    groups = {"enable_dp_attention": True, "data_parallel_size": 4}
    assert refused("glm-4.7-flash", 16, "sglang", **groups) is None
    alone = refused("glm-4.7-flash", 16, "sglang")
    assert alone is not None
    assert alone.message.startswith("20 attention heads")


def test_an_encoder_alone_refuses_nothing_under_sglang() -> None:
    """Its classes differ in what they divide of an encoder: the weights are not known then, no more."""
    assert refused("glm-4.5v", 8, "sglang") is None
