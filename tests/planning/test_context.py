"""The longest context, the front, and what the sensitivity looks at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.engines.traits import traits_of
from kvplan.planning.ask import FEWEST, Ask, Speed
from kvplan.planning.context import longest, request_of
from kvplan.planning.pareto import pareto_front
from kvplan.planning.search import search
from tests.planning.asks import a_gpu, an_ask, priced


def serves(ask: Ask, length: int, *, stretch: bool) -> bool:
    shapes = (request_of(length),) if stretch else ask.shapes
    return bool(search(replace(ask, shapes=shapes, lengths=(length,), objective=FEWEST), wanted=1).found)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(("llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "falcon-h1-7b", "gemma-3-4b")),
    st.sampled_from(("vllm", "sglang", "trtllm")),
    st.integers(8, 80),
    st.integers(1, 40),
    st.booleans(),
)
def test_one_block_more_does_not_fit(
    model: str, engine: str, memory: int, requests: int, stretch: bool
) -> None:
    ask = an_ask(
        model, priced(a_gpu(memory), None, 2), engine=engine, tokens=512, requests=requests,
        objective="context", tp=(1, 2), pp=(1,), kv_dtypes=("auto",), seqs=(1, 4, 64),
    )  # fmt: skip
    found = longest(ask, stretch=stretch)
    assert found is not None
    length, own = found.lengths[0], ask.variants[0].model.max_model_len or 0
    if found == ask:
        assert not serves(ask, traits_of(engine).usual_block if stretch else 512, stretch=stretch)
        return
    assert serves(ask, length, stretch=stretch)
    assert length == own or length % traits_of(engine).usual_block == 0
    assert longest(ask, length, stretch=stretch) == found
    if length < own:
        assert not serves(ask, length + traits_of(engine).usual_block, stretch=stretch)
        assert longest(ask, length + traits_of(engine).usual_block, stretch=stretch) is None


def test_the_longest_context_of_a_card() -> None:
    whole = kvplan.plan("llama-3.1-8b", requests=4, gpu="1xrtx-3090", objective="context", depth=False)
    part = kvplan.plan(
        "llama-3.1-8b", requests=4, tokens="4k", gpu="1xrtx-3090", objective="context", depth=False
    )
    assert whole.shapes[0].tokens == whole.options[0].max_model_len
    assert part.shapes[0].tokens == 4096 < whole.options[0].max_model_len < part.options[0].max_model_len
    stated = kvplan.plan(
        "llama-3.1-8b",
        requests=4,
        tokens="4k",
        gpu="1xrtx-3090",
        objective="context",
        max_model_len="8k",
        depth=False,
    )
    assert stated.options[0].max_model_len == 8192


def paced(*_: Any) -> Speed:
    """More ranks are faster, more requests slower."""
    settings_, running = _[2], _[3]
    seconds = 0.01 + running.requests / (1000 * settings_.tensor_parallel_size)
    return Speed((0.1, 0.1, 0.1), (seconds, seconds, seconds), (1.0, 1.0, 1.0))


def test_no_point_of_a_front_beats_another() -> None:
    ask = an_ask("gpt-oss-20b", a_gpu(24, (8, 9)), a_gpu(80), requests=8, speed=paced)
    points = pareto_front(ask)
    assert points
    for place, one in enumerate(points):
        assert not any(other.beats(one) for index, other in enumerate(points) if index != place)
    without = pareto_front(replace(ask, speed=None))
    assert {point.tpot for point in without} == {0}
    assert len(points) > len(without)  # those that are faster and hold less
    assert {point.found.gpus for point in points} >= {1, 2, 4, 8}


@pytest.mark.parametrize(("model", "shares"), [("llama-3.1-8b", True), ("gemma-3-27b", False)])
def test_sensitivity_looks_at_prefixes_and_sequences(model: str, shares: bool) -> None:
    result = kvplan.plan(model, requests=16, tokens="8k", gpu="h100")
    names = {effect.name for effect in result.sensitivity}
    assert "max_num_seqs" in names
    assert ("shared prefix" in names) == shares
