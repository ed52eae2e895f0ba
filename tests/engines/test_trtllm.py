"""Engine ``trtllm``: the pools of public logs, windows, states, laws and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.engines.trtllm.engine import TrtLlm, plan_of
from kvplan.engines.trtllm.plan import pool_blocks
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.units import GIB

SMALL = {"model_type": "qwen2", "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
         "hidden_size": 1536, "dtype": "float16", "max_position_embeddings": 32768}  # fmt: skip
WINDOWS = {
    "model_type": "gpt_oss", "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "hidden_size": 2880, "sliding_window": 128, "max_position_embeddings": 131072,
    "dtype": "bfloat16", "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
HALF = 12 * 2048


def ask(model: Any, **options: Any) -> SizeResult:
    return kvplan.size(model, engine="trtllm", **options)


def allocated_words(model: Model, settings: Settings) -> str:
    """The engine's line: ``Allocated 7.31 GiB for max tokens in paged KV cache (273792).``"""
    plan = plan_of(model, settings, TrtLlm.versions[-1])
    assert plan is not None
    assert settings.kv_cache_memory is not None
    pools = pool_blocks(plan, settings.kv_cache_memory)
    amount = sum(pool.blocks * plan.block * pool.token_bytes for pool in pools)
    hundredths = (amount * 200 + GIB) // (2 * GIB)
    size = f"{hundredths // 100}.{hundredths % 100:02d}"
    tokens = max(pools, key=lambda pool: pool.window).blocks * plan.block
    return f"Allocated {size} GiB for max tokens in paged KV cache ({tokens})."


def test_the_printed_pool() -> None:
    """28 layers, 2 KV heads of 128, fp16: 7.31 GiB for 273,792 tokens, 8,556 blocks of 32."""
    settings = make_settings(kv_cache_memory=28_672 * 273_792 + 100)
    assert allocated_words(load_model(SMALL), settings) == (
        "Allocated 7.31 GiB for max tokens in paged KV cache (273792)."
    )
    pool = ask(SMALL, tokens=1000, kv_cache_memory=28_672 * 273_792).pool
    assert pool is not None
    assert (pool.kv_tokens, pool.num_blocks, pool.bytes_per_block) == (273_792, 8_556, 32 * 28_672)


@pytest.mark.parametrize(("dtype", "size", "tokens"), [("auto", "26.91", 220_480), ("fp8", "16.05", 263_008)])
def test_two_more_printed_pools(dtype: str, size: str, tokens: int) -> None:
    """Llama-3.1-8B by its quotient: 131,072 and 65,536 bytes a token."""
    settings = make_settings(kv_cache_memory="40GiB", kv_cache_dtype=dtype, max_tokens=tokens)
    assert allocated_words(load_model("llama-3.1-8b"), settings) == (
        f"Allocated {size} GiB for max tokens in paged KV cache ({tokens})."
    )


def test_heads_round_up_and_blocks_are_whole() -> None:
    result = ask({**SMALL, "num_key_value_heads": 6}, tokens=33, tp=4)
    assert result.per_gpu.kv_bytes == 28 * 64 * 2 * 2 * 128 * 2
    assert ask(SMALL, tokens=33, block_size=64).per_gpu.kv_bytes == 64 * 28_672
    assert ask(
        {**SMALL, "num_key_value_heads": 6}, tokens=32, tp=4, enable_attention_dp=True
    ).per_gpu.kv_bytes == (28 * 32 * 6 * 2 * 128 * 2)


def test_sparse_attention_adds_an_index_key() -> None:
    result = ask("deepseek-v3.2", tp=8, tokens=64, gpu="h200")
    assert result.per_gpu.kv_bytes == 61 * 64 * (576 * 2 + 132)
    fp8 = ask("deepseek-v3.2", tp=8, tokens=64, gpu="h200", kv_cache_dtype="fp8")
    assert fp8.per_gpu.kv_bytes == 61 * 64 * (576 + 132)


def test_nvfp4_has_one_scale_for_sixteen() -> None:
    assert ask(SMALL, tokens=32, gpu="b200", kv_cache_dtype="nvfp4").per_gpu.kv_bytes == 32 * 28_672 * 9 // 32


# Windows.


def test_without_a_setting_every_layer_keeps_all_tokens() -> None:
    result = ask(WINDOWS, tokens=4096)
    assert result.per_gpu.kv_bytes == 4096 * 2 * HALF
    assert any("128,131072" in warning for warning in result.warnings)


def test_pools_share_the_memory_equally() -> None:
    memory = 12 * GIB
    result = ask(WINDOWS, tokens=4096, kv_cache_memory=memory, max_attention_window="128,131072")
    assert result.pool is not None
    blocks = memory // 2 // HALF // 32
    assert (result.pool.num_blocks, result.pool.kv_tokens) == (blocks, blocks * 32)
    assert [(group.kind, group.layers) for group in result.pool.groups] == [("window", 12), ("full", 12)]
    assert result.per_gpu.kv_bytes_per_request == HALF * (4096 + 5 * 32)
    shared = ask(
        WINDOWS,
        tokens=4096,
        kv_cache_memory=memory,
        max_attention_window="128,131072",
        window_size_shares="0.25,0.75",
    )
    assert shared.pool is not None
    assert shared.pool.num_blocks == memory * 3 // 4 // HALF // 32


def test_windows_shrink_with_the_pool() -> None:
    """A pool of 1,000 blocks cannot hold a sequence of 131,072 tokens: max_seq_len follows."""
    memory = 2 * HALF * 32 * 1000
    result = ask(
        SMALL | {"max_position_embeddings": 131072}, tokens=100_000, kv_cache_memory=28_672 * 32 * 1000
    )
    assert result.refusal is not None
    assert result.refusal.largest_max_model_len == 32_000
    windows = ask(WINDOWS, tokens=100, kv_cache_memory=memory, max_attention_window=[128, 131072])
    assert windows.refusal is None


@pytest.mark.parametrize("shares", ["1", "0.5,0.6", "0.2,0.3,0.5"])
def test_shares_must_make_one(shares: str) -> None:
    with pytest.raises(KvplanError, match="window_size_shares"):
        ask(
            WINDOWS,
            tokens=100,
            max_model_len=131072,
            max_attention_window="128,131072",
            window_size_shares=shares,
        )


# States.


def test_state_slots_come_first() -> None:
    memory = 20 * GIB
    result = ask("qwen3-next-80b-a3b", tp=2, tokens=8192, max_num_seqs=64, kv_cache_memory=memory)
    conv = 3 * (2 * 8 * 128 + 16 * 128) * 2
    slot = 36 * (conv + 16 * 128 * 128 * 2)
    assert result.settings["state_slots"] == 64
    assert result.per_gpu.fixed_bytes_per_request == slot
    assert result.pool is not None
    assert result.pool.num_blocks == (memory - 64 * slot) // (12 * 2 * 256 * 2) // 32
    snapshots = ask("qwen3-next-80b-a3b", tp=2, tokens=8192, max_num_seqs=64, mamba_state_cache_interval=256)
    assert snapshots.per_gpu.kv_bytes_per_request == 8192 * 12 * 2 * 256 * 2 + slot * (1 + 8192 // 256)


def test_two_thousand_slots_are_too_many() -> None:
    result = ask("qwen3-next-80b-a3b", tokens=8192, kv_cache_memory="20GiB")
    assert result.refusal is not None
    again = ask(
        "qwen3-next-80b-a3b",
        tokens=8192,
        kv_cache_memory="20GiB",
        max_num_seqs=int(result.refusal.help[0].split()[-1]),
    )
    assert again.refusal is None


# Laws.


@given(tokens=st.integers(0, 131072), more=st.integers(0, 5000), window=st.sampled_from([None, "128,131072"]))
def test_bytes_never_fall_and_rounding_is_a_block(tokens: int, more: int, window: str | None) -> None:
    longer = min(tokens + more, 131072)
    one, two = (ask(WINDOWS, tokens=count, max_attention_window=window) for count in (tokens, longer))
    assert one.per_gpu.kv_bytes_per_request <= two.per_gpu.kv_bytes_per_request
    least = HALF * (tokens + (tokens if window is None else min(tokens, 128)))
    assert 0 <= one.per_gpu.kv_bytes_per_request - least < HALF * 2 * 64


@given(memory=st.integers(2**26, 2**36), window=st.sampled_from([None, "128,131072"]))
def test_pools_stay_within_the_memory(memory: int, window: str | None) -> None:
    result = ask(
        WINDOWS, tokens=32, max_model_len=131072, kv_cache_memory=memory, max_attention_window=window
    )
    if result.pool is not None:
        pools = 1 if window is None else 2
        assert result.pool.num_blocks * result.pool.bytes_per_block * pools <= memory


# Refusals.


@pytest.mark.parametrize(
    ("dtype", "gpu", "words"),
    [
        ("fp8", "a100-sxm-80gb", "use float16"),
        ("nvfp4", "a100-sxm-80gb", "use float16"),
        ("nvfp4", "l40s", "use fp8"),
        ("nvfp4", "h100", "use fp8"),
        ("int8", "h100", "use fp8; known: auto, fp8"),
        ("fp8_e5m2", "b200", "use fp8; known: auto, fp8, nvfp4"),
    ],
)
def test_unsupported_dtypes_name_a_supported_one(dtype: str, gpu: str, words: str) -> None:
    with pytest.raises(KvplanError) as caught:
        ask(SMALL, tokens=10, kv_cache_dtype=dtype, gpu=gpu)
    assert caught.value.code == "unsupported-dtype"
    assert words in caught.value.help
    supported = words.removeprefix("use ").partition(";")[0]
    assert ask(SMALL, tokens=32, kv_cache_dtype=supported, gpu=gpu).per_gpu.kv_bytes > 0


def test_other_vendors_are_refused() -> None:
    with pytest.raises(KvplanError, match="does not run on"):
        ask(SMALL, tokens=10, gpu="mi300x")


@pytest.mark.parametrize("card", ["falcon-mamba-7b", "kimi-linear-48b-a3b", "deepseek-v4-flash", "t5-base"])
def test_layers_without_a_manager(card: str) -> None:
    result = ask(card, tokens=100)
    assert result.refusal is not None
    assert result.refusal.code == "unsupported-model"


def test_blocks_are_powers_of_two() -> None:
    with pytest.raises(KvplanError, match="power of two"):
        ask(SMALL, tokens=10, block_size=48)


def test_context_parallelism_is_refused() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size("llama-3.1-8b", engine="trtllm", decode_context_parallel_size=2)
    assert caught.value.code == "unsupported-setting"
