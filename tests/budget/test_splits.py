"""What V2's sampler and FlashAttention 3 keep, against allocations that vLLM 0.33 made on an H200.

Bytes are those of the allocator's own record of five starts (tests/data/measured.yaml): PenaltiesState and
StructuredOutputsWorker while the model was loaded, flash_attn_varlen_func while the first full graph was
captured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api.options import make_settings
from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.memory.attention_buffers import buffers_of, split_bytes
from kvplan.engines.vllm.memory.cuda_graphs import graph_line, graph_sums
from kvplan.engines.vllm.memory.profile_peak import sampler_states
from kvplan.engines.vllm.memory.rank_budget import kept_by_sampler
from kvplan.files.gpus.find import load_gpu
from kvplan.model import Model
from kvplan.results import Budget
from kvplan.units import GIB
from tests.budget.test_formula import KNOWN, LOAD

COUNTS = {"Qwen/Qwen3-0.6B": 622_329_856, "Qwen/Qwen2.5-7B-Instruct": 622_854_144}
MASKS = {"Qwen/Qwen3-0.6B": 19_447_808, "Qwen/Qwen2.5-7B-Instruct": 19_464_192}
SUMS = {
    "Qwen/Qwen3-0.6B": 134_217_728 + 1_048_576,
    "Qwen/Qwen3-32B": 536_870_912 + 4_194_304,
    "Qwen/Qwen3-30B-A3B": 268_435_456 + 2_097_152,
}


def budget(model: str | Model, engine: str = "vllm@0.33", **options: Any) -> Budget:
    found = kvplan.size(model, engine=engine, gpu="h200", **options).budget
    assert found is not None
    return found


def lines(model: str | Model, engine: str = "vllm@0.33", **options: Any) -> dict[str, int]:
    return {line.name: line.bytes for line in budget(model, engine, **options).lines}


@pytest.mark.parametrize("model", COUNTS)
def test_the_tables_of_1_024_requests_are_those_that_were_made(model: str) -> None:
    vocabulary = kvplan.load_model(model).vocab_size
    assert sampler_states(1_024, vocabulary, 0) == COUNTS[model] + 2 * MASKS[model]
    assert lines(model)["sampler states"] == COUNTS[model] + 2 * MASKS[model]


@pytest.mark.parametrize("model", SUMS)
def test_partial_sums_of_512_tokens_are_those_that_were_made(model: str) -> None:
    settings = make_settings(gpu=load_gpu("h200-sxm-141gb"))
    assert 512 * split_bytes(kvplan.load_model(model), settings, "0.33") == SUMS[model]


@pytest.mark.parametrize(
    ("gpu", "options"),
    [("a100-sxm-80gb", {}), ("b200-sxm-180gb", {}), ("h200-sxm-141gb", {"enforce_eager": True})],
)
def test_flash_attention_3_alone_divides_a_requests_tokens(gpu: str, options: dict[str, Any]) -> None:
    settings = make_settings(gpu=load_gpu(gpu), **options)
    assert split_bytes(kvplan.load_model("qwen3-8b"), settings, "0.33") == 0


@pytest.mark.parametrize(("model", "heads"), [("glm-4.7-flash", 20), ("deepseek-v3", 128)])
def test_latent_attention_has_sums_as_wide_as_the_latent(model: str, heads: int) -> None:
    """backends/mla/flashattn_mla.py: [32, heads, tokens, kv_lora_rank] and [32, heads, tokens], float32."""
    settings = make_settings(gpu=load_gpu("h100-sxm-80gb"))
    assert split_bytes(kvplan.load_model(model), settings, "0.29") == 32 * 4 * heads * (512 + 1)


@pytest.mark.parametrize(
    ("model", "gpu"), [("glm-5.3", "h200-sxm-141gb"), ("glm-4.7-flash", "a100-sxm-80gb")]
)
def test_other_kernels_of_latent_attention_have_none(model: str, gpu: str) -> None:
    """Sparse attention is FlashMLA's, Ampere's is Triton's."""
    assert split_bytes(kvplan.load_model(model), make_settings(gpu=load_gpu(gpu)), "0.30") == 0


def test_a_graph_grows_with_the_sums_that_were_read_and_not_beyond() -> None:
    read, beyond = (graph_sums(replace(LOAD, split_bytes=32 * 4 * heads * 129)) for heads in (64, 128))
    assert 0 < graph_sums(replace(LOAD, split_bytes=32 * 4 * 16 * 129)) < read == beyond


def test_ranks_divide_the_heads() -> None:
    model, gpu = kvplan.load_model("qwen3-8b"), load_gpu("h200-sxm-141gb")
    one, two = (split_bytes(model, make_settings(gpu=gpu, tensor_parallel_size=tp), "0.33") for tp in (1, 2))
    assert one == 2 * two > 0


@pytest.mark.parametrize(
    ("engine", "model", "counted"),
    [
        ("vllm@0.26", "qwen3-8b", False),  # V2, but outside what 0.26 takes off
        ("vllm@0.27", "qwen3-8b", True),
        ("vllm@0.27", "qwen3-30b-a3b", False),  # V1 serves experts
        ("vllm@0.33", "qwen3-30b-a3b", True),
    ],
)
def test_tables_count_where_v2_serves_and_the_device_is_asked(engine: str, model: str, counted: bool) -> None:
    assert ("sampler states" in lines(model, engine)) is counted


def test_a_model_that_pools_samples_nothing() -> None:
    """vllm/v1/worker/gpu_model_runner.py and gpu/model_runner.py, profile_run: _dummy_pooler_run in place of
    _dummy_sampler_run."""
    model = kvplan.load_model("qwen2.5-7b-instruct")
    rewarding = replace(model, architecture="Qwen2ForRewardModel")
    generating, pooling = lines(model), lines(rewarding)
    assert "sampler states" in generating
    assert "sampler states" not in pooling
    assert pooling["activation peak"] < generating["activation peak"]


def test_the_stage_that_samples_has_them() -> None:
    shape, known = Shape(hidden_size=8, vocab_size=100, mlp_width=16), replace(KNOWN, states_counted=True)
    line = kept_by_sampler(shape, LOAD, known)
    assert line is not None
    assert line.bytes == 4 * (400 + 2 * 16)
    assert kept_by_sampler(shape, replace(LOAD, samples=False), known) is None


def test_drafts_are_sampled_too() -> None:
    assert sampler_states(4, 100, 3) - sampler_states(4, 100, 0) == 3 * 4 * 16


@given(st.integers(1, 4096), st.integers(1, 300_000), st.integers(0, 16))
def test_tables_are_of_every_token_and_within_their_masks(seqs: int, vocabulary: int, drafts: int) -> None:
    found = sampler_states(seqs, vocabulary, drafts)
    assert seqs * vocabulary * 4 < found <= seqs * (vocabulary * 4 + (2 + drafts) * (vocabulary // 8 + 4))


def test_a_graph_has_the_sums_of_its_largest_batch() -> None:
    shape = Shape(hidden_size=8, vocab_size=100, mlp_width=16, num_layers=2)
    known = replace(KNOWN, graph_layer_bytes=1_000, graph_split_layer_bytes=3_000)
    plain = graph_line(shape, LOAD, known, "")
    split = graph_line(shape, replace(LOAD, split_bytes=7), known, "")
    assert plain is not None
    assert split is not None
    assert split.bytes == plain.bytes * 3 + 4 * 7  # four requests fill the largest full graph


def test_without_flashinfer_the_cheaper_kernel_samples() -> None:
    """0.33's second pass: a copy in float32 beside the logits, no mask, no softmax, but Triton's buffer."""
    whole, least = (
        lines("qwen3-0.6b", flashinfer=word)["activation peak"] for word in ("installed", "absent")
    )
    hidden = (8_192 + 1_024) * 1_024 * 2
    kernel = 132 * 151_936 * 4
    assert least == 1_024 * 151_936 * 6 + hidden + kernel < whole == 1_024 * 151_936 * 14 + hidden


def test_a_search_has_the_same_buffers_as_a_question() -> None:
    model, gpu = kvplan.load_model("qwen3-8b"), load_gpu("h200-sxm-141gb")
    found = buffers_of(model, make_settings(gpu=gpu), "0.33")
    assert found.split_bytes > 0
    assert found.flashinfer.groups == 0


MEASURED = {
    "Qwen/Qwen3-0.6B": 134_403_616_359,
    "Qwen/Qwen3-32B": 67_718_509_671,
    "Qwen/Qwen2.5-7B-Instruct": 119_878_877_287,
    "Qwen/Qwen3-30B-A3B": 73_336_647_271,
}


@pytest.mark.parametrize("model", MEASURED)
def test_pools_that_0_33_measured_on_an_h200(model: str) -> None:
    """With every default and without FlashInfer: within half a percent, in the interval."""
    told = budget(model, flashinfer="absent", compile_cache="cold")
    assert told.kv_pool_bytes == pytest.approx(MEASURED[model], rel=0.005)
    assert told.kv_pool_low_bytes <= MEASURED[model] <= told.kv_pool_high_bytes


WITH_FLASHINFER = {
    "meta-llama/Llama-3.1-8B": 54.52015,
    "Qwen/Qwen2.5-7B": 54.88832,
    "Qwen/Qwen3-30B-A3B": 11.43421,
}
"""GiB that cold starts of 0.33 left on an H100 (tests/data/measured.yaml)."""


@pytest.mark.parametrize("model", WITH_FLASHINFER)
def test_pools_that_0_33_measured_on_an_h100(model: str) -> None:
    """With every default, FlashInfer there as the wheel brings it."""
    found = kvplan.size(model, engine="vllm@0.33", gpu="h100").budget
    assert found is not None
    measured = WITH_FLASHINFER[model] * GIB
    assert found.kv_pool_bytes == pytest.approx(measured, rel=0.005)
    assert found.kv_pool_low_bytes <= measured <= found.kv_pool_high_bytes
