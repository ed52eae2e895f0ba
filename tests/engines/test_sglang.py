"""Engine ``sglang``: the pools that SGLang printed in public logs, defaults, laws and refusals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.engines.sglang.cache_layout.pools import split_stages
from kvplan.engines.sglang.engine import allocations
from kvplan.engines.sglang.start.memory_defaults import (
    Serving,
    automatic_mem_fraction_static,
    capacity_for,
    graph_max_batch,
    prefill_graph_sizes,
)
from kvplan.errors import KvplanError
from kvplan.plans.workload import Shape, Workload
from kvplan.results import SizeResult
from kvplan.units import GIB, KIB

DENSE = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 512, "dtype": "bfloat16",
         "max_position_embeddings": 8192}  # fmt: skip
PER_TOKEN = 4 * 2 * 4 * 64 * 2
GPT_OSS = {
    "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_hidden_layers": 24,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 2880,
    "sliding_window": 128, "max_position_embeddings": 131072, "dtype": "bfloat16",
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip


def gemma4(architecture: str, layers: int, sliding: int, **more: Any) -> dict[str, Any]:
    """A Gemma-4 text config: every (layers / (layers - sliding))-th layer is full, with heads of 512."""
    period = layers // (layers - sliding)
    return {
        "model_type": "gemma4_text", "architectures": [architecture], "num_hidden_layers": layers,
        "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2, "head_dim": 256,
        "global_head_dim": 512, "hidden_size": 2816, "sliding_window": 1024, "num_kv_shared_layers": 0,
        "attention_k_eq_v": True, "max_position_embeddings": 262144, "dtype": "bfloat16",
        "layer_types": (["sliding_attention"] * (period - 1) + ["full_attention"]) * (layers - sliding),
        **more,
    }  # fmt: skip


def ask(model: Any, **options: Any) -> SizeResult:
    return kvplan.size(model, engine="sglang", **options)


# Public logs.


def test_diffusion_gemma() -> None:
    """30 layers, page 256: full 70,656 tokens with K 0.68 GB, window 56,320 tokens with K 5.40 GB."""
    model = load_model(gemma4("DiffusionGemmaForBlockDiffusion", 30, 25))
    (found,) = allocations(
        model, make_settings(kv_cache_memory="40GiB", block_size=256, max_total_tokens=70_656 + 100)
    )
    assert [(one.name, one.tokens, one.words().split(",")[1].strip()) for one in found] == [
        ("full", 70_656, "K size: 0.68 GB"),
        ("window", 56_320, "K size: 5.40 GB"),
    ]
    assert found[1].k_bytes == 25 * 8 * 256 * 2 * (56_320 + 256)


def test_gemma4_native() -> None:
    model = load_model(gemma4("Gemma4ForConditionalGeneration", 48, 40, num_global_key_value_heads=1))
    result = ask(model, tokens=100, max_total_tokens=1710, kv_cache_memory="8GiB")
    assert result.settings["max_total_num_tokens"] == 1710
    assert result.settings["swa_max_total_num_tokens"] == 1368


def test_dspark_draft_pool() -> None:
    """Five layers of 4 KV heads and 128: 2,125,056 tokens, K 10.13 GB, V 10.13 GB."""
    config = {
        **DENSE,
        "num_hidden_layers": 5,
        "num_key_value_heads": 8,
        "num_attention_heads": 64,
        "head_dim": 128,
    }
    ((found,),) = allocations(
        load_model(config), make_settings(tp=2, kv_cache_memory="24GiB", max_total_tokens=2_125_056)
    )
    assert found.words() == "#tokens: 2125056, K size: 10.13 GB, V size: 10.13 GB"


# The automatic fraction.


@pytest.mark.parametrize(
    ("memory", "tp", "fraction"),
    [
        (24_564, 1, "0.704"), (40_960, 1, "0.823"), (46_068, 1, "0.843"),
        (81_559, 1, "0.830"), (81_559, 4, "0.819"), (81_559, 8, "0.812"),
        (143_771, 1, "0.903"), (143_771, 4, "0.897"), (143_771, 8, "0.893"),
        (183_359, 1, "0.854"), (183_359, 4, "0.852"), (183_359, 8, "0.849"),
        (None, 1, "0.95"),
    ],
)  # fmt: skip
def test_automatic_fraction(memory: int | None, tp: int, fraction: str) -> None:
    assert automatic_mem_fraction_static(memory, tp) == Fraction(fraction)


def test_the_fraction_is_rounded_as_floating_point_is() -> None:
    """64,512 of 81,920 MiB are 0.7875, which is a little less in binary."""
    serving = Serving(tp=16, mla=True, graph_batch=512)
    assert automatic_mem_fraction_static(81_920, serving=serving) == Fraction("0.787")


def test_automatic_fraction_of_other_servings() -> None:
    memory = 81_559
    base = automatic_mem_fraction_static(memory)
    assert automatic_mem_fraction_static(memory, serving=Serving(mla=True)) < base
    assert automatic_mem_fraction_static(
        memory, serving=Serving(tp=8, attn_dp=8)
    ) < automatic_mem_fraction_static(memory, 8)
    small = Serving(chunked_prefill_size=2048, role="decode", prefill_graphs=False)
    assert automatic_mem_fraction_static(memory, serving=small) == Fraction(
        round(1000 * Fraction(memory - 10 * KIB, memory)), 1000
    )
    assert automatic_mem_fraction_static(memory, serving=Serving(vision=(24, 1024))) == base * Fraction(
        95, 100
    )


def test_capacities() -> None:
    assert [capacity_for(gib * KIB).chunked_prefill_size for gib in (16, 24, 48, 80, 141, 180)] == [
        2048, 4096, 4096, 8192, 8192, 16384,
    ]  # fmt: skip
    assert [graph_max_batch(gib * KIB, 1) for gib in (16, 24, 48, 80, 180)] == [8, 48, 32, 256, 512]
    assert graph_max_batch(80 * KIB, 4) == 512
    assert graph_max_batch(80 * KIB, 4, 100) == 100
    assert len(prefill_graph_sizes(8192)) == 58


# Cells and pages.


def test_dense_tokens_in_the_memory() -> None:
    pool = ask(DENSE, tokens=1000, kv_cache_memory=PER_TOKEN * 10_001 + 5).pool
    assert pool is not None
    assert (pool.kv_tokens, pool.requests_that_fit, pool.bytes_per_block) == (10_001, 10, PER_TOKEN)
    paged = ask(DENSE, tokens=1000, kv_cache_memory=PER_TOKEN * 10_001, block_size=64).pool
    assert paged is not None
    assert (paged.kv_tokens, paged.requests_that_fit) == (10_001 // 64 * 64, 9_984 // 1024)


def test_heads_are_repeated_but_never_divided_unevenly() -> None:
    config = {**DENSE, "num_key_value_heads": 6, "num_attention_heads": 12, "head_dim": 64}
    refusal = ask(config, tokens=1, tp=4).refusal
    assert refusal is not None
    assert refusal.message == "6 KV heads cannot be divided over 4 tensor-parallel ranks"
    assert refusal.help == ("--tp 2",)
    assert ask(DENSE, tokens=1, tp=8).per_gpu.kv_bytes == 4 * 2 * 1 * 64 * 2


@pytest.mark.parametrize(
    ("gpu", "options", "width"),
    [
        ("h100", {}, 576 * 2),
        ("h100", {"kv_cache_dtype": "fp8"}, 656),
        ("h100", {"kv_cache_dtype": "fp8", "dsa_decode_backend": "trtllm"}, 576),
        ("b200", {}, 576),
        ("b200", {"kv_cache_dtype": "bfloat16"}, 576 * 2),
    ],
)
def test_sparse_latents(gpu: str, options: dict[str, Any], width: int) -> None:
    result = ask("deepseek-v3.2", gpu=gpu, tp=8, tokens=64, **options)
    assert result.per_gpu.kv_bytes == 61 * 64 * (width + 132)
    assert result.settings["page_size"] == 64


@pytest.mark.parametrize(
    ("model", "gpu", "page"),
    [
        ("llama-3.1-8b", "h100", 1), ("llama-3.1-8b", "b200", 64), ("llama-3.1-8b", "a100-sxm-80gb", 1),
        ("deepseek-v3", "h100", 1), ("deepseek-v3", "b200", 64), ("deepseek-v4-flash", "h200", 256),
        ("gpt-oss-20b", "b200", 64), ("gpt-oss-20b", "h100", 1), ("mimo-v2-flash", "b200", 128),
        ("qwen3-next-80b-a3b", "b200", 1), ("falcon-h1-7b", "b200", 1), ("lfm2-1.2b", "b200", 1),
    ],
)  # fmt: skip
def test_page_sizes(model: str, gpu: str, page: int) -> None:
    assert ask(model, gpu=gpu, tokens=100).settings["page_size"] == page


@pytest.mark.parametrize(
    ("backend", "asked", "page"), [("flashmla", 1, 64), ("trtllm_mla", 32, 32), ("fa3", 16, 16)]
)
def test_pages_of_a_named_backend(backend: str, asked: int, page: int) -> None:
    gpu = "b200" if backend == "trtllm_mla" else "h100"
    result = ask("deepseek-v3", gpu=gpu, tokens=100, attention_backend=backend, block_size=asked)
    assert result.settings["page_size"] == page


def test_a_backend_that_the_gpu_does_not_have() -> None:
    with pytest.raises(KvplanError) as caught:
        ask("deepseek-v3", gpu="h100", tokens=100, attention_backend="trtllm_mla")
    assert caught.value.code == "unsupported-setting"


def test_layers_that_share_a_cache_have_rows_all_the_same() -> None:
    model = load_model("gemma-3n-e4b")
    assert ask(model, tokens=100).per_gpu.kv_bytes == 35 * 100 * 2 * 2 * 256 * 2


# Windows.


def test_two_pools_in_the_ratio() -> None:
    full, window = 12 * 2048, 12 * 2048
    memory = 10 * GIB
    tokens = int(memory / (full + Fraction("0.8") * window))
    result = ask(GPT_OSS, tokens=4096, kv_cache_memory=memory)
    assert result.settings["max_total_num_tokens"] == tokens
    assert result.settings["swa_max_total_num_tokens"] == int(tokens * Fraction("0.8"))
    half = ask(GPT_OSS, tokens=4096, kv_cache_memory=memory, swa_full_tokens_ratio="0.5")
    assert half.settings["max_total_num_tokens"] == int(memory / (full + Fraction(window, 2)))
    off = ask(GPT_OSS, tokens=4096, kv_cache_memory=memory, disable_hybrid_swa_memory=True)
    assert off.settings["max_total_num_tokens"] == memory // (full + window)


def test_a_window_pool_for_the_known_need() -> None:
    """Without a radix cache and with a bound of requests, the window pool is what they need.

    gpt-oss's own window is a token less than the config's 128.
    """
    result = ask(GPT_OSS, tokens=4096, kv_cache_memory="10GiB", disable_radix_cache=True, max_num_seqs=16)
    needed = (127 + 128 + 1 + 1) * 16 + 2 * 8192 + 1
    assert result.settings["swa_max_total_num_tokens"] == needed
    assert result.settings["max_total_num_tokens"] == (10 * GIB - needed * 12 * 2048) // (12 * 2048)


@pytest.mark.parametrize(
    "card", ["gemma-3-12b", "gemma-2-9b", "olmo-3-7b", "exaone-4.0-32b", "mistral-7b-v0.1"]
)
def test_everywhere_else_windows_keep_all_tokens(card: str) -> None:
    result = ask(card, tokens=32768 if card != "gemma-2-9b" else 8192)
    generic = kvplan.size(card, engine="generic", tokens=1)
    assert result.per_gpu.kv_bytes == generic.per_gpu.kv_bytes * result.request.tokens
    assert any("keeps all tokens" in warning for warning in result.warnings)


def test_a_pool_below_the_window_is_refused() -> None:
    result = ask(GPT_OSS, tokens=10, kv_cache_memory=2048 * 24 * 100)
    assert result.refusal is not None
    assert "window pool" in result.refusal.message


# States.


def test_states_take_their_share_first() -> None:
    memory = 20 * GIB
    result = ask("qwen3-next-80b-a3b", tp=2, tokens=8192, kv_cache_memory=memory)
    conv, ssm = 3 * (2 * 8 * 128 + 16 * 128) * 2, 16 * 128 * 128 * 4
    slot = 36 * (conv + ssm)
    share = memory * Fraction(9, 19)
    slots = int((share - slot) // slot)
    tokens = (memory - (slots + 1) * slot) // (12 * 1 * 2 * 256 * 2)
    assert result.settings["max_mamba_cache_size"] == slots
    assert result.settings["max_total_num_tokens"] == tokens
    assert result.settings["max_running_requests"] == slots // 5
    assert result.per_gpu.fixed_bytes_per_request == 5 * slot


@pytest.mark.parametrize(
    ("options", "slots"),
    [
        ({}, 5), ({"disable_overlap_schedule": True}, 3), ({"disable_radix_cache": True}, 1),
        ({"mamba_radix_cache_strategy": "no_buffer"}, 3),
        ({"mamba_radix_cache_strategy": "extra_buffer_lazy"}, 4),
    ],
)  # fmt: skip
def test_slots_of_a_request(options: dict[str, Any], slots: int) -> None:
    result = ask("qwen3-next-80b-a3b", tokens=100, **options)
    assert result.settings["state_slots_per_request"] == slots


def test_lfm2_is_charged_three_slots() -> None:
    assert ask("lfm2-1.2b", tokens=100).settings["state_slots_per_request"] == 3


# DeepSeek-V4.


def test_deepseek_v4() -> None:
    """Records of 584 B in padded pages, 0.1 window tokens a token, states of ratio 128 for 256 requests."""
    memory = 40 * GIB
    window = 43 * 585 + Fraction(8, 256) * 21 * 16 * (512 + 128)
    full = Fraction(1, 10) * window + 21 * Fraction(585 + 132, 4) + 20 * Fraction(864, 128)
    fixed = ((256 + 2) * 128 + 1 + 127) // 128 * 128 * 2 * 512 * 4 * 20
    tokens = int((memory - fixed) / full) // 256 * 256
    result = ask("deepseek-v4-flash", tokens=4096, kv_cache_memory=memory)
    assert result.settings["max_total_num_tokens"] == tokens
    assert result.settings["swa_max_total_num_tokens"] == tokens // 10 // 256 * 256


# Speculation, parallelism, tables.


def test_a_draft_inflates_the_cell() -> None:
    base = ask("deepseek-v3.2", tp=8, tokens=64, kv_cache_memory="20GiB")
    draft = ask(
        "deepseek-v3.2",
        tp=8,
        tokens=64,
        kv_cache_memory="20GiB",
        speculative_method="mtp",
        num_speculative_tokens=1,
    )
    cell = 61 * (1152 + 132)
    assert base.pool is not None
    assert draft.pool is not None
    assert base.pool.bytes_per_block == 64 * cell
    assert draft.pool.bytes_per_block == 64 * (cell + 1152 + 132)
    assert draft.settings["max_running_requests"] == 48


def test_an_unknown_draft_is_refused() -> None:
    with pytest.raises(KvplanError) as caught:
        ask(DENSE, tokens=10, speculative_method="eagle", num_speculative_tokens=3)
    assert any("--draft-layers" in line for line in caught.value.help)
    eagle = ask(DENSE, tokens=10, speculative_method="eagle", num_speculative_tokens=3, draft_layers=1)
    assert eagle.per_gpu.bytes_per_token == PER_TOKEN + PER_TOKEN // 4


def test_the_last_stages_take_the_remainder() -> None:
    layers = load_model({**DENSE, "num_hidden_layers": 7}).layers()
    assert [len(stage) for stage in split_stages(layers, 3)] == [2, 2, 3]


def test_running_requests_and_their_table() -> None:
    result = ask(DENSE, tokens=100, kv_cache_memory=PER_TOKEN * 100_000, max_model_len=8192)
    assert result.settings["max_running_requests"] == 4096
    assert result.settings["req_to_token_bytes"] == 4 * 4097 * (8192 + 4)
    few = ask(DENSE, tokens=100, kv_cache_memory=PER_TOKEN * 1000)
    assert few.settings["max_running_requests"] == 500


def test_attention_groups() -> None:
    result = ask(
        "deepseek-v3",
        tp=8,
        dp=8,
        enable_dp_attention=True,
        tokens=100,
        max_num_seqs=80,
        kv_cache_memory="9GiB",
    )
    assert (result.settings["attn_tp_size"], result.settings["max_running_requests"]) == (1, 10)


def test_context_parallel_ranks_widen_the_pool() -> None:
    one = ask("deepseek-v3", tp=8, tokens=100, kv_cache_memory="9GiB").pool
    four = ask("deepseek-v3", tp=8, dcp=4, tokens=100, kv_cache_memory="9GiB").pool
    assert one is not None
    assert four is not None
    assert four.kv_tokens == 4 * one.kv_tokens


# Laws.


@given(tokens=st.integers(0, 30_000), more=st.integers(0, 3000), page=st.sampled_from([1, 16, 64, 256]))
def test_bytes_never_fall_and_rounding_is_a_page(tokens: int, more: int, page: int) -> None:
    def size(length: int) -> int:
        return ask(GPT_OSS, tokens=length, block_size=page).per_gpu.kv_bytes_per_request

    assert size(tokens) <= size(tokens + more)
    full = 12 * 2048
    assert 0 <= size(tokens) - full * tokens - full * min(tokens, 127 + 128 + page) <= 2 * full * page


@given(memory=st.integers(2**28, 2**36), page=st.sampled_from([1, 16, 64]), ratio=st.integers(1, 10))
def test_pools_stay_within_the_memory(memory: int, page: int, ratio: int) -> None:
    result = ask(
        GPT_OSS, tokens=10, block_size=page, kv_cache_memory=memory, swa_full_tokens_ratio=Fraction(ratio, 10)
    )
    if result.refusal is None:
        full, window = result.settings["max_total_num_tokens"], result.settings["swa_max_total_num_tokens"]
        assert 12 * 2048 * (full + window) <= memory
        assert memory - 12 * 2048 * (full + window) < 12 * 2048 * 3 * page + 12 * 2048


# Refusals.


@pytest.mark.parametrize(
    ("dtype", "gpu", "words"),
    [
        ("nvfp4", "h100", "use fp8_e4m3"),
        ("nvfp4", "a100-sxm-80gb", "use fp8_e4m3"),
        ("mxfp8", "h200", "use fp8_e4m3"),
        ("int8", "h100", "use fp8_e4m3"),
        ("q8_0", "h100", "use fp8_e4m3"),
        ("fp4_mx_block16", "h100", "use fp8_e4m3"),
    ],
)
def test_unsupported_dtypes_name_a_supported_one(dtype: str, gpu: str, words: str) -> None:
    with pytest.raises(KvplanError) as caught:
        ask(DENSE, tokens=10, kv_cache_dtype=dtype, gpu=gpu)
    assert caught.value.code == "unsupported-dtype"
    assert words in caught.value.help
    supported = words.removeprefix("use ")
    assert ask(DENSE, tokens=10, kv_cache_dtype=supported, gpu=gpu).settings["kv_cache_dtype"] == supported


def test_four_bit_caches_on_blackwell() -> None:
    assert (
        ask(DENSE, tokens=1, kv_cache_dtype="nvfp4", gpu="b200").per_gpu.bytes_per_token
        == PER_TOKEN * 9 // 32
    )
    workspace = 2 * 4 * 64
    sm120 = ask(DENSE, tokens=1, kv_cache_dtype="nvfp4", gpu="rtx-pro-6000-blackwell-96gb")
    assert sm120.per_gpu.bytes_per_token == PER_TOKEN * 9 // 32 + workspace
    triton = ask(DENSE, tokens=1, kv_cache_dtype="fp4_mx_block16", attention_backend="triton")
    assert triton.per_gpu.bytes_per_token == PER_TOKEN * 9 // 32


@pytest.mark.parametrize(
    "card", ["recurrentgemma-2b", "rwkv-4-169m", "xlstm-7b", "jamba-1.5-mini", "zamba2-2.7b"]
)
def test_models_that_sglang_has_no_class_for(card: str) -> None:
    result = ask(card, tokens=100)
    assert result.refusal is not None
    assert result.refusal.code == "unsupported-model"


def test_an_encoder_has_rows_and_tokens_of_the_same_pool() -> None:
    """6 layers of the encoder, 4 with self and cross attention; 1,500 tokens beside the text."""
    config = {
        "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 512,
        "encoder_layers": 6, "decoder_layers": 4, "decoder_attention_heads": 8, "encoder_attention_heads": 8,
        "max_source_positions": 1500, "max_target_positions": 448, "torch_dtype": "bfloat16",
    }  # fmt: skip
    assert ask(config, tokens=100).per_gpu.kv_bytes == (100 + 1500) * (6 + 2 * 4) * 2 * 8 * 64 * 2
    with pytest.raises(KvplanError) as caught:
        ask("whisper-base", tokens=100)  # a card without a config does not say how many layers encode
    assert caught.value.code == "unknown-rule"


def test_settings_that_do_not_start() -> None:
    longer = ask("llama-3.1-8b", tokens=100, max_model_len=200_000)
    assert longer.refusal is not None
    assert (longer.refusal.code, longer.refusal.largest_max_model_len) == ("max-model-len", 131072)
    refused: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("qwen3-next-80b-a3b", {"mamba_radix_cache_strategy": "no_buffer"}, "overlapped"),
        ("lfm2-1.2b", {"block_size": 16, "disable_overlap_schedule": True}, "pages of 1"),
        ("lfm2-1.2b", {"mamba_radix_cache_strategy": "extra_buffer"}, "no extra_buffer"),
        ("llama-3.1-8b", {"mamba_radix_cache_strategy": "extra_buffer"}, "needs states"),
        ("mamba-2.8b", {"mamba_radix_cache_strategy": "extra_buffer"}, "needs states"),
        ("deepseek-v4-flash", {"disable_hybrid_swa_memory": True}, "disable-hybrid-swa-memory"),
        ("falcon-h1-7b", {"tp": 16}, "state heads"),
    )
    for card, options, words in refused:
        found = ask(card, tokens=100, **options).refusal
        assert found is not None, card
        assert words in found.message
        assert found.help


def test_without_graphs_more_memory_is_static() -> None:
    """arg_groups/cuda_graph_hook.py: --disable-cuda-graph keeps no room for any graph; asked of
    0.5.23: 0.841 on an H100, 0.910 on an H200."""
    for gpu, graphs, none in (("h100-sxm-80gb", 0.83, 0.841), ("h200-sxm-141gb", 0.904, 0.91)):
        found = [
            kvplan.size("llama-2-70b", engine="sglang", gpu=gpu, enforce_eager=eager).settings[
                "mem_fraction_static"
            ]
            for eager in (False, True)
        ]
        assert [float(share) for share in found] == [graphs, none]


def test_prompts_that_are_not_divided() -> None:
    found = kvplan.size(
        "qwen3-1.7b", engine="sglang", gpu="a100-sxm-80gb", settings={"chunked_prefill_size": -1}
    )
    assert found.settings["chunked_prefill_size"] == -1
    assert float(found.settings["mem_fraction_static"]) < 0.7


@pytest.mark.parametrize(("kv", "starts"), [("auto", True), ("bfloat16", True), ("fp8_e4m3", False)])
def test_sparse_attention_with_sinks_keeps_bfloat16(kv: str, starts: bool) -> None:
    """Hy 4: sgl-project/sglang 0.5.23 arg_groups/overrides.py, "Learnable DSA attention sinks"."""
    from tests.engines.vllm_class_cases import MADE

    found = kvplan.size(MADE["hy-4"].config, engine="sglang", kv_cache_dtype=kv, tokens=1024)
    assert (found.refusal is None) == starts


def test_a_prompt_leaves_seven_tokens_of_the_context() -> None:
    """validate_input_length: a prompt is shorter than max_req_len - 5, and that is the context less one."""
    asked: dict[str, Any] = {"engine": "sglang", "gpu": "h100", "answer_tokens": 1, "tokens": 5931}
    refusal = kvplan.size("qwen3-30b-a3b", max_model_len=5936, **asked).refusal
    assert refusal is not None
    assert refusal.help == ("--max-model-len 5937",)
    assert kvplan.size("qwen3-30b-a3b", max_model_len=5937, **asked).ok
    load = Workload((Shape(5930, 1),))
    found = kvplan.plan("qwen3-30b-a3b", workload=load, gpu="h100", engine="sglang", requests=4, top=1)
    assert found.plan is not None
    assert dict(found.plan.serve)["context_length"] == 5937
