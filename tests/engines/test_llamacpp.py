"""Engine ``llamacpp``: the sizes that llama.cpp printed in public logs, its laws, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.engines.llamacpp.cache_layout.caches import place
from kvplan.engines.llamacpp.engine import log_lines
from kvplan.errors import KvplanError
from kvplan.units import MIB

DENSE = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
         "hidden_size": 512, "max_position_embeddings": 8192}  # fmt: skip


def windowed(model_type: str, **more: Any) -> dict[str, Any]:
    return {**DENSE, "model_type": model_type, "head_dim": 64, **more}


# Gemma-4 12B: 8 full layers of one KV head of 512, 40 window layers of 8 KV heads of 256 (K and V of a full
# layer come from one projection and are both kept).
GEMMA4 = {
    "model_type": "gemma4_text", "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8,
    "num_global_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512, "hidden_size": 3840,
    "sliding_window": 1024, "attention_k_eq_v": True, "num_kv_shared_layers": 0,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 8,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "hidden_size": 2880, "sliding_window": 128, "max_position_embeddings": 131072,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
LAGUNA = {
    "model_type": "laguna", "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "hidden_size": 2048, "sliding_window": 512, "max_position_embeddings": 1048576,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"] * 12,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "options", "lines"),
    [
        (
            GEMMA4,
            {"tokens": 8192, "kv_unified": True, "kv_cache_dtype": "q8_0"},
            ["size = 765.00 MiB (4608 cells, 40 layers)", "size = 68.00 MiB (8192 cells, 8 layers)"],
        ),
        (
            GPT_OSS,
            {"tokens": 131072},
            ["size = 18.00 MiB (768 cells, 12 layers)", "size = 3072.00 MiB (131072 cells, 12 layers)"],
        ),
        (
            GPT_OSS,
            {"tokens": 131072, "ubatch_size": 2048},
            ["size = 54.00 MiB (2304 cells, 12 layers)", "size = 3072.00 MiB (131072 cells, 12 layers)"],
        ),
        (
            LAGUNA,
            {"tokens": 1048576, "cache_type_k": "q4_0", "cache_type_v": "q4_0"},
            ["size = 13824.00 MiB (1048576 cells, 12 layers)", "size = 40.50 MiB (1024 cells, 36 layers)"],
        ),
    ],
    ids=["gemma-4-12b", "gpt-oss-20b", "gpt-oss-20b-ubatch", "laguna"],
)
def test_the_printed_sizes(config: dict[str, Any], options: dict[str, Any], lines: list[str]) -> None:
    model, settings = load_model(config), make_settings(**options)
    assert sorted(log_lines(model, settings)) == sorted(lines)
    printed = sum(float(line.split()[2]) for line in lines)
    assert kvplan.size(model, engine="llamacpp", **options).per_gpu.kv_bytes == printed * MIB


def test_the_window_of_four_slots_and_a_larger_batch() -> None:
    lines = log_lines(load_model(GEMMA4), make_settings(tokens=8192, kv_unified=True, ubatch_size=2048))
    assert any("(6144 cells, 40 layers)" in line for line in lines)


def test_the_window_of_streams_of_their_own_does_not_add_up() -> None:
    result = kvplan.size(GPT_OSS, engine="llamacpp", tokens=8192, settings={"parallel": 4})
    assert result.settings["n_ctx"] == 4 * 8192
    assert result.per_gpu.kv_bytes == 12 * 2048 * 4 * (8192 + 768)
    assert result.per_gpu.kv_bytes_per_request == 12 * 2048 * (8192 + 768)


@pytest.mark.parametrize("model_type", ["mistral", "qwen2", "phi3", "starcoder2"])
def test_elsewhere_a_window_has_no_effect(model_type: str) -> None:
    config = {**DENSE, "model_type": model_type, "sliding_window": 256, "use_sliding_window": True}
    result = kvplan.size(config, engine="llamacpp", tokens=4096)
    assert result.per_gpu.kv_bytes == 4096 * 4 * 2 * 4 * 64 * 2


def test_a_latent_has_no_v() -> None:
    heads = {"num_attention_heads": 4, "qk_nope_head_dim": 128, "v_head_dim": 128}
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    config = {"model_type": "deepseek_v3", "num_hidden_layers": 2, **heads, **latent}
    assert kvplan.size(config, engine="llamacpp", tokens=1024).per_gpu.kv_bytes == 1024 * 2 * 576 * 2


def test_index_keys_have_the_type_of_k() -> None:
    result = kvplan.size("deepseek-v3.2", engine="llamacpp", tokens=1024)
    assert result.per_gpu.kv_bytes == 1024 * 61 * (576 + 128) * 2


def test_the_index_of_minimax_m3_has_a_v() -> None:
    layers = ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"]
    config = {"model_type": "minimax_m3_vl_text", "num_hidden_layers": 3, "num_key_value_heads": 4}
    model = load_model({**config, "layer_types": layers})
    sparse = sum(len(layer.parts) > 1 for layer in model.layers())
    result = kvplan.size(model, engine="llamacpp", tokens=256)
    assert sparse == 2
    assert result.per_gpu.kv_bytes == 256 * 2 * (3 * 4 * 256 + sparse * (128 + 128))


def test_deepseek_v4() -> None:
    """A window for every layer, padded compressed caches, index keys, the compressors' states in f32."""
    tokens, latent = 32768, 512 * 2
    cells4, cells128 = 32768 // 4, 256
    raw = 43 * 768 * latent
    csa = 21 * cells4 * (latent + 128 * 2)
    hca = 20 * cells128 * latent
    states = 21 * 2 * 4 * 8 * 2 * (512 + 128) + 20 * 2 * 4 * 128 * 512
    result = kvplan.size("deepseek-v4-flash", engine="llamacpp", tokens=tokens)
    assert result.per_gpu.kv_bytes == raw + csa + hca + states
    assert result.per_gpu.fixed_bytes_per_request == states


def test_states_are_f32_rows_of_the_slots() -> None:
    one = kvplan.size("qwen3-next-80b-a3b", engine="llamacpp", tokens=1024)
    two = kvplan.size("qwen3-next-80b-a3b", engine="llamacpp", tokens=1024, requests=2)
    r, s = 3 * (2 * 16 * 128 + 32 * 128), 32 * 128 * 128
    assert one.per_gpu.fixed_bytes_per_request == 36 * 4 * (r + s)
    assert two.per_gpu.kv_bytes == 2 * one.per_gpu.kv_bytes


def test_cross_attention_of_t5_is_computed_anew() -> None:
    short = kvplan.size("t5-base", engine="llamacpp", tokens=256, encoder_tokens=16)
    long = kvplan.size("t5-base", engine="llamacpp", tokens=256, encoder_tokens=4096)
    assert short.per_gpu.kv_bytes == long.per_gpu.kv_bytes == 12 * 256 * 2 * 768 * 2


def test_without_flash_attention_every_v_is_as_wide_as_the_widest() -> None:
    config = {**GEMMA4, "num_global_key_value_heads": 2}
    with_flash = kvplan.size(config, engine="llamacpp", tokens=1024)
    without = kvplan.size(config, engine="llamacpp", tokens=1024, settings={"flash_attn": False})
    assert without.per_gpu.kv_bytes - with_flash.per_gpu.kv_bytes == 8 * 1024 * 2 * (8 * 256 - 2 * 512)


# Devices.


def test_layers_are_dealt_over_devices_with_the_output_layer_last() -> None:
    assert place(4, 2, None) == [0, 0, 0, 1]
    assert place(32, 2, None).count(0) == 17
    assert place(4, 1, 2) == [None, None, None, 0]
    assert place(4, 2, 0) == [None] * 4
    assert place(4, 1, 99) == [0] * 4


@given(layers=st.integers(1, 200), devices=st.integers(1, 16), ngl=st.integers(0, 300) | st.none())
def test_every_layer_has_one_device_and_the_order_is_kept(layers: int, devices: int, ngl: int | None) -> None:
    found = place(layers, devices, ngl)
    on_gpu = [device for device in found if device is not None]
    assert on_gpu == sorted(on_gpu)
    assert all(device < devices for device in on_gpu)
    assert found[: layers - len(on_gpu)] == [None] * (layers - len(on_gpu))
    assert len(on_gpu) == (layers if ngl is None else max(0, min(ngl, layers + 1) - 1))


def test_partial_offload_leaves_the_first_layers_on_the_host() -> None:
    whole = kvplan.size(DENSE, engine="llamacpp", tokens=1024)
    part = kvplan.size(DENSE, engine="llamacpp", tokens=1024, settings={"n_gpu_layers": 3})
    none = kvplan.size(DENSE, engine="llamacpp", tokens=1024, settings={"kv_offload": False})
    assert part.per_gpu.kv_bytes * 2 == whole.per_gpu.kv_bytes
    assert part.settings["host_kv_bytes"] == whole.per_gpu.kv_bytes // 2
    assert (none.per_gpu.kv_bytes, none.settings["host_kv_bytes"]) == (0, whole.per_gpu.kv_bytes)


# Pool.


def test_the_pool_is_the_largest_context() -> None:
    per_token = 4 * 2 * 4 * 64 * 2
    result = kvplan.size(DENSE, engine="llamacpp", tokens=1000, kv_cache_memory=per_token * 10_000)
    pool = result.pool
    assert pool is not None
    assert pool.kv_tokens == 10_000 // 256 * 256
    assert pool.requests_that_fit == pool.max_requests == 10_000 // 1024
    assert pool.bytes_per_block == 256 * per_token


def test_too_little_memory_names_the_longest_context() -> None:
    per_token = 4 * 2 * 4 * 64 * 2
    result = kvplan.size(DENSE, engine="llamacpp", tokens=4096, kv_cache_memory=per_token * 1000)
    assert result.refusal is not None
    assert (result.refusal.code, result.refusal.largest_max_model_len) == ("not-enough-memory", 768)
    again = kvplan.size(DENSE, engine="llamacpp", tokens=768, kv_cache_memory=per_token * 1000)
    assert again.refusal is None


def test_a_fixed_context_bounds_the_request() -> None:
    result = kvplan.size(DENSE, engine="llamacpp", tokens=4096, settings={"ctx_size": 4096, "parallel": 2})
    assert result.refusal is not None
    assert result.refusal.largest_max_model_len == 2048
    unified = kvplan.size(
        DENSE,
        engine="llamacpp",
        tokens=1000,
        settings={"ctx_size": 4096, "parallel": 8, "kv_unified": True},
        kv_cache_memory="1GiB",
    )
    assert unified.pool is not None
    assert unified.pool.requests_that_fit == 4


@given(
    tokens=st.integers(1, 20_000),
    requests=st.integers(1, 9),
    more=st.integers(0, 5000),
    unified=st.booleans(),
)
def test_bytes_never_fall_as_tokens_grow_and_are_bounded_by_the_padding(
    tokens: int, requests: int, more: int, unified: bool
) -> None:
    def size(length: int) -> int:
        asked = kvplan.size(
            DENSE, engine="llamacpp", tokens=length, requests=requests, settings={"kv_unified": unified}
        )
        return asked.per_gpu.kv_bytes

    per_token = 4 * 2 * 4 * 64 * 2
    assert size(tokens) <= size(tokens + more)
    assert 0 <= size(tokens) - tokens * requests * per_token < 2 * 256 * max(requests, 1) * per_token


@given(memory=st.integers(0, 2**32), requests=st.integers(1, 20), tokens=st.integers(1, 5000))
def test_what_fits_fits(memory: int, requests: int, tokens: int) -> None:
    result = kvplan.size(GPT_OSS, engine="llamacpp", tokens=tokens, requests=requests, kv_cache_memory=memory)
    if result.pool is None:
        assert kvplan.size(GPT_OSS, engine="llamacpp", tokens=tokens).per_gpu.kv_bytes > memory
        return
    fitting = result.pool.requests_that_fit
    assert kvplan.size(GPT_OSS, engine="llamacpp", tokens=tokens, requests=fitting).per_gpu.kv_bytes <= memory
    if fitting < 256:
        one_more = kvplan.size(GPT_OSS, engine="llamacpp", tokens=tokens, requests=fitting + 1)
        assert one_more.per_gpu.kv_bytes > memory


# Refusals.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv_cache_dtype": "fp8"}, "q8_0"),
        ({"cache_type_v": "q8_0", "flash_attn": False}, "flash_attn"),
        ({"tensor_parallel_size": 2}, "--pp 2"),
        ({"speculative_method": "mtp", "num_speculative_tokens": 1}, "draft"),
    ],
)
def test_refused_with_a_way_out(options: dict[str, Any], words: str) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size(DENSE, engine="llamacpp", tokens=100, **options)
    assert any(words in line for line in caught.value.help)


def test_a_head_must_be_whole_blocks() -> None:
    config = {**DENSE, "head_dim": 80}
    with pytest.raises(KvplanError, match="head_dim 80"):
        kvplan.size(config, engine="llamacpp", tokens=100, kv_cache_dtype="q4_0")


def test_a_latent_has_one_type() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size("deepseek-v3", engine="llamacpp", tokens=100, settings={"cache_type_k": "q8_0"})
    assert "use q8_0 for both" in caught.value.help


@pytest.mark.parametrize("card", ["opt-1.3b", "whisper-base", "recurrentgemma-2b", "xlstm-7b"])
def test_models_without_a_graph(card: str) -> None:
    result = kvplan.size(card, engine="llamacpp", tokens=100)
    assert result.refusal is not None
    assert result.refusal.code == "unsupported-model"
    assert result.per_gpu.kv_bytes == 0
