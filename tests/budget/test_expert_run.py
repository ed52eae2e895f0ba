"""The buffers of routed experts: laws over releases, GPUs, ranks and tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.expert_run import expert_bytes, expert_run

RELEASES = ((0, 8), (0, 10), (0, 11), (0, 12), (0, 17), (0, 18), (0, 20), (0, 33))
FORMATS = (None, "fp8", "mxfp4", "nvfp4", "modelopt", "awq")
CAPABILITIES = ((8, 0), (9, 0), (10, 0), (12, 0))
SHAPES = st.builds(
    Shape,
    hidden_size=st.integers(64, 16_384),
    vocab_size=st.just(1000),
    mlp_width=st.just(0),
    expert_width=st.integers(16, 16_384),
    experts_per_token=st.integers(1, 32),
)
TOKENS = st.integers(1, 131_072)
RANKS = st.sampled_from((1, 2, 4, 8, 16))
ASKED: dict[str, Any] = {
    "release": st.sampled_from(RELEASES),
    "stored": st.sampled_from(FORMATS),
    "capability": st.sampled_from(CAPABILITIES),
}


def taken(
    shape: Shape, tokens: int, dp: int, *, release: Any, stored: Any, capability: Any, ways: int = 1
) -> int:
    """Whole experts on each rank (expert parallelism) unless ``ways`` divide them."""
    run = expert_run(stored, release, capability, dp=dp, expert_parallel=ways == 1)
    return expert_bytes(shape, run, tokens=tokens, ways=ways, dp=dp)


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_more_ranks_bring_their_tokens(shape: Shape, tokens: int, dp: int, asked: dict[str, Any]) -> None:
    """Whole experts see every rank's tokens: never less than twice as few ranks."""
    assert taken(shape, tokens, 2 * dp, **asked) >= taken(shape, tokens, dp, **asked)


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_all_ranks_tokens_are_exchanged_in_two_copies_at_least(
    shape: Shape, tokens: int, dp: int, asked: dict[str, Any]
) -> None:
    found = taken(shape, tokens, dp, **asked)
    assert found >= (2 * tokens * dp * shape.hidden_size * shape.element_bytes if dp > 1 else 0)


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_more_tokens_never_take_less(shape: Shape, tokens: int, dp: int, asked: dict[str, Any]) -> None:
    assert taken(shape, tokens + 1, dp, **asked) >= taken(shape, tokens, dp, **asked)


@given(SHAPES, st.integers(1, 8192), RANKS, st.fixed_dictionaries(ASKED))
def test_without_chunks_a_rank_has_the_whole_product_of_every_tokens_experts(
    shape: Shape, tokens: int, dp: int, asked: dict[str, Any]
) -> None:
    """Since 0.18: rows of all ranks · experts of a token · both products, the first in 8 bits at least."""
    asked["release"] = max(asked["release"], (0, 18))
    least = shape.expert_width + shape.hidden_size * shape.element_bytes
    assert taken(shape, tokens, dp, **asked) >= tokens * dp * shape.experts_per_token * least


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_dividing_an_experts_width_never_takes_more(
    shape: Shape, tokens: int, dp: int, asked: dict[str, Any]
) -> None:
    assert taken(shape, tokens, dp, ways=8, **asked) <= taken(shape, tokens, dp, **asked)


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_a_dense_model_has_none(shape: Shape, tokens: int, dp: int, asked: dict[str, Any]) -> None:
    assert taken(replace(shape, experts_per_token=0), tokens, dp, **asked) == 0
