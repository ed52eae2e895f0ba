"""Laws that hold for every model under vLLM's rules, whatever the numbers are."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.model import Model
from kvplan.results import SizeResult
from tests.engines.vllm_cases import CONFIGS

MODELS: dict[str, Model] = {name: kvplan.load_model(config) for name, config in CONFIGS.items()}
names = st.sampled_from(sorted(MODELS))
lengths = st.integers(0, 4096)
GIB = 2**30


def size(model: Model, **options: Any) -> SizeResult:
    return kvplan.size(model, engine="vllm", **options)


def longest(model: Model) -> int:
    return int(size(model).settings["max_model_len"])


@given(names, lengths, lengths)
def test_bytes_never_fall_as_tokens_grow(name: str, one: int, other: int) -> None:
    model = MODELS[name]
    limit = longest(model)
    short, long = sorted((min(one, limit), min(other, limit)))
    assert size(model, tokens=short).per_gpu.kv_bytes_per_request <= (
        size(model, tokens=long).per_gpu.kv_bytes_per_request
    )


@given(st.integers(1, 4000), st.integers(0, 10**6))
def test_a_window_stops_growing(window: int, more: int) -> None:
    config = {**CONFIGS["mistral-window"], "sliding_window": window, "max_position_embeddings": 10**7}
    model = kvplan.load_model(config)
    # W - 1 settled tokens, two batches of 8,192 in flight.
    full = window - 1 + 2 * 8192
    at_limit, beyond = size(model, tokens=full), size(model, tokens=full + more)
    assert at_limit.per_gpu.kv_bytes_per_request == beyond.per_gpu.kv_bytes_per_request
    assert at_limit.per_gpu.reserved_bytes_per_request == beyond.per_gpu.reserved_bytes_per_request
    assert beyond.per_gpu.bytes_per_token == 0


@given(lengths, st.sampled_from([1, 2, 4, 8]))
def test_a_latent_does_not_shrink_with_tensor_parallelism(tokens: int, ranks: int) -> None:
    model = MODELS["deepseek-v3"]
    alone, split = size(model, tokens=tokens), size(model, tokens=tokens, tensor_parallel_size=ranks)
    assert alone.per_gpu.kv_bytes_per_request == split.per_gpu.kv_bytes_per_request
    assert split.total.kv_bytes_per_request == ranks * alone.total.kv_bytes_per_request


@given(st.sampled_from(["llama", "qwen3", "falcon", "deepseek-v2"]), lengths)
def test_rounding_is_less_than_a_block(name: str, tokens: int) -> None:
    result = size(MODELS[name], tokens=tokens, kv_cache_memory=GIB)
    assert result.pool is not None
    exact = result.per_gpu.bytes_per_token * tokens
    over = result.per_gpu.reserved_bytes_per_request - exact
    assert 0 <= over < result.pool.bytes_per_block


@given(names, st.integers(1, 64 * GIB))
def test_blocks_lie_within_the_memory(name: str, memory: int) -> None:
    result = size(MODELS[name], kv_cache_memory=memory)
    if result.pool is None:
        assert result.refusal is not None
        return
    pool = result.pool
    assert pool.num_blocks * pool.bytes_per_block <= memory < (pool.num_blocks + 1) * pool.bytes_per_block
    counted = result.per_gpu.reserved_bytes_per_request
    assert pool.requests_that_fit == (pool.num_blocks - 1) * pool.bytes_per_block // counted
    assert pool.max_requests == min(pool.requests_that_fit, pool.max_num_seqs)


@given(names, st.integers(1, 4 * GIB))
def test_the_named_length_fits_and_the_next_does_not(name: str, memory: int) -> None:
    model = MODELS[name]
    refusal = size(model, kv_cache_memory=memory).refusal
    if refusal is None or refusal.largest_max_model_len is None:
        return
    length = refusal.largest_max_model_len
    # Held to the scheduler settings of the whole length: a shorter one alone would schedule less.
    fixed = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024, "kv_cache_memory": memory}
    whole = size(model, **fixed).refusal
    if whole is not None and whole.largest_max_model_len == length:
        assert size(model, **fixed, max_model_len=length).ok or CONFIGS[name]["model_type"] == "whisper"
        assert not size(model, **fixed, max_model_len=length + 1).ok


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 8))
def test_groups_hold_every_layer_once(windows: int, full: int, stages: int) -> None:
    kinds = ["sliding_attention"] * windows + ["full_attention"] * full
    config = {**CONFIGS["olmo3"], "num_hidden_layers": len(kinds), "layer_types": kinds}
    result = size(kvplan.load_model(config), kv_cache_memory=8 * GIB)
    assert result.pool is not None
    groups = result.pool.groups
    assert sum(group.layers for group in groups) == windows + full
    assert max(group.layers for group in groups) * groups[0].page_bytes == result.pool.bytes_per_block


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_replica_is_the_sum_of_its_ranks(name: str) -> None:
    result = size(MODELS[name], tensor_parallel_size=2, requests=3)
    if result.refusal is None:
        one = result.per_gpu.kv_bytes_per_request
        assert result.total.kv_bytes_per_request == 2 * one
        assert result.total.kv_bytes == 2 * result.per_gpu.kv_bytes
        # Of three requests one at most is being read; those that answer hold less than they come to.
        assert (
            result.per_gpu.prompt_bytes_per_request
            <= result.per_gpu.kv_bytes
            <= 2 * one + max(one, result.per_gpu.prompt_bytes_per_request)
        )


def test_growth_is_exact() -> None:
    assert size(MODELS["llama"], tokens=5).per_gpu.bytes_per_token == Fraction(7 * 2 * 4 * 128 * 2)


def test_the_same_question_gets_the_same_answer() -> None:
    model = replace(MODELS["gemma3"])
    assert size(model, tokens=100).model_dump() == size(MODELS["gemma3"], tokens=100).model_dump()
