"""Engine ``transformers``: cache layouts by release, peaks, static cache, refusals.

The library itself is asked in tests/conformance; here the expected numbers are multiplied out by hand.
"""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.results import SizeResult

LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
         "hidden_size": 256, "dtype": "bfloat16"}  # fmt: skip
WINDOWED = {**LLAMA, "model_type": "mistral", "sliding_window": 16}
MLA = {"model_type": "deepseek_v3", "num_hidden_layers": 1, "num_attention_heads": 4, "kv_lora_rank": 32,
       "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12, "dtype": "bfloat16"}  # fmt: skip


def ask(config: dict[str, Any], engine: str = "transformers", **options: Any) -> SizeResult:
    return kvplan.size(config, engine=engine, **options)


def refused(config: dict[str, Any], **options: Any) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        ask(config, **options)
    return caught.value


def test_full_attention_keeps_every_token() -> None:
    result = ask(LLAMA, tokens=100, requests=3)
    per_request = 2 * 100 * 4 * (32 + 32) * 2
    assert result.per_gpu.kv_bytes_per_request == per_request
    assert result.per_gpu.kv_bytes == result.per_gpu.peak_bytes == result.total.kv_bytes == 3 * per_request
    assert result.per_gpu.bytes_per_token == 2 * 4 * 64 * 2
    assert result.pool is None


def test_a_window_keeps_one_token_less_and_pins_the_prompt() -> None:
    per_token = 2 * 4 * 64 * 2
    assert ask(WINDOWED, tokens=15).per_gpu.kv_bytes == 15 * per_token
    assert ask(WINDOWED, tokens=16).per_gpu.kv_bytes == 15 * per_token
    long = ask(WINDOWED, tokens=1000).per_gpu
    assert long.kv_bytes == 15 * per_token
    assert long.peak_bytes == 1000 * per_token
    assert long.bytes_per_token == 0


def test_a_window_of_one_keeps_everything() -> None:
    """[-0:] is the whole tensor (cache_utils.py, DynamicSlidingWindowLayer.update)."""
    config = {**WINDOWED, "sliding_window": 1}
    assert ask(config, tokens=50).per_gpu.kv_bytes == ask(LLAMA, tokens=50).per_gpu.kv_bytes


@pytest.mark.parametrize("version", ["4.57", "5.0", "5.14"])
def test_older_releases_keep_every_head_of_mla(version: str) -> None:
    result = ask(MLA, f"transformers@{version}", tokens=10)
    assert result.per_gpu.kv_bytes == 10 * 4 * (16 + 8 + 12) * 2
    assert any("5.15" in warning for warning in result.warnings)


@pytest.mark.parametrize("version", ["5.15", "5.20", "5.23", "5.24"])
def test_newer_releases_keep_the_latent(version: str) -> None:
    result = ask(MLA, f"transformers@{version}", tokens=10)
    assert result.per_gpu.kv_bytes == 10 * (32 + 8) * 2
    assert result.engine.version == version


@pytest.mark.parametrize(("version", "gate"), [("5.23", 2), ("5.24", 4)])
def test_the_gate_of_a_finished_group_has_the_type_of_its_bias(version: str, gate: int) -> None:
    """Small CSA layer after 8 tokens: the window, two entries, and the last group's values and gates."""
    config = {
        "model_type": "deepseek_v4", "num_hidden_layers": 1, "head_dim": 16, "sliding_window": 16,
        "index_head_dim": 16, "layer_types": ["compressed_sparse_attention"], "dtype": "bfloat16",
    }  # fmt: skip
    found = ask(config, f"transformers@{version}", tokens=8, dtype="bfloat16").per_gpu.kv_bytes
    assert found == (8 + 2) * 16 * 2 + 2 * 16 * 2 + 2 * 4 * 16 * (2 + gate)


def test_looped_layers_have_a_cache_of_each_pass() -> None:
    """transformers 5.24 models/inkling2_loop: layers 6 to 17 of 24 run three times."""
    plain = {
        "model_type": "inkling2_text", "num_hidden_layers": 24, "layer_types": ["hybrid"] * 24,
        "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    }  # fmt: skip
    once = ask(plain, tokens=40, dtype="bfloat16").per_gpu.kv_bytes // 24
    looped = {**plain, "model_type": "inkling2_loop_text"}
    assert ask(looped, tokens=40, dtype="bfloat16").per_gpu.kv_bytes == (24 + 2 * 12) * once
    older = {**looped, "loop_config": {"core_start": 6, "core_end": 12, "num_passes": 2}}
    assert ask(older, tokens=40, dtype="bfloat16").per_gpu.kv_bytes == (24 + 6) * once
    assert "loop_num_passes" in str(refused({**looped, "loop_num_passes": 0}, tokens=40))


def test_hy_4_with_images_keeps_latents_and_the_keys_of_its_own_indexers() -> None:
    """transformers 5.24 models/hy_v4_vl, measured: 288 numbers a token."""
    text = {
        "model_type": "hy_v4_vl_text", "num_hidden_layers": 6, "kv_lora_rank": 32, "qk_rope_head_dim": 8,
        "index_head_dim": 16, "indexer_types": ["full", "full", "shared", "shared", "shared", "full"],
    }  # fmt: skip
    result = ask({"model_type": "hy_v4_vl", "text_config": text}, tokens=11, dtype="bfloat16")
    assert result.per_gpu.kv_bytes == 11 * 288 * 2


def test_deepseek_v3_is_70272_bytes_a_token() -> None:
    result = ask({"model_type": "deepseek_v3"}, tokens=1, dtype="bfloat16")
    assert result.per_gpu.kv_bytes == 70_272


def test_states_have_all_columns_and_are_float32() -> None:
    config = {"model_type": "mamba", "num_hidden_layers": 1, "hidden_size": 64, "expand": 2, "state_size": 16,
              "conv_kernel": 4}  # fmt: skip
    result = ask(config, tokens=10, dtype="bfloat16").per_gpu
    assert result.kv_bytes == 128 * 4 * 2 + 128 * 16 * 4
    assert result.fixed_bytes_per_request == result.kv_bytes
    assert result.bytes_per_token == 0


def test_waiting_tokens_of_compressed_attention_pin_the_prompt() -> None:
    config = {"model_type": "deepseek_v4", "num_hidden_layers": 1, "head_dim": 16, "sliding_window": 8,
              "layer_types": ["heavily_compressed_attention"], "dtype": "bfloat16",
              "compress_rates": {"heavily_compressed_attention": 10}}  # fmt: skip
    result = ask(config, tokens=25).per_gpu
    assert result.kv_bytes == (7 * 16 + 2 * 16 + 5 * 2 * 16) * 2
    assert result.peak_bytes == (25 * 16 + 2 * 16 + 25 * 2 * 16) * 2
    even = ask(config, tokens=20).per_gpu
    assert even.kv_bytes == (7 * 16 + 2 * 16) * 2


class TestStatic:
    """StaticCache: everything is allocated for max_cache_len."""

    def test_it_is_allocated_up_front(self) -> None:
        result = ask(LLAMA, tokens=10, max_model_len=64, cache_implementation="static")
        assert result.per_gpu.kv_bytes == result.per_gpu.peak_bytes == 64 * 2 * 4 * 64 * 2
        assert result.per_gpu.bytes_per_token == 0
        assert result.settings["max_cache_len"] == 64

    def test_a_window_is_whole(self) -> None:
        assert ask(WINDOWED, tokens=64, cache_implementation="static").per_gpu.kv_bytes == 16 * 2 * 4 * 64 * 2
        assert ask(WINDOWED, tokens=9, cache_implementation="static").per_gpu.kv_bytes == 9 * 2 * 4 * 64 * 2

    def test_it_must_hold_the_request(self) -> None:
        error = refused(LLAMA, tokens=65, max_model_len=64, cache_implementation="static")
        assert error.code == "unsupported-setting"
        assert "65" in error.message

    @pytest.mark.parametrize("model_type", ["deepseek_v4", "minimax", "rwkv", "xlstm", "xlnet"])
    def test_classes_that_cannot(self, model_type: str) -> None:
        error = refused({"model_type": model_type}, tokens=8, dtype="float32", cache_implementation="static")
        assert error.code == "unsupported-setting"
        assert error.help


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tensor_parallel_size", 2),
        ("pipeline_parallel_size", 2),
        ("decode_context_parallel_size", 2),
        ("kv_cache_dtype", "fp8"),
        ("mamba_ssm_cache_dtype", "bfloat16"),
        ("speculative_method", "mtp"),
        ("cache_implementation", "quantized"),
    ],
)
def test_what_the_library_cannot_do_is_refused(option: str, value: Any) -> None:
    error = refused(LLAMA, tokens=8, **{option: value})
    assert error.code == "unsupported-setting"
    assert error.exit_code == 2
    assert option in error.message or "speculative" in error.message
    assert error.help


def test_the_models_own_dtype_is_the_caches() -> None:
    assert ask(LLAMA, tokens=1).settings["kv_cache_dtype"] == "bfloat16"
    assert ask(LLAMA, tokens=1, dtype="float32").per_gpu.kv_bytes == 2 * ask(LLAMA, tokens=1).per_gpu.kv_bytes
    assert ask(LLAMA, tokens=1, dtype="bfloat16", kv_cache_dtype="bfloat16").per_gpu.kv_bytes == 1024


def test_an_unstated_dtype_is_float32_and_said() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "dtype"}
    result = ask(config, tokens=1)
    assert result.settings["dtype"] == "float32"
    assert any("float32" in warning for warning in result.warnings)


def test_a_pool_has_no_meaning_and_that_is_said() -> None:
    result = ask(LLAMA, tokens=1, kv_cache_memory="1GiB")
    assert result.pool is None
    assert any("kv_cache_memory" in warning for warning in result.warnings)


@pytest.mark.parametrize("model_type", ["openai-gpt", "xlm"])
def test_types_without_a_cache_say_so(model_type: str) -> None:
    result = ask({"model_type": model_type}, tokens=10, dtype="float32")
    assert result.per_gpu.kv_bytes == 0
    assert any("cache" in warning for warning in result.warnings)


def test_a_version_between_known_ones_is_said() -> None:
    result = ask(MLA, "transformers@5.12", tokens=1)
    assert result.engine.version == "5.10"
    assert "5.12" in result.warnings[0]
    with pytest.raises(KvplanError):
        ask(MLA, "transformers@4.40", tokens=1)
