"""Bytes that requests hold: counted by hand, and never at odds with how many of them run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.deployment.answer import Answer
from kvplan.deployment.counts import max_requests
from kvplan.deployment.held import bytes_held, least_memory
from kvplan.engines import choose_engine
from kvplan.engines.budget.sharing import usable_blocks
from kvplan.settings import Settings
from kvplan.units import MIB
from tests.deployment.by_hand import FULL, GENERIC, LLAMA, LLAMA_BLOCK, answered, model

VLLM = choose_engine("vllm@0.33")
WINDOWED: dict[str, Any] = {
    "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "hidden_size": 512,
    "dtype": "bfloat16", "vocab_size": 1000, "intermediate_size": 1024, "max_position_embeddings": 8192,
    "sliding_window": 1024, "sliding_window_pattern": 4,
}  # fmt: skip
"""Three layers with a window of 1,024 tokens and a full one."""
BLOCK = 16 * 2 * 4 * 64 * 2
"""Of one of its layers: 16 tokens, keys and values, 4 heads of 64 numbers in 2 bytes."""
LATENT: dict[str, Any] = {
    "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 64, "hidden_size": 512, "dtype": "bfloat16",
    "vocab_size": 1000, "intermediate_size": 1024, "max_position_embeddings": 8192,
}  # fmt: skip


def of(config: dict[str, Any], choice: Any = VLLM, **asked: Any) -> Answer:
    return answered(Settings(**asked), kvplan.load_model(config), choice)


# -------------------------------------------------------------------------------------------- by hand


def test_full_attention_holds_a_request_to_its_end() -> None:
    """1,000 tokens are 63 blocks, while the prompt is read, while it answers and at start-up alike."""
    held = of(LLAMA, tokens=1000, requests=3).result.per_gpu
    assert held.kv_bytes_per_request == 63 * LLAMA_BLOCK
    assert held.prompt_bytes_per_request == held.reserved_bytes_per_request == held.kv_bytes_per_request
    assert held.kv_bytes == 3 * 63 * LLAMA_BLOCK


def test_windows_give_back_what_no_token_sees() -> None:
    """Of 8,000 tokens 7,000 are prompt, which one step of 8,192 tokens reads.

    Answering: 500 blocks of the full layer, and of each window those that 1,024 tokens and the one under way
    touch at worst, 65 and one begun. Reading: 438 blocks of each of the four layers.
    """
    held = of(WINDOWED, tokens=8000).result.per_gpu
    assert held.kv_bytes_per_request == (500 + 3 * (65 + 1)) * BLOCK
    assert held.prompt_bytes_per_request == 4 * 438 * BLOCK
    assert held.kv_bytes == held.prompt_bytes_per_request
    assert held.reserved_bytes_per_request == (500 + 3 * 501) * BLOCK


@pytest.mark.parametrize("requests", [2, 3, 5])
def test_of_many_with_windows_one_is_being_read(requests: int) -> None:
    """The others have settled at 438 blocks of the full layer and 65 of each window."""
    held = of(WINDOWED, tokens=8000, requests=requests).result.per_gpu
    assert held.kv_bytes == (4 * 438 + (requests - 1) * (438 + 3 * 65)) * BLOCK


def test_a_request_within_the_window_holds_all_of_itself() -> None:
    held = of(WINDOWED, tokens=500, requests=2).result.per_gpu
    assert held.kv_bytes_per_request == 4 * 32 * BLOCK
    assert held.prompt_bytes_per_request <= held.kv_bytes_per_request
    assert held.kv_bytes == 2 * held.kv_bytes_per_request


@pytest.mark.parametrize(
    ("engine", "tokens"), [("vllm@0.33", 1008), ("sglang", 1000)]
)  # vLLM's blocks have 16 tokens, SGLang's pool has single ones
def test_a_latent_is_on_every_rank(engine: str, tokens: int) -> None:
    """512 + 64 numbers of 2 bytes in each of 2 layers; tensor parallelism divides none of it."""
    for ranks in (1, 4):
        found = of(LATENT, choose_engine(engine), tokens=1000, requests=3, tensor_parallel_size=ranks).result
        one = tokens * (512 + 64) * 2 * 2
        assert found.per_gpu.kv_bytes_per_request == one
        assert found.per_gpu.kv_bytes == 3 * one
        assert (found.total.kv_bytes_per_request, found.total.kv_bytes) == (ranks * one, ranks * 3 * one)


@pytest.mark.parametrize(("tokens", "pages", "states"), [(1000, 1, 1), (3000, 3, 2), (100_000, 97, 2)])
def test_states_do_not_grow_with_the_request(tokens: int, pages: int, states: int) -> None:
    """Falcon-H1-34B: 72 layers with attention and a state. A page of 1,040 tokens, 2,048 bytes each, takes a
    state too. A request has the state of the block that it writes and the one at the end of the block before;
    start-up reserves three."""
    page = 1040 * 2048
    held = kvplan.size("falcon-h1-34b", engine="vllm@0.32", tokens=tokens).per_gpu
    assert held.kv_bytes_per_request == (pages + states) * 72 * page
    assert held.fixed_bytes_per_request == states * 72 * page
    assert held.reserved_bytes_per_request == (pages + 3) * 72 * page


# --------------------------------------------------------------------------- bytes and counts are one law

CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("llama-3.1-8b", "vllm@0.33", {}),
    ("llama-3.1-8b", "sglang", {}),
    ("llama-3.1-8b", "trtllm", {}),
    ("llama-3.1-8b", "tgi", {}),
    ("gemma-3-27b", "vllm@0.33", {}),
    ("gpt-oss-20b", "vllm@0.33", {}),
    ("gpt-oss-20b", "sglang", {}),
    ("deepseek-v2-lite", "vllm@0.33", {"tensor_parallel_size": 2}),
    ("qwen3-next-80b-a3b", "vllm@0.33", {}),
    ("falcon-h1-7b", "vllm@0.33", {}),
)


@pytest.mark.parametrize(("card", "engine", "more"), CASES)
@given(
    tokens=st.sampled_from([100, 1000, 5000, 20_000]),
    requests=st.integers(1, 20),
    memory=st.integers(2000, 20_000),
)
@settings(max_examples=12, deadline=None)
def test_bytes_and_counts_never_contradict(
    card: str, engine: str, more: dict[str, Any], tokens: int, requests: int, memory: int
) -> None:
    """bytes of N ≤ what the pool can give < bytes of N + 1, for the N that it runs."""
    asked, choice = kvplan.load_model(card), choose_engine(engine)
    base = Settings(tokens=tokens, max_model_len=tokens, kv_cache_memory=memory * MIB, **more)
    found = answered(base, asked, choice)
    pool = found.result.pool
    if found.result.refusal is not None or pool is None or found.likely is None:
        return
    usable, most = usable_blocks(found.result) * pool.bytes_per_block, found.likely.each
    for number in {requests, most, most + 1} - {0}:
        one = answered(replace(base, requests=number), asked, choice)
        if number <= most:
            assert one.result.per_gpu.kv_bytes <= usable
        elif most < pool.max_num_seqs:
            assert one.result.per_gpu.kv_bytes > usable


@pytest.mark.parametrize(("card", "engine", "more"), CASES)
def test_the_least_cache_runs_them_and_a_block_less_does_not(
    card: str, engine: str, more: dict[str, Any]
) -> None:
    asked, choice = kvplan.load_model(card), choose_engine(engine)
    base = Settings(tokens=4096, max_model_len=4096, requests=9, **more)
    least = least_memory(asked, choice, base)
    assert least is not None
    for memory, runs in ((least, True), (least - MIB, False)):
        holds = max_requests(asked, choice, replace(base, kv_cache_memory=memory)) >= 9
        assert holds is runs


def test_no_cache_is_enough_for_more_than_may_run() -> None:
    asked = Settings(tokens=100, requests=9, max_num_seqs=8)
    assert least_memory(kvplan.load_model(LLAMA), VLLM, asked) is None


def test_more_sequences_than_may_run_hold_bytes_all_the_same() -> None:
    """Bytes do not depend on max_num_seqs: 9 requests of 7 blocks."""
    found = of(LLAMA, tokens=100, requests=9, max_num_seqs=8, kv_cache_memory=64 * MIB)
    assert found.result.per_gpu.kv_bytes == 9 * 7 * LLAMA_BLOCK
    assert found.holds is False


def test_bytes_of_an_engine_without_blocks() -> None:
    asked = Settings(tokens=100, requests=7)
    result = answered(asked).result
    assert result.per_gpu.kv_bytes == 7 * 100 * 64
    assert bytes_held(model(FULL), GENERIC, asked, result) == 7 * 100 * 64
    assert least_memory(model(FULL), GENERIC, asked) == MIB
