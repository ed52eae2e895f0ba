"""SGLang where few settings meet: what draws by chance found, as its own planners answered."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.api import load_gpu, load_model, make_settings
from kvplan.engines.sglang.engine import Sglang, pools_of
from kvplan.engines.sglang.memory.prompt_graphs import has_prompt_graphs
from kvplan.engines.sglang.start.devices import Device, keeps_experts_together, modelopt_algorithm
from kvplan.engines.sglang.versions import VERSIONS
from tests.recorded import model_of

GIB = 2**30
H100 = Device("H100", (9, 0), 81_559)
B200 = Device("B200", (10, 0), 183_359)
RTX = Device("RTX 5090", (12, 0), 32_607)
NANO = "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B"


def size(model: Any, version: str = "0.5.23", gpu: str = "h100-sxm-80gb", **options: Any) -> Any:
    asked = make_settings(tokens=1, **{"kv_cache_memory": 5 * GIB, **options}, gpu=load_gpu(gpu))
    return Sglang().size(load_model(model) if isinstance(model, str) else model, asked, version)


def shown(model: Any, version: str = "0.5.23", gpu: str = "h100-sxm-80gb", **options: Any) -> Any:
    result = size(model, version, gpu, **options)
    assert result.refusal is None, result.refusal
    return result.settings


def test_minimax_m3_has_fa4s_pages_on_sm100() -> None:
    """overrides.py, _fa4_page_constraint: 128 whatever is asked."""
    model = "minimax-m3-nvfp4"
    asked: dict[str, Any] = {"gpu": "b200-sxm-180gb", "kv_cache_memory": 60 * GIB, "block_size": 256}
    assert shown(model, **asked)["page_size"] == 128
    assert shown(model, **{**asked, "gpu": "h200-sxm-141gb"})["page_size"] == 256


@pytest.mark.parametrize(
    ("version", "backend"), [("0.5.14", "flashinfer"), ("0.5.18", "flashinfer"), ("0.5.19", "trtllm_mha")]
)
def test_nemotron_changed_its_backend_on_sm100_with_0_5_19(version: str, backend: str) -> None:
    found = shown(model_of(f"{NANO}-BF16"), version, "b200-sxm-180gb", kv_cache_memory=60 * GIB)
    assert found["attention_backend"] == backend


@pytest.mark.parametrize(
    ("model", "named"),
    [("nvidia__NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", False), ("zai-org__GLM-4.5", True)],
)
def test_until_0_5_19_a_draft_is_charged_where_one_is_named(model: str, named: bool) -> None:
    """speculative_hook.py names the model itself for a list of classes; since 0.5.20 all of them pay."""
    asked: dict[str, Any] = {"speculative_method": "mtp", "num_speculative_tokens": 2}
    asked |= {"tensor_parallel_size": 4, "kv_cache_memory": 60 * GIB}
    told = {**asked, "draft_layers": 1}
    tokens = {
        (version, options is told): shown(model_of(model), version, **options)["max_total_num_tokens"]
        for version in ("0.5.19", "0.5.20")
        for options in (asked, told)
    }
    assert (tokens["0.5.19", False] == tokens["0.5.19", True]) is named
    assert tokens["0.5.20", False] == tokens["0.5.20", True] == tokens["0.5.19", True]


@pytest.mark.parametrize(
    ("model", "version", "graphs"),
    [
        ("moonshotai__Kimi-Linear-48B-A3B-Instruct", "0.5.18", True),
        ("moonshotai__Kimi-Linear-48B-A3B-Instruct", "0.5.20", False),
        ("moonshotai__Kimi-Linear-48B-A3B-Instruct", "0.5.17", False),
        ("moonshotai__Kimi-K2.5", "0.5.17", True),
        ("Qwen__Qwen3.5-27B", "0.5.17", True),
        ("Qwen__Qwen2.5-VL-7B-Instruct", "0.5.21", False),
    ],
)
def test_whose_prompts_have_graphs(model: str, version: str, graphs: bool) -> None:
    asked = make_settings(
        tokens=1,
        gpu=load_gpu("h200-sxm-141gb"),
        kv_cache_memory=60 * GIB,
        tensor_parallel_size=4,
    )
    made = pools_of(model_of(model), asked, version)
    assert made is not None
    assert has_prompt_graphs(model_of(model), made.arguments) is graphs


def test_nemotrons_experts_stay_together() -> None:
    """FlashInfer's CUTLASS kernel: on SM100 another one has them, NVFP4 before Blackwell too."""
    plain, packed = model_of(f"{NANO}-BF16"), model_of(f"{NANO}-NVFP4")
    assert keeps_experts_together(plain, H100, "none")
    assert not keeps_experts_together(plain, B200, "none")
    assert keeps_experts_together(plain, B200, "deepep")
    assert not keeps_experts_together(packed, H100, "none")
    assert keeps_experts_together(packed, RTX, "none")
    assert not keeps_experts_together(model_of("Qwen__Qwen3-30B-A3B"), RTX, "none")
    assert not keeps_experts_together(plain, Device("MI300X", (9, 4), None, nvidia=False), "none")
    refused = size("nemotron-3-nano-30b-a3b", tensor_parallel_size=8, ep_size=4)
    assert refused.refusal is not None
    assert refused.refusal.code == "tensor-parallel"
    for ranks in (1, 8):
        shown("nemotron-3-nano-30b-a3b", tensor_parallel_size=8, ep_size=ranks)


def test_whose_word_modelopt_is() -> None:
    assert modelopt_algorithm(model_of("nvidia__Qwen3-32B-NVFP4")) == "NVFP4"
    assert modelopt_algorithm(model_of("nvidia__Qwen3.6-35B-A3B-NVFP4")) == "MIXED_PRECISION"
    assert modelopt_algorithm(model_of("Qwen__Qwen3-30B-A3B-FP8")) is None
    assert modelopt_algorithm(model_of("Qwen__Qwen3-30B-A3B")) is None


def test_drafts_that_are_looked_up_on_b200() -> None:
    """Their breadth is not one: Qwen3.5's hybrids run on Triton then, with pages of one token."""
    asked: dict[str, Any] = {"speculative_method": "ngram", "num_speculative_tokens": 5, "max_num_seqs": 20}
    found = shown("qwen3.6-35b-a3b", gpu="b200-sxm-180gb", kv_cache_memory=60 * GIB, **asked)
    assert (found["attention_backend"], found["page_size"]) == ("triton", 1)


def test_mixed_checkpoints_before_0_5_13() -> None:
    """hf_quant_config.json was not read beside a config's own quantisation."""
    model = model_of("nvidia__Qwen3.6-35B-A3B-NVFP4")
    words = [
        shown(model, version, kv_cache_memory=40 * GIB)["kv_cache_dtype"] for version in ("0.5.12", "0.5.13")
    ]
    assert words == ["bfloat16", "fp8_e4m3"]


def test_scales_of_sparse_latents() -> None:
    """From 0.5.11 to 0.5.16 the rows were priced as 576 bytes, not as 656 with their scales."""
    asked: dict[str, Any] = {"tensor_parallel_size": 8, "kv_cache_dtype": "fp8_e4m3"}
    tokens = {
        version: shown("deepseek-v3.2", version, **asked)["max_total_num_tokens"]
        for version in ("0.5.10", "0.5.11", "0.5.16", "0.5.17")
    }
    assert tokens["0.5.10"] == tokens["0.5.17"] < tokens["0.5.11"] == tokens["0.5.16"]
    assert 5 * GIB // 61 // 708 - 64 <= tokens["0.5.11"] <= 5 * GIB // 61 // 708


@pytest.mark.parametrize(
    ("version", "kept"), [("0.5.10", True), ("0.5.13", True), ("0.5.14", False), ("0.5.23", False)]
)
def test_drafts_kept_memory_until_0_5_13(version: str, kept: bool) -> None:
    """4 GiB, above the least that stays free; none where drafts are looked up."""
    plain = shown("llama-3.1-8b", version)["mem_fraction_static"]
    drafted: dict[str, Any] = {"num_speculative_tokens": 3, "max_num_seqs": 256}
    eagle = shown("llama-3.1-8b", version, speculative_method="eagle3", draft_layers=1, **drafted)
    looked_up = shown("llama-3.1-8b", version, speculative_method="ngram", **drafted)
    assert (plain - eagle["mem_fraction_static"] > 0.04) == kept
    assert looked_up["mem_fraction_static"] >= plain


@pytest.mark.parametrize("version", VERSIONS[VERSIONS.index("0.5.10") :])
def test_fractions_lie_between_their_ends(version: str) -> None:
    """Less memory for graphs never makes the fraction smaller."""
    for model in ("llama-3.1-8b", "deepseek-v3.2", "gemma-3-27b"):
        asked: dict[str, Any] = {"kv_cache_memory": 20 * GIB, "tensor_parallel_size": 8}
        with_graphs = shown(model, version, **asked)["mem_fraction_static"]
        without = shown(model, version, enforce_eager=True, **asked)["mem_fraction_static"]
        assert 0.5 < with_graphs <= without < 1


def test_amd_keeps_no_memory_for_graphs_of_prompts() -> None:
    """Asked on the stage: 0.867 · 0.85 with aiter and a long context, 0.867 without."""
    assert shown("llama-3.1-8b", gpu="mi300x-192gb")["mem_fraction_static"] == pytest.approx(0.73695)
    found = shown("deepseek-v3.2", gpu="mi300x-192gb", kv_cache_memory=60 * GIB)
    assert (found["page_size"], found["max_total_num_tokens"]) == (1, 822_538)
    assert found["mem_fraction_static"] == pytest.approx(0.867)


@pytest.mark.parametrize("gpu", ["mi300x-192gb", "mi355x-288gb", "h100-sxm-80gb"])
def test_modelopt_does_not_run_on_amd(gpu: str) -> None:
    refused = size(model_of("nvidia__Qwen3-32B-NVFP4"), gpu=gpu).refusal
    assert (refused is not None) == gpu.startswith("mi")


def test_prompts_in_one_piece_keep_memory_by_their_limit() -> None:
    """--chunked-prefill-size -1: as many tokens as --max-prefill-tokens (asked of 0.5.19)."""
    one: dict[str, Any] = {
        "chunked_prefill_size": -1,
        "disable_radix_cache": True,
        "disable_overlap_schedule": True,
    }
    few, many = (
        shown("gpt-oss-20b", "0.5.19", max_prefill_tokens=count, **one)["mem_fraction_static"]
        for count in (16_384, 32_768)
    )
    assert many == pytest.approx(0.383)
    assert many < few
