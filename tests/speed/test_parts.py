"""Formulas against brute force and hand-computed cases; bytes against the terms of the generic engine."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.files.speed import speed_assumptions, speed_inputs
from kvplan.planning.speed import (
    Chunk,
    Deployment,
    Load,
    estimate,
    expected_share,
    link_bandwidth,
    link_kinds,
    prefill_seconds,
    speed_profile,
    step_seconds,
)
from kvplan.planning.speed.attention import query_key_pairs
from kvplan.planning.speed.build import own_entry
from kvplan.planning.speed.links import Fabric
from kvplan.planning.speed.peaks import peak_for
from kvplan.simulation.time.speed_clock import SpeedClock
from kvplan.weights.formats import MXFP4, NVFP4, fp8_block, grouped
from tests.speed.conftest import Make

BILLION = 10**9


@pytest.mark.parametrize(("experts", "per_token", "tokens"), [(4, 1, 3), (4, 2, 2), (5, 2, 3), (6, 4, 2)])
def test_the_union_of_experts_is_the_expectation_over_all_choices(
    experts: int, per_token: int, tokens: int
) -> None:
    choices = list(combinations(range(experts), per_token))
    every = [len(set().union(*chosen)) for chosen in product(choices, repeat=tokens)]
    assert expected_share(experts, per_token, tokens) == pytest.approx(sum(every) / len(every) / experts)


def test_one_token_touches_its_own_experts_and_many_touch_all() -> None:
    assert expected_share(128, 8, 1) == pytest.approx(8 / 128)
    assert expected_share(128, 8, 10_000) == pytest.approx(1.0)
    assert expected_share(8, 8, 1) == 1.0
    assert expected_share(128, 8, 0) == 0.0


@given(tokens=st.integers(1, 60), before=st.integers(0, 60), span=st.none() | st.integers(1, 90))
def test_query_key_pairs_are_those_that_the_mask_leaves(tokens: int, before: int, span: int | None) -> None:
    seen = [before + index for index in range(1, tokens + 1)]
    expected = sum(count if span is None else min(count, span) for count in seen)
    # A window that is full before the first token has no growing part; the formula counts the query itself.
    assert query_key_pairs(tokens, before, span) == pytest.approx(expected)


CACHED = [
    "llama-3.1-8b",
    "gemma-3-12b",
    "openai/gpt-oss-20b",
    "deepseek-v3",
    "qwen3-next-80b-a3b",
    "llama-4-scout",
    "mamba-1.4b",
    "kimi-linear-48b-a3b",
    "nemotron-h-8b",
]


@pytest.mark.parametrize("model", CACHED)
@pytest.mark.parametrize("tokens", [1, 127, 1024, 1025, 40_000])
def test_cache_bytes_are_the_terms(profile: Make, model: str, tokens: int) -> None:
    """Windows, chunks, latents and states: what the generic engine sums from the same terms."""
    expected = kvplan.size(model, engine="generic", tokens=tokens).per_gpu.kv_bytes_per_request
    assert profile(model, "b200").cache_bytes(tokens) == expected


@pytest.mark.parametrize(("model", "ways"), [("llama-3.1-8b", 8), ("deepseek-v3", 8), ("gemma-3-27b", 4)])
def test_cache_bytes_are_the_terms_of_one_rank(profile: Make, model: str, ways: int) -> None:
    expected = kvplan.size(model, engine="generic", tokens=9000, tp=ways).per_gpu.kv_bytes_per_request
    assert profile(model, "b200", tensor_parallel_size=ways).cache_bytes(9000) == expected


def test_context_parallel_ranks_share_the_tokens(profile: Make) -> None:
    served: dict[str, Any] = {"tensor_parallel_size": 8, "decode_context_parallel_size": 4}
    expected = kvplan.size("deepseek-v3", engine="generic", tokens=9001, **served).per_gpu
    made = profile("deepseek-v3", "b200", **served)
    assert made.cache_bytes(9001) == expected.kv_bytes_per_request
    whole = profile("deepseek-v3", "b200", tensor_parallel_size=8)
    assert step_seconds(made, 64, ((60_000, 1.0),)) < step_seconds(whole, 64, ((60_000, 1.0),))


def test_a_state_is_read_and_written(profile: Make) -> None:
    stage = profile("mamba-1.4b", dtype="bfloat16").stages[0]
    held = sum(cache.held_bytes(5000) for cache in stage.caches)
    assert sum(cache.step_bytes(5000) for cache in stage.caches) == 2 * held


def test_an_indexer_lets_only_its_tokens_through(profile: Make) -> None:
    """DeepSeek-V3.2: 61 layers read 2,048 latents of 1,152 B, and every token's index key of 132 B."""
    caches = profile("deepseek-v3.2", "b200", tensor_parallel_size=8).stages[0].caches
    assert sum(cache.step_bytes(100_000) for cache in caches) == 61 * (2048 * 1152 + 100_000 * 132)


def test_weight_bytes_leave_the_embedding_out(profile: Make) -> None:
    """Llama-3.1-8B: 8,030,261,248 parameters, of which 128,256 · 4,096 are only looked up."""
    assert profile("llama-3.1-8b").weight_bytes() == 2 * (8_030_261_248 - 128_256 * 4096)


def test_a_tied_embedding_is_read_as_the_head(profile: Make) -> None:
    inventory = kvplan.load_model("qwen3-0.6b")
    assert inventory.vocab_size == 151_936
    read = profile("qwen3-0.6b").weight_bytes()
    assert read >= 2 * 151_936 * 1024 + 28 * 2 * 3 * 1024 * 3072


def test_a_towers_weights_are_not_read_by_decoding(profile: Make) -> None:
    stage = profile("gemma-3-12b").stages[0]
    assert stage.weight_bytes < 2 * 12 * BILLION


def ideal(**values: float) -> dict[str, float]:
    """Every efficiency 1, every latency next to nothing."""
    table = speed_assumptions()
    made = {}
    for name, entry in table.by_name.items():
        if entry.unit == "share":
            made[name] = 1.0
        elif entry.unit == "s":
            made[name] = 1e-15
    made.update(values)
    return {name.replace(".", "__"): value for name, value in made.items()}


def test_a_decode_step_by_hand(profile: Make) -> None:
    """Llama-3.1-8B on an H100, everything ideal: (15.01e9 B of weights + 4 · 1,000 · 131,072 B) / 3.35e12."""
    made = profile("llama-3.1-8b", table=speed_assumptions().replaced(**ideal()))
    moved = 15_009_849_344 + 4 * 1000 * 131_072
    assert step_seconds(made, 4, ((1000, 1.0),)) == pytest.approx(moved / 3.35e12, rel=1e-3)


def test_a_prefill_by_hand(profile: Make) -> None:
    """4,096 tokens: 2 · 6.98e9 · 4,096 in the layers, 2 · 0.525e9 for one logit row, causal attention."""
    made = profile("llama-3.1-8b", table=speed_assumptions().replaced(**ideal()))
    layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    attention = 32 * 32 * 4 * 128 * (4096 * 4097 / 2)
    head = max(2 * 128_256 * 4096 / 3.35e12, 2 * 128_256 * 4096 / 989e12)
    expected = (2 * layers * 4096 + attention) / 989e12 + head
    assert prefill_seconds(made, 4096) == pytest.approx(expected, rel=1e-3)


def test_a_prompt_longer_than_the_budget_takes_several_chunks(profile: Make) -> None:
    made = profile("llama-3.1-8b", max_num_batched_tokens=2048)
    once = profile("llama-3.1-8b", max_num_batched_tokens=16384)
    assert prefill_seconds(made, 8192) > prefill_seconds(once, 8192)
    assert prefill_seconds(made, 2048) == pytest.approx(prefill_seconds(once, 2048))


def test_experts_are_read_as_far_as_they_are_hit(profile: Make) -> None:
    table = speed_assumptions().replaced(**ideal())
    made = profile("mixtral-8x7b", table=table)
    stage = made.stages[0]
    (experts,) = stage.experts
    assert (experts.count, experts.per_token) == (8, 2)
    assert experts.all.bytes == 32 * 8 * 3 * 4096 * 14336 * 2
    dense = stage.weight_bytes - experts.all.bytes
    cache = made.cache_bytes(100)
    expected = (dense + experts.all.bytes / 4 + cache) / 3.35e12
    assert step_seconds(made, 1, ((100, 1.0),)) == pytest.approx(expected, rel=1e-3)


def test_a_format_computes_in_what_the_gpu_has() -> None:
    ampere, ada, hopper, blackwell = map(kvplan.load_gpu, ("a100-sxm-80gb", "l40s", "h100", "b200"))
    eight = fp8_block(128, 128)
    assert [peak_for(eight, "bfloat16", gpu).dtype for gpu in (ampere, ada, hopper)] == ["bf16", "fp8", "fp8"]
    assert peak_for(eight, "bfloat16", ampere).weights_only
    assert not peak_for(eight, "bfloat16", hopper).weights_only
    assert peak_for(NVFP4, "bfloat16", blackwell).dtype == "fp4"
    assert peak_for(NVFP4, "bfloat16", hopper).weights_only
    assert peak_for(MXFP4, "bfloat16", hopper).dtype == "bf16"
    assert peak_for(MXFP4, "bfloat16", blackwell).dtype == "fp8"
    assert peak_for(grouped(4, 128, zeros=True), "float16", blackwell).weights_only


def test_blocks_of_8_bit_have_a_share_of_their_own(profile: Make) -> None:
    """Qwen3-8B-FP8 has a scale for each block, NVIDIA's Llama one for each matrix; on an A100 neither counts:
    both are multiplied in 16 bit."""
    hopper, ampere = kvplan.load_gpu("h100"), kvplan.load_gpu("a100-sxm-80gb")
    blocks, whole = "Qwen/Qwen3-8B-FP8", "nvidia/Llama-3.1-8B-Instruct-FP8"
    used = {
        (model, gpu.slug): {entry.name for entry in profile(model, gpu).assumptions}
        for model in (blocks, whole) for gpu in (hopper, ampere)
    }  # fmt: skip
    assert "compute_efficiency.8-block" in used[blocks, hopper.slug]
    assert "compute_efficiency.8-block" not in used[whole, hopper.slug]
    assert "compute_efficiency.8" in used[whole, hopper.slug]
    for model in (blocks, whole):
        assert not {"compute_efficiency.8", "compute_efficiency.8-block"} & used[model, ampere.slug]
        assert "compute_efficiency.16.ampere" in used[model, ampere.slug]


def test_a_prompt_step_within_the_graphs_is_not_launched_kernel_by_kernel(profile: Make) -> None:
    """512 tokens under vLLM: beyond, launching lasts 28 · 10 ms on a model without work to speak of."""
    table = speed_assumptions().replaced(**ideal(**{"prompt_layer_seconds.vllm": 0.01}))
    made, eager = profile("qwen3-0.6b", table=table), profile("qwen3-0.6b", table=table, enforce_eager=True)
    assert made.graph_tokens == 512
    assert eager.graph_tokens == 0
    floor = 28 * 0.01
    assert prefill_seconds(made, 500) < floor <= prefill_seconds(made, 513)
    assert prefill_seconds(eager, 500) >= floor
    answers = ((100, 1.0),)
    assert step_seconds(made, 12, answers, Chunk(500.0, 500)) < floor
    assert step_seconds(made, 13, answers, Chunk(500.0, 500)) >= floor
    clock = SpeedClock(made)
    assert clock.mixed(12, 1200, 512, [(500, 0)]) < floor <= clock.mixed(13, 1300, 513, [(500, 0)])


def test_an_older_release_has_its_own_host(profile: Make) -> None:
    old, new, asked = (
        {entry.name for entry in profile("llama-3.1-8b", release=release).assumptions}
        for release in ((0, 11), (), (0, 14, 1))
    )
    assert "host_seconds.vllm-0.13" in old
    assert "host_seconds.vllm" not in old
    assert "host_seconds.vllm" in new
    assert new == asked
    table = speed_assumptions()
    assert own_entry(table, "host_seconds", "vllm", (0, 13, 5)) == "host_seconds.vllm-0.13"
    assert own_entry(table, "host_seconds", "sglang", (0, 5)) == "host_seconds.sglang"
    assert own_entry(table, "host_seconds", "llamacpp", ()) == "host_seconds.other"


def test_behind_an_indexer_prompts_are_computed_in_the_latent(profile: Make) -> None:
    """DeepSeek-V3.2 differs from V3.1 by its indexer: 2 · 128 heads · (2 · 512 + 64) operations a pair in
    place of 2 · 128 · (192 + 128)."""
    eight = {"tensor_parallel_size": 8}
    plain = profile("deepseek-ai/DeepSeek-V3.1", kvplan.load_gpu("h200"), **eight).stages[0].caches
    sparse = profile("deepseek-ai/DeepSeek-V3.2", kvplan.load_gpu("h200"), **eight).stages[0].caches
    (dense,) = (cache for cache in plain if cache.flops.decode)
    latent = max(sparse, key=lambda cache: cache.flops.decode / 61)
    assert dense.flops.prefill == 61 * 2 * 128 / 8 * (192 + 128)
    assert latent.flops.prefill == latent.flops.decode == dense.flops.decode == 61 * 2 * 128 / 8 * (1024 + 64)


def test_unknown_rates_are_refused(profile: Make) -> None:
    h100 = kvplan.load_gpu("h100")
    with pytest.raises(kvplan.KvplanError, match="bandwidth of h100-sxm-80gb is not known"):
        profile("llama-3.1-8b", replace(h100, bandwidth_bytes_per_second=None))
    with pytest.raises(kvplan.KvplanError, match="rate of h100-sxm-80gb is not known"):
        profile("llama-3.1-8b", replace(h100, dense_tflops={}))
    with pytest.raises(kvplan.KvplanError, match="fp8 rate"):
        profile("llama-3.1-8b", replace(h100, dense_tflops={"bf16": 989.0}), quantization="fp8")
    with pytest.raises(kvplan.KvplanError, match="float32"):
        profile("llama-3.1-8b", dtype="float32")
    with pytest.raises(kvplan.KvplanError, match="no network is named"):
        profile("llama-3.1-405b", tensor_parallel_size=16)
    inventory, _, table = speed_inputs(kvplan.load_model("llama-3.1-8b"))
    with pytest.raises(kvplan.KvplanError, match="has an encoder"):
        speed_profile(
            kvplan.load_model("flan-t5-base"), kvplan.load_gpu("h100"), inventory, 0, Deployment(), table
        )


def test_ranks_on_two_nodes_talk_over_the_network(profile: Make) -> None:
    near = profile("llama-3.1-70b", tensor_parallel_size=8)
    far = profile("llama-3.1-70b", tensor_parallel_size=16, network="infiniband-ndr")
    assert prefill_seconds(far, 8192) > prefill_seconds(near, 8192)
    names = {entry.name for entry in far.assumptions}
    assert {"link.infiniband-ndr", "collective_latency.network"} <= names


def test_link_bandwidths() -> None:
    table = speed_assumptions()
    h100, l40s = kvplan.load_gpu("h100"), kvplan.load_gpu("l40s")
    nvlink = link_bandwidth(h100, "nvlink", table)
    assert nvlink.value == pytest.approx(450e9 * table["link_efficiency.nvlink"].value)
    assert nvlink.low < nvlink.value < nvlink.high
    assert link_bandwidth(h100, "pcie", table).value == pytest.approx(64e9 * 0.75)
    for kind in link_kinds(table):
        if kind != "nvlink":
            assert link_bandwidth(l40s, kind, table).value > 0
    with pytest.raises(kvplan.KvplanError, match="no nvlink"):
        link_bandwidth(l40s, "nvlink", table)
    with pytest.raises(kvplan.KvplanError, match="unknown link") as caught:
        link_bandwidth(h100, "infiniband-nrd", table)
    assert caught.value.help == ("did you mean 'infiniband-ndr'?",)


def test_collectives_by_hand() -> None:
    link = Fabric(4, 1 / 100e9, 1e-5)  # log2(4) = 2 hops of 10 µs
    assert link.all_reduce(1e9) == pytest.approx(2e-5 + 2 * 3 / 4 * 1e9 / 100e9)
    assert link.all_to_all(1e9) == pytest.approx(2e-5 + 3 / 4 * 1e9 / 100e9)
    assert Fabric(2, 1 / 100e9, 1e-5).all_reduce(0) == pytest.approx(1e-5)
    assert Fabric(1, 0.0, 0.0).all_reduce(1e9) == 0


def test_pipeline_stages_share_the_layers(profile: Make) -> None:
    whole, halves = profile("llama-3.1-70b"), profile("llama-3.1-70b", pipeline_parallel_size=2)
    assert len(halves.stages) == 2
    assert sum(stage.weight_bytes for stage in halves.stages) == whole.weight_bytes()
    assert halves.cache_bytes(1000) == whole.cache_bytes(1000)


def test_known_weight_bytes_scale_the_matrices(profile: Make) -> None:
    made = profile("llama-3.1-8b", weight_bytes_per_rank=4_649_000_000)
    assert made.weight_bytes() == pytest.approx(4_649_000_000, abs=10)
    assert step_seconds(made, 1, ((1, 1.0),)) < step_seconds(profile("llama-3.1-8b"), 1, ((1, 1.0),))


def test_eager_mode_is_slower(profile: Make) -> None:
    made = profile("llama-3.1-8b", enforce_eager=True)
    assert step_seconds(made, 1, ((1, 1.0),)) > step_seconds(profile("llama-3.1-8b"), 1, ((1, 1.0),))


def test_data_parallel_attention_with_experts(profile: Make) -> None:
    """Each rank has its share of the requests, and the experts meet the tokens of all ranks."""
    made = profile("deepseek-v3", "h200", data_parallel_size=8, enable_expert_parallel=True)
    assert made.stages[0].experts[0].all.bytes * 8 == pytest.approx(
        profile("deepseek-v3", "h200").stages[0].experts[0].all.bytes
    )
    assert estimate(made, Load(8, 100, 100)).step.value < estimate(made, Load(512, 100, 100)).step.value


@settings(max_examples=20, deadline=None)
@given(requests=st.integers(1, 64), tokens=st.integers(1, 4096))
def test_a_step_with_prompt_tokens_is_never_shorter(profile: Make, requests: int, tokens: int) -> None:
    made = profile("qwen3-30b-a3b")
    mix = ((1000, 1.0),)
    plain = step_seconds(made, requests, mix)
    assert step_seconds(made, requests, mix, Chunk(tokens, tokens)) > plain


def test_a_checkpoint_with_scales_is_read_in_its_own_cache_format() -> None:
    model, gpu = kvplan.load_model("nvidia/Llama-3.1-8B-Instruct-FP8"), kvplan.load_gpu("h100")
    assert model.kv_cache_scheme == "fp8"
    inventory, per_token, table = speed_inputs(model, None)
    own, fp8, sixteen = (
        speed_profile(model, gpu, inventory, per_token, Deployment(kv_cache_dtype=word), table)
        for word in ("auto", "fp8", "bfloat16")
    )
    assert own.cache_bytes(4096) == fp8.cache_bytes(4096) == sixteen.cache_bytes(4096) // 2
