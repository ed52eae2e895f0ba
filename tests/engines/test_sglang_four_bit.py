"""SGLang's 4-bit caches: which backends read them, what they cost, as its own planners answered."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import KvplanError
from tests.engines.test_sglang_corners import GIB, shown, size
from tests.recorded import model_of


def test_a_window_pool_prices_four_bits_as_a_byte() -> None:
    """HybridSWAPoolConfigurator: the element size of the type. Without that pool the format's own bytes."""
    asked: dict[str, Any] = {"gpu": "b200-sxm-180gb", "block_size": 128, "kv_cache_memory": 40 * GIB}
    four, eight = (
        shown("llama-4-scout", kv_cache_dtype=word, **asked) for word in ("fp4_mx_block16", "fp8_e4m3")
    )
    assert four["max_total_num_tokens"] == eight["max_total_num_tokens"]
    four, eight = (
        shown("llama-3.1-8b", kv_cache_dtype=word, **asked) for word in ("fp4_mx_block16", "fp8_e4m3")
    )
    assert four["max_total_num_tokens"] > 1.7 * eight["max_total_num_tokens"]


@pytest.mark.parametrize("word", ["nvfp4", "fp4_mx_block16", "mxfp8"])
def test_formats_in_blocks_came_with_0_5_16(word: str) -> None:
    with pytest.raises(KvplanError) as caught:
        size("llama-3.1-8b", "0.5.15", "b200-sxm-180gb", kv_cache_dtype=word)
    assert caught.value.code == "unsupported-dtype"
    assert "0.5.15" in caught.value.message
    assert shown("llama-3.1-8b", "0.5.16", "b200-sxm-180gb", kv_cache_dtype=word)


@pytest.mark.parametrize(
    ("gpu", "backend", "runs"),
    [
        ("b200-sxm-180gb", "flashinfer", True),
        ("b200-sxm-180gb", "trtllm_mha", True),
        ("b200-sxm-180gb", "triton", False),
        ("rtx-5090-32gb", "flashinfer", True),
        ("rtx-5090-32gb", "trtllm_mha", False),
    ],
)
def test_a_named_backend_reads_nvfp4_or_is_refused(gpu: str, backend: str, runs: bool) -> None:
    asked = {"kv_cache_dtype": "nvfp4", "attention_backend": backend}
    if runs:
        assert shown("llama-3.1-8b", gpu=gpu, **asked)
        return
    with pytest.raises(KvplanError) as caught:
        size("llama-3.1-8b", gpu=gpu, **asked)
    assert caught.value.code == "unsupported-dtype"


@pytest.mark.parametrize(
    ("model", "gpu", "named"),
    [
        ("Qwen__Qwen3.5-35B-A3B", "b200-sxm-180gb", "triton"),
        ("openai__gpt-oss-20b", "rtx-5090-32gb", "triton"),
        ("LGAI-EXAONE__EXAONE-4.0-32B", "rtx-5090-32gb", "fa3"),
        ("XiaomiMiMo__MiMo-V2-Flash", "b200-sxm-180gb", "fa4"),
    ],
)
def test_a_class_that_names_its_backend_does_not_read_nvfp4(model: str, gpu: str, named: str) -> None:
    """handle_nvfp4_prefill_kv_dequant_dtype: what a class's rule names is held to it like an option."""
    with pytest.raises(KvplanError) as caught:
        size(model_of(model), gpu=gpu, kv_cache_dtype="nvfp4", kv_cache_memory=30 * GIB)
    assert caught.value.code == "unsupported-dtype"
    assert f"backend {named}" in caught.value.message
    assert "use fp8_e4m3" in caught.value.help


def test_qwen_on_b200_reads_nvfp4_where_its_backend_is_named() -> None:
    model = model_of("Qwen__Qwen3.5-35B-A3B")
    asked: dict[str, Any] = {"gpu": "b200-sxm-180gb", "kv_cache_dtype": "nvfp4", "kv_cache_memory": 30 * GIB}
    assert shown(model, attention_backend="trtllm_mha", **asked)["page_size"] == 64
    assert shown(model, disable_radix_cache=True, **asked)["attention_backend"] == "trtllm_mha"


def test_nvfp4_on_sm120_has_a_backend_for_each_phase() -> None:
    """FlashInfer copies a layer in fp8 for prompts, trtllm_mha reads the cache as it lies, in its pages."""
    found = shown("qwen3-32b", gpu="rtx-pro-6000-workstation-96gb", kv_cache_dtype="nvfp4")
    assert (found["attention_backend"], found["decode_attention_backend"]) == ("flashinfer", "trtllm_mha")
    assert found["page_size"] == 64
    row = 64 * 8 * 2 * 72 + 2 * 8 * 128
    assert found["max_total_num_tokens"] == 5 * GIB // row // 64 * 64


def test_nvfp4_on_sm100_keeps_its_scales_twice_where_prompts_are_copied() -> None:
    """NVFP4KVCacheMethod.compute_cell_size: scales in both orders, and the copy of one layer."""
    asked: dict[str, Any] = {"gpu": "b200-sxm-180gb", "kv_cache_dtype": "nvfp4"}
    native = shown("qwen3-32b", **asked)["max_total_num_tokens"]
    mixed = shown("qwen3-32b", attention_backend="flashinfer", **asked)["max_total_num_tokens"]
    assert native == 5 * GIB // (64 * 8 * 2 * 72) // 64 * 64
    assert mixed == 5 * GIB // (64 * 8 * 2 * 80 + 2 * 8 * 128) // 64 * 64


@pytest.mark.parametrize(("version", "copied"), [("0.5.20", True), ("0.5.21", False)])
@pytest.mark.parametrize("word", ["nvfp4", "fp4_mx_block16"])
def test_until_0_5_20_every_four_bit_cache_pays_for_a_copy(version: str, word: str, copied: bool) -> None:
    asked = {"kv_cache_dtype": word, "attention_backend": "trtllm_mha"}
    found = shown("qwen3-32b", version, "b200-sxm-180gb", **asked)["max_total_num_tokens"]
    assert found == 5 * GIB // (64 * 8 * 2 * 72 + 2 * 8 * 128 * copied) // 64 * 64


def test_a_draft_is_a_mean_layer_with_its_part_of_the_copy() -> None:
    """MemoryPoolConfigurator: the whole cell times (layers + draft layers) / layers. As SGLang answered."""
    found = shown(
        model_of("zai-org__GLM-4.5"),
        gpu="rtx-pro-6000-workstation-96gb",
        kv_cache_dtype="nvfp4",
        kv_cache_memory=30 * GIB,
        tensor_parallel_size=8,
        speculative_method="mtp",
        num_speculative_tokens=3,
    )
    assert found["max_total_num_tokens"] == 2_359_872


def test_the_copy_is_that_of_a_full_layer() -> None:
    """Gemma 4 has window layers of other heads; 0.5.19 on A100, as SGLang answered."""
    found = shown(
        model_of("google__gemma-4-26B-A4B"),
        "0.5.19",
        "a100-sxm-80gb",
        kv_cache_dtype="fp4_mx_block16",
        kv_cache_memory=64_436_855_118,
        block_size=256,
        disable_hybrid_swa_memory=True,
    )
    assert found["max_total_num_tokens"] == 1_760_000
