"""Flags of vLLM's server that change blocks, lengths and batches: figures of vLLM 0.33's own planner."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.results import SizeResult

ENGINE = "vllm@0.33"


def asked(model: str, **options: Any) -> SizeResult:
    return kvplan.size(model, engine=ENGINE, **options)


@pytest.mark.parametrize(
    ("model", "gpu", "memory", "length", "skipped", "blocks", "tokens"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "h200", 118442620997, 32768, "0,1", 53155, 1700960),
        ("openai/gpt-oss-20b", "h200", 118818339157, None, "sliding_window", 302170, 7721978),
    ],
)
def test_layers_left_out_of_a_small_cache(
    model: str, gpu: str, memory: int, length: int | None, skipped: str, blocks: int, tokens: int
) -> None:
    found = asked(
        model,
        gpu=gpu,
        kv_cache_memory=memory,
        max_model_len=length,
        kv_cache_dtype="fp8",
        settings={"kv_cache_dtype_skip_layers": skipped},
    ).pool
    assert found is not None
    assert (found.num_blocks, found.kv_tokens) == (blocks, tokens)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-12b", "qwen3-next-80b-a3b", "deepseek-v3"])
def test_skipping_layers_of_a_cache_in_the_own_dtype_changes_nothing(model: str) -> None:
    options: dict[str, Any] = {"gpu": "h200x8", "tp": 8, "kv_cache_memory": 2**34, "max_model_len": 8192}
    plain = asked(model, **options).pool
    assert asked(model, **options, settings={"kv_cache_dtype_skip_layers": "0,1"}).pool == plain


def test_a_number_that_no_layer_has_grows_the_blocks_all_the_same() -> None:
    """platforms/interface.py, _align_heterogeneous_kv_block_size asks whether the list is empty."""
    options: dict[str, Any] = {"gpu": "h200", "kv_cache_memory": 2**34, "kv_cache_dtype": "fp8"}
    nobody = {"kv_cache_dtype_skip_layers": "900"}
    assert asked("llama-3.1-8b", **options).settings["block_size"] == 16
    assert asked("llama-3.1-8b", **options, settings=nobody).settings["block_size"] == 32


@pytest.mark.parametrize(
    ("model", "memory", "length", "blocks", "tokens", "longest"),
    [
        ("google/gemma-3-12b-it", 47069099910, 1024, 7481, 119696, 1024),
        ("openai/gpt-oss-20b", 58933343286, None, 74937, 1198992, 128),
    ],
)
def test_without_windows_every_layer_keeps_everything(
    model: str, memory: int, length: int | None, blocks: int, tokens: int, longest: int
) -> None:
    found = asked(
        model,
        gpu="h100",
        kv_cache_memory=memory,
        max_model_len=length,
        settings={"disable_sliding_window": True},
    )
    assert found.pool is not None
    assert (found.pool.num_blocks, found.pool.kv_tokens) == (blocks, tokens)
    assert found.settings["max_model_len"] == longest


def test_without_windows_no_request_is_longer_than_one() -> None:
    """vllm/config/model.py, _get_and_verify_max_len."""
    result = asked("google/gemma-3-12b-it", max_model_len=1025, settings={"disable_sliding_window": True})
    assert result.refusal is not None
    assert result.refusal.largest_max_model_len == 1024


def test_windows_that_a_class_reads_by_itself_are_refused() -> None:
    with pytest.raises(kvplan.KvplanError, match="windows"):
        asked("deepseek-ai/DeepSeek-V4-Flash", settings={"disable_sliding_window": True})


def test_prompts_that_are_not_cut_fill_a_step() -> None:
    uncut = {"enable_chunked_prefill": False}
    found = asked("meta-llama/Llama-3.3-70B-Instruct", settings=uncut)
    assert found.settings["max_num_batched_tokens"] == found.settings["max_model_len"] == 131_072
    short = asked("meta-llama/Llama-3.3-70B-Instruct", max_model_len=4096, settings=uncut)
    assert short.settings["max_num_batched_tokens"] == 8192
    refused = asked(
        "meta-llama/Llama-3.3-70B-Instruct", max_num_batched_tokens=2048, max_model_len=4096, settings=uncut
    ).refusal
    assert refused is not None
    assert refused.code == "max-num-batched-tokens"


def test_states_at_the_ends_of_blocks_want_prompts_that_may_be_cut() -> None:
    result = asked("qwen3-next-80b-a3b", settings={"enable_chunked_prefill": False})
    assert result.refusal is not None
    assert "divided" in result.refusal.message


@pytest.mark.parametrize("mode", ["none", "align", "all"])
def test_every_mode_of_states_is_align_since_0_32(mode: str) -> None:
    """models/config.py, MambaModelConfig: asked of 0.33, 18 of 18."""
    options: dict[str, Any] = {"gpu": "h200x4", "tp": 4, "kv_cache_memory": 2**34, "max_model_len": 8192}
    for model in ("qwen3-next-80b-a3b", "nemotron-h-8b"):
        asked_for = asked(model, **options, settings={"mamba_cache_mode": mode})
        assert asked_for.pool == asked(model, **options).pool


def test_a_state_a_block_may_be_asked_for_before() -> None:
    options: dict[str, Any] = {"kv_cache_memory": 2**34, "max_model_len": 8192, "enable_prefix_caching": True}
    pools = {
        mode: kvplan.size(
            "nemotron-h-8b", engine="vllm@0.30", **options, settings={"mamba_cache_mode": mode}
        ).settings["mamba_cache_mode"]
        for mode in ("none", "align", "all")
    }
    assert pools == {"none": "align", "align": "align", "all": "all"}
