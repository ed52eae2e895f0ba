"""TensorRT-LLM's KVCacheManagerV2: one pool for alike windows, grains, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.engines.trtllm.v2 import Cycle, grain_of
from kvplan.errors import KvplanError
from kvplan.results import SizeResult
from kvplan.units import GIB, MIB, round_up
from tests.engines.test_trtllm import SMALL, WINDOWS

BOTH = "128,131072"


def ask(model: Any, **options: Any) -> SizeResult:
    return kvplan.size(model, engine="trtllm", settings={"use_kv_cache_manager_v2": True}, **options)


@pytest.mark.parametrize(
    ("quota", "grain"),
    [
        (GIB // 2, 2), (GIB, 2), (2 * GIB - 1, 2), (2 * GIB, 4), (4 * GIB, 8), (8 * GIB, 16),
        (16 * GIB, 32), (100 * GIB, 32),
    ],
)  # fmt: skip
def test_grains(quota: int, grain: int) -> None:
    """2 MiB << int(log2(quota / 1 GiB)), at most four times."""
    assert grain_of(quota) == grain * MIB


@given(st.integers(1, 400), st.one_of(st.none(), st.integers(1, 200)), st.sampled_from([1, 2, 16, 32]))
def test_blocks_are_those_that_the_next_token_sees(tokens: int, window: int | None, block: int) -> None:
    """Counted: a block is given back when all its positions lie behind the window of the next token."""
    cycle = Cycle(window, (1,), 1)
    first = 0 if window is None else max(0, tokens + 1 - window)
    blocks = {position // block for position in range(tokens)}
    kept = {index for index in blocks if (index + 1) * block > first}
    # Where the window ends with the last position, nothing but the next token's own block would be left.
    assert cycle.held(tokens, block) == len(kept)


@pytest.mark.parametrize("memory", [3 * GIB + 12345, 7 * GIB, 20 * GIB + 1, 700 * MIB])
def test_one_pool_takes_the_quota_rounded_up(memory: int) -> None:
    pool = ask(SMALL, tokens=100, kv_cache_memory=memory, max_model_len=8192).pool
    assert pool is not None
    block = 32 * 28_672
    assert pool.bytes_per_block == block
    assert pool.num_blocks == round_up(memory, grain_of(memory)) // block
    assert pool.kv_tokens == pool.num_blocks * 32


def test_windows_whose_blocks_are_alike_share_one_pool() -> None:
    """gpt-oss: as many layers with a window as without. The other manager gives each window half."""
    memory, tokens = 24 * GIB, 8192
    pool = ask(WINDOWS, tokens=tokens, kv_cache_memory=memory, max_attention_window=BOTH).pool
    assert pool is not None
    half = 12 * 2048 * 32
    blocks = round_up(memory, 32 * MIB) // half
    assert [group.page_bytes for group in pool.groups] == [half, half]
    assert pool.num_blocks == blocks
    windowed = -(-tokens // 32) - (tokens + 1 - 128) // 32
    assert pool.requests_that_fit == blocks // (tokens // 32 + windowed)
    first = kvplan.size(
        WINDOWS,
        engine="trtllm",
        tokens=tokens,
        kv_cache_memory=memory,
        settings={"max_attention_window": BOTH},
    ).pool
    assert first is not None
    assert pool.requests_that_fit > 1.8 * first.requests_that_fit


def test_unlike_windows_divide_the_quota_by_their_blocks() -> None:
    """Three layers of four with a window: their pool has three quarters of the bytes."""
    model = {**WINDOWS, "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 6}
    memory = 16 * GIB
    pool = ask(model, tokens=1000, kv_cache_memory=memory, max_attention_window="128,128,128,131072").pool
    assert pool is not None
    assert [(group.kind, group.layers) for group in pool.groups] == [("window", 18), ("full", 6)]
    assert pool.num_blocks == memory // 4 // (6 * 2048 * 32)


def test_a_latent_is_one_buffer_and_unlike_heads_are_two_pools() -> None:
    latent = ask("deepseek-v3", tokens=64, kv_cache_memory="8GiB", max_model_len=4096).pool
    assert latent is not None
    assert latent.bytes_per_block == 61 * 576 * 2 * 64
    assert latent.num_blocks == 8 * GIB // latent.bytes_per_block


def test_the_length_is_what_resumes() -> None:
    """max_seq_len falls to 95 % of what one sequence can have."""
    memory = 28_672 * 32 * 1000
    refused = ask(SMALL, tokens=32_000, kv_cache_memory=memory, max_model_len=32_768).refusal
    blocks = round_up(memory, 2 * MIB) // (28_672 * 32)
    assert refused is not None
    assert refused.code == "request-too-long"
    assert refused.largest_max_model_len == blocks * 32 * 95 // 100
    assert ask(SMALL, tokens=refused.largest_max_model_len, kv_cache_memory=memory, max_model_len=32_768).ok


def test_max_tokens_leave_room_to_resume() -> None:
    few = ask(SMALL, tokens=100, kv_cache_memory="40GiB", max_tokens=100_000, max_model_len=4096).pool
    assert few is not None
    quota = -(-100_000 * 28_672 * 100 // 95)
    assert few.num_blocks == round_up(quota, grain_of(quota)) // (28_672 * 32)


def test_stages_divide_the_layers() -> None:
    """28 layers on 3 stages: the stage of ten decides, and all stages hold the request."""
    pool = ask(SMALL, tokens=100, kv_cache_memory="4GiB", pp=3, max_model_len=4096).pool
    assert pool is not None
    assert pool.num_blocks == 4 * GIB // (10 * 1024 * 32)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("qwen3-next-80b-a3b", {}, "no states"),
        ("deepseek-v3.2", {}, "index keys"),
        (SMALL, {"kv_cache_dtype": "nvfp4", "gpu": "b200"}, "nvfp4"),
        (SMALL, {"max_attention_window": BOTH, "window_size_shares": "0.5,0.5"}, "window_size_shares"),
        ("deepseek-v3", {"speculative_method": "mtp", "num_speculative_tokens": 1}, "speculation"),
    ],
)
def test_what_is_not_known_is_refused(model: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(KvplanError) as refused:
        ask(model, tokens=100, **options)
    assert words in refused.value.message


@given(st.integers(64 * MIB, 200 * GIB), st.sampled_from([None, BOTH, "128,128,128,131072"]))
def test_pools_stay_within_the_rounded_quota(memory: int, window: str | None) -> None:
    result = ask(WINDOWS, tokens=1, kv_cache_memory=memory, max_attention_window=window)
    pool = result.pool
    if pool is None:
        return
    assert pool.num_blocks * pool.bytes_per_block <= round_up(memory, grain_of(memory)) + 64 * MIB
    assert pool.requests_that_fit >= pool.max_requests
