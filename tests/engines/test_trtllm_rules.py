"""Engine ``trtllm``: FlashMLA's blocks, states before the cache, and the layers of drafts."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.engines.trtllm.words.command import TABLE
from kvplan.errors import KvplanError
from kvplan.files.launch.command import launch_of
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.starts import starts_in
from kvplan.results import SizeResult

HYBRID = "qwen3-next-80b-a3b"
NARROW = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "kv_lora_rank": 256,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
}
"""A latent that FlashMLA has no kernel for."""


def ask(model: Any, **options: Any) -> SizeResult:
    return kvplan.size(model, **{"engine": "trtllm", "tokens": 4096, **options})


def read(tmp_path: Path, speculation: str) -> Launch:
    (tmp_path / "o.yaml").write_text(f"speculative_config: {speculation}\n")
    (start,) = starts_in("trtllm-serve x/y --extra_llm_api_options o.yaml")
    return launch_of(start, name="x", beside=tmp_path)


# Blocks.


@pytest.mark.parametrize(
    ("model", "gpu", "asked", "block"),
    [
        ("deepseek-r1", "h100", None, 64),
        ("deepseek-v3.2", "h200", 32, 64),
        ("kimi-k2", None, None, 64),
        ("deepseek-r1", "b200", None, 32),
        ("deepseek-r1", "a100-80gb", 128, 128),
        (NARROW, "h100", None, 32),
        ("llama-3.1-8b", "h100", None, 32),
    ],
)
def test_latents_as_wide_as_deepseeks_lie_in_blocks_of_64_on_hopper(
    model: Any, gpu: str | None, asked: int | None, block: int
) -> None:
    """py_executor_creator.py (create_py_executor), model_config.py (enable_flash_mla)."""
    result = ask(model, gpu=gpu, block_size=asked, tokens=block + 1, weights=2**30)
    assert result.settings["tokens_per_block"] == block
    assert result.per_gpu.kv_bytes_per_request == 2 * block * result.per_gpu.bytes_per_token
    said = "tokens_per_block is 64 with FlashMLA, whatever is asked" in result.warnings
    assert said is (asked not in (None, block))


def test_the_second_manager_has_the_same_blocks() -> None:
    for gpu, block in (("h100", 64), ("b200", 32)):
        found = ask("deepseek-r1", gpu=gpu, use_kv_cache_manager_v2=True, weights=2**30)
        assert found.settings["tokens_per_block"] == block


# States.


@given(st.integers(1, 600), st.sampled_from(["0.5", "0.8", "0.9"]), st.sampled_from([1, 2]))
@settings(max_examples=25, deadline=None)
def test_the_fraction_is_of_what_states_leave(most: int, share: str, stages: int) -> None:
    """mamba_cache_manager.py: max_batch_size slots on every stage are allocated before the cache."""
    result = ask(
        HYBRID,
        gpu="h200",
        tp=4,
        pp=stages,
        max_num_seqs=most,
        free_gpu_memory_fraction=share,
    )
    budget = result.budget
    assert budget is not None
    assert result.pool is not None
    assert result.settings["state_slots"] == most
    states = most * result.per_gpu.fixed_bytes_per_request
    free = budget.total_bytes - sum(line.bytes for line in budget.lines)
    assert budget.kv_pool_bytes - states == int((free - states) * Fraction(share))
    assert result.pool.num_blocks == (budget.kv_pool_bytes - states) // result.pool.bytes_per_block


def test_states_that_fill_the_pool_but_for_a_block_start() -> None:
    slot = ask(HYBRID).per_gpu.fixed_bytes_per_request
    block = 32 * int(ask(HYBRID).per_gpu.bytes_per_token)
    full = ask(HYBRID, max_num_seqs=8, tokens=32, kv_cache_memory=8 * slot + block)
    assert full.refusal is None
    assert full.pool is not None
    assert full.pool.num_blocks == 1
    less = ask(HYBRID, max_num_seqs=8, tokens=32, kv_cache_memory=8 * slot + block - 1)
    assert less.refusal is not None


# Drafts.


@given(st.integers(1, 8))
@settings(max_examples=8, deadline=None)
def test_each_token_drafted_has_a_layer(drafted: int) -> None:
    """speculative/utils.py (get_num_spec_layers): as many as asked, of one prediction layer."""
    plain = ask("deepseek-r1").per_gpu.bytes_per_token
    found = ask("deepseek-r1", speculative_method="mtp", num_speculative_tokens=drafted)
    assert found.per_gpu.bytes_per_token * 61 == plain * (61 + drafted)


def test_states_and_speculation_exclude_each_other() -> None:
    with pytest.raises(KvplanError, match="does not speculate beside states") as caught:
        ask(HYBRID, speculative_method="mtp", num_speculative_tokens=1)
    assert caught.value.code == "unsupported-setting"


@pytest.mark.parametrize(
    ("words", "drafted"),
    [
        ("{decoding_type: MTP, num_nextn_predict_layers: 3}", 3),
        ("{decoding_type: MTP, max_draft_len: 2}", 2),
        ("{decoding_type: MTP}", 1),
    ],
)
def test_prediction_layers_of_an_options_file_are_read(tmp_path: Path, words: str, drafted: int) -> None:
    launch = read(tmp_path, words)
    assert launch.serve == {"speculative_config": {"method": "mtp", "num_speculative_tokens": drafted}}
    assert launch.unread == ()


def test_what_is_written_for_prediction_layers_is_read_back(tmp_path: Path) -> None:
    """The key that `command` writes is one that `launch` reads."""
    assert TABLE.settings["speculative_method"].flag == "speculative_config"
    launch = read(tmp_path, "{decoding_type: MTP, num_nextn_predict_layers: 2, mtp_eagle_one_model: false}")
    assert launch.unread == ("speculative_config.mtp_eagle_one_model: False",)


@pytest.mark.parametrize("kind", ["Eagle", "Eagle3", "Draft_Target", "NGram", "Medusa"])
def test_other_drafts_are_named(tmp_path: Path, kind: str) -> None:
    launch = read(tmp_path, f"{{decoding_type: {kind}, max_draft_len: 3}}")
    assert (launch.serve, launch.unread) == (
        {}, (f"the draft of speculative_config, decoding_type {kind}",),
    )  # fmt: skip
