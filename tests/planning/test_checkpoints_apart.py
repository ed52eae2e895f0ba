"""Checkpoints of one model are judged apart, though a search asks of many kinds of GPUs at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.gpu import Gpu
from kvplan.planning.search import search
from tests.laws.sampling import sampled
from tests.planning.asks import CAPABILITIES, a_gpu, an_ask

MODELS = (
    "qwen3-30b-a3b", "qwen3-235b-a22b", "glm-4.5-air", "deepseek-v2-lite", "gpt-oss-20b",
    "qwen3-next-80b-a3b", "qwen3-coder-30b-a3b", "minimax-m2", "mixtral-8x7b",
)  # fmt: skip
"""Those with experts, or with checkpoints in blocks: what is refused of one is not refused of another."""


@pytest.mark.laws
@sampled(2, 60)
@given(
    model=st.sampled_from(MODELS),
    gpus=st.lists(
        st.builds(a_gpu, st.sampled_from((16, 24, 48, 80, 141)), st.sampled_from(CAPABILITIES)),
        min_size=1,
        max_size=3,
        unique_by=lambda gpu: gpu.slug,
    ),
    engine=st.sampled_from(("vllm", "vllm@0.27", "sglang")),
    requests=st.sampled_from((4, 18, 64, 200)),
    tokens=st.sampled_from((2048, 8192)),
    quality=st.sampled_from(("lossless", "safe", "aggressive")),
)
def test_what_is_computed_once_is_what_the_engine_says_of_each(
    model: str, gpus: list[Gpu], engine: str, requests: int, tokens: int, quality: str
) -> None:
    """Laws that are compiled and shared, against the engine asked for every candidate."""
    compiled, asked = (
        search(
            an_ask(
                model, *gpus, engine=engine, requests=requests, tokens=tokens, quality=quality, max_gpus=16,
                compiled=shared,
            ),
            wanted=0,
        )
        for shared in (True, False)
    )  # fmt: skip
    assert [found.key for found in compiled.found] == [found.key for found in asked.found]
