"""``kv_retention``: first and newest tokens that stay, where an engine can drop what a model would keep."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.deployment.counts import ask
from kvplan.engines import ENGINES, choose_engine
from kvplan.engines.options import RETENTION
from kvplan.engines.retention import Retention, parsed
from kvplan.engines.tensors import layout_of
from kvplan.errors import KvplanError
from kvplan.settings import Settings

DENSE: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "hidden_size": 512,
    "intermediate_size": 1024, "vocab_size": 1000, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}  # fmt: skip
TOKEN = 4 * 2 * 2 * 64 * 2
"""Bytes of one token in all layers."""
MLA = "deepseek-v2-lite"
WINDOWS = "gemma-3-4b"
COMPRESSED = "deepseek-v4-flash"


def size(model: Any = DENSE, **options: Any) -> Any:
    return kvplan.size(model, **options)


@given(tokens=st.integers(1, 40_000), sinks=st.integers(0, 64), window=st.integers(1, 9000))
def test_the_textbook_keeps_sinks_and_window(tokens: int, sinks: int, window: int) -> None:
    kept = size(engine="generic", tokens=tokens, kv_retention=f"sinks:{sinks},window:{window}")
    assert kept.per_gpu.kv_bytes == TOKEN * min(tokens, sinks + window)
    assert kept.per_gpu.bytes_per_token == (TOKEN if tokens < sinks + window else 0)


@given(tokens=st.integers(1, 5000), window=st.integers(1, 5000))
def test_a_layer_with_a_shorter_window_is_as_it_was(tokens: int, window: int) -> None:
    model = {**DENSE, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 700}
    held = size(model, engine="generic", tokens=tokens, kv_retention=f"window:{window}").per_gpu.kv_bytes
    assert held == TOKEN * min(tokens, window, 700)


@given(
    memory=st.integers(2**24, 2**32), tokens=st.integers(1, 131_072), window=st.sampled_from([64, 1000, 4096])
)
def test_trtllm_admits_with_window_and_chunk(memory: int, tokens: int, window: int) -> None:
    """getRemainingBlocksToCompletion: min(tokens, window + min(max_num_tokens, max_input_len - window))."""
    result = size(
        engine="trtllm", tokens=tokens, kv_cache_memory=memory, kv_retention=f"window:{window}",
        max_num_batched_tokens=2048, max_num_seqs=10**6, max_model_len=131_072,
    )  # fmt: skip
    blocks = memory // TOKEN // 32
    if result.pool is None:
        assert blocks * 32 < max(window, tokens)
        return
    charged = -(-min(tokens, window + 2048) // 32)
    assert result.pool.requests_that_fit == blocks // charged
    held = result.per_gpu.kv_bytes_per_request
    assert held == TOKEN * 32 * min(-(-tokens // 32), -(-window // 32) + 1)


def test_trtllm_serves_requests_longer_than_the_window() -> None:
    """max_seq_len follows the windows only where a pool is too small for one."""
    plenty = size(engine="trtllm", tokens=100_000, kv_cache_memory=2**30, max_attention_window="4096")
    assert plenty.refusal is None
    scarce = size(engine="trtllm", tokens=100_000, kv_cache_memory=TOKEN * 3200, max_attention_window="4096")
    assert scarce.refusal is not None
    assert scarce.refusal.largest_max_model_len == 3200


def test_trtllm_takes_the_window_as_its_own_option() -> None:
    asked = {"engine": "trtllm", "tokens": 50_000, "kv_cache_memory": 2**30}
    one, other = size(**asked, kv_retention="window:4k"), size(**asked, max_attention_window="4096")
    assert one.pool == other.pool
    assert any("#11244" in text for text in one.warnings)


@given(
    answer=st.integers(1, 20_000),
    sinks=st.integers(0, 64),
    window=st.integers(1, 4096),
    slots=st.integers(1, 8),
)
def test_llamacpp_allocates_the_whole_slot(answer: int, sinks: int, window: int, slots: int) -> None:
    prompt = 1
    result = size(
        engine="llamacpp", tokens=prompt + answer, answer_tokens=answer, requests=slots,
        kv_retention=f"sinks:{sinks},window:{window}",
    )  # fmt: skip
    cells = -(-min(prompt + answer, sinks + window) // 256) * 256
    assert result.refusal is None
    assert result.settings["n_ctx_seq"] == cells
    assert result.total.kv_bytes == TOKEN * cells * slots


def test_llamacpp_refuses_a_prompt_that_fills_its_slot() -> None:
    asked = {"engine": "llamacpp", "tokens": 8192, "kv_retention": "sinks:4,window:4092"}
    assert size(**asked, answer_tokens=4097).refusal is None
    found = size(**asked, answer_tokens=4096).refusal
    assert found is not None
    assert found.help == ("--answer-tokens 4097",)


@pytest.mark.parametrize(
    ("engine", "model", "options", "words"),
    [
        ("trtllm", DENSE, {"kv_retention": "sinks:4,window:4096"}, "#14275"),
        ("trtllm", MLA, {"kv_retention": "window:4096"}, "MLA"),
        ("trtllm", DENSE, {"kv_retention": "window:4096", "max_attention_window": "128"}, "both say"),
        ("llamacpp", "qwen3-vl-4b", {"kv_retention": "window:4096"}, "M-RoPE"),
        ("llamacpp", WINDOWS, {"kv_retention": "window:4096"}, "--swa-full"),
        ("llamacpp", DENSE, {"kv_retention": "window:4096", "kv_unified": True}, "unified"),
        ("llamacpp", DENSE, {"kv_retention": "window:4096", "ctx_size": 4000}, "keeps fewer"),
        ("llamacpp", COMPRESSED, {"kv_retention": "window:4096"}, "compressed"),
        ("generic", COMPRESSED, {"kv_retention": "window:4096"}, "several tokens in one entry"),
        ("generic", DENSE, {"kv_retention": "window:4096", "dcp": 2}, "rank"),
        ("vllm", DENSE, {"kv_retention": "window:4096"}, "no option kv_retention"),
        ("sglang", DENSE, {"kv_retention": "window:4096"}, "no option kv_retention"),
        ("transformers", DENSE, {"kv_retention": "window:4096"}, "no option kv_retention"),
    ],
)
def test_what_is_refused(engine: str, model: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(KvplanError, match=words):
        size(model, engine=engine, tokens=9000, **options)


def test_every_engine_has_it_or_says_why_not() -> None:
    for name, engine in ENGINES.items():
        if RETENTION in engine.options:
            continue
        with pytest.raises(KvplanError) as caught:
            size(engine=name, tokens=9000, kv_retention="window:4096")
        assert caught.value.detail, name


def test_beside_another_engine_the_one_without_it_says_so() -> None:
    choices = [choose_engine(name) for name in ("vllm", "generic")]
    settings = make_settings(tokens=9000, kv_retention="window:4096")
    said = [
        any("does not count here" in text for text in ask(load_model(DENSE), choice, settings).warnings)
        for choice in choices
    ]
    assert said == [True, False]


@pytest.mark.parametrize(
    "text", ["", "sinks:4", "window:0", "window:4,window:5", "4096", "window=4", "tail:4,window:8"]
)
def test_what_is_no_retention(text: str) -> None:
    with pytest.raises(KvplanError):
        RETENTION.parse(text)


@given(sinks=st.integers(0, 10**6), window=st.integers(1, 10**6))
def test_it_reads_what_it_writes(sinks: int, window: int) -> None:
    written = RETENTION.parse(f"window:{window}, sinks:{sinks}")
    assert RETENTION.parse(written) == written
    assert parsed(written) == Retention(sinks, window)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("generic", {"kv_retention": "sinks:4,window:500"}),
        ("trtllm", {"kv_retention": "window:500", "max_num_batched_tokens": 512}),
        ("llamacpp", {"kv_retention": "sinks:4,window:500", "answer_tokens": 2900}),
    ],
)
def test_it_is_allocated_as_predicted(engine: str, options: dict[str, Any]) -> None:
    """What `kvplan validate` allocates: as many bytes, and room for each request that was said to fit."""
    settings = make_settings(tokens=3000, kv_cache_memory=32 * 2**20, **options)
    assert isinstance(settings, Settings)
    layout = layout_of(load_model(DENSE), engine, ENGINES[engine].versions[-1], settings)
    assert layout.bytes == layout.predicted_bytes
    for pool, group in ((layout.pools[group.pool], group) for group in layout.groups):
        assert layout.requests * layout.admitted(group, layout.tokens, 0) <= pool.usable
        more = (layout.requests + 1) * layout.admitted(group, layout.tokens, 0)
        assert more > pool.usable or engine == "llamacpp"


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("generic", {"kv_retention": "sinks:4,window:300"}),
        ("trtllm", {"kv_retention": "window:300", "max_num_batched_tokens": 256}),
        ("llamacpp", {"kv_retention": "sinks:4,window:300", "answer_tokens": 1400}),
    ],
)
def test_every_byte_of_it_is_read_back(engine: str, options: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    from kvplan.proof.validate.workload_test import workload_test

    settings = make_settings(tokens=1500, kv_cache_memory=4 * 2**20, **options)
    found = workload_test(layout_of(load_model(DENSE), engine, ENGINES[engine].versions[-1], settings))
    assert found.states_verified > 0
    assert (found.states_wrong, found.states_missing) == (0, 0)
    assert found.requests_admitted == found.requests_predicted
    assert found.bytes_allocated == found.bytes_predicted
