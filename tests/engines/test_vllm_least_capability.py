"""The oldest GPUs of each method of quantisation, by release (get_min_capability)."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.base import parse_version
from kvplan.engines.vllm.refusals.formats import LEAST_CAPABILITY, ON_AMD
from kvplan.engines.vllm.versions import VERSIONS

SHAPE: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 8,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "torch_dtype": "bfloat16", "max_position_embeddings": 8192,
}  # fmt: skip


def said(quantised: dict[str, Any], gpu: str, release: str) -> str:
    """The refusal's words; empty where it is served."""
    config = {**SHAPE, "quantization_config": quantised}
    result = kvplan.size(config, gpu=gpu, engine=f"vllm@{release}", dtype="float16")
    return result.refusal.message if result.refusal is not None else ""


@pytest.mark.parametrize(
    ("quantised", "gpu", "first"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "a100-sxm-80gb", "0.27"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "t4", "0.14"),
        ({"quant_method": "fp8"}, "t4", "0.14"),
    ],
)
def test_a_method_runs_on_older_gpus_since_a_release(quantised: dict[str, Any], gpu: str, first: str) -> None:
    for release in VERSIONS:
        refused = "need compute capability" in said(quantised, gpu, release)
        assert refused == (parse_version(release) < parse_version(first)), release


@pytest.mark.parametrize("release", ["0.20", "0.26"])
def test_newer_gpus_run_them_in_every_release(release: str) -> None:
    for algorithm in ("FP8", "NVFP4"):
        assert not said({"quant_method": "modelopt", "quant_algo": algorithm}, "l40s", release)
    assert not said({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "a100-sxm-80gb", release)


def test_no_later_release_needs_a_newer_gpu() -> None:
    for method, steps in LEAST_CAPABILITY.items():
        assert [since for since, _ in steps] == sorted(since for since, _ in steps), method
        assert [needed for _, needed in steps] == sorted((needed for _, needed in steps), reverse=True), (
            method
        )


def test_the_help_names_a_release_that_serves() -> None:
    result = kvplan.size(
        {**SHAPE, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
        gpu="a100-sxm-80gb",
        engine="vllm@0.24",
    )
    assert result.refusal is not None
    (named,) = (words.removeprefix("use engine ") for words in result.refusal.help if "engine" in words)
    assert (
        kvplan.size(
            {**SHAPE, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
            gpu="a100-sxm-80gb",
            engine=named,
        ).refusal
        is None
    )


@pytest.mark.parametrize(
    ("quantised", "first"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "0.21"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "0.20"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "0.28"),
        ({"quant_method": "fp8"}, ""),
    ],
)
def test_amds_gpus_run_a_method_since_a_release(quantised: dict[str, Any], first: str) -> None:
    for release in VERSIONS:
        refused = "checkpoints on AMD GPUs" in said(quantised, "mi300x", release)
        assert refused == (bool(first) and parse_version(release) < parse_version(first)), release


def test_every_method_with_a_least_nvidia_gpu_says_since_when_amds_run_it() -> None:
    assert set(ON_AMD) == set(LEAST_CAPABILITY)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_numbers_that_were_packed_whole_are_not_cut(engine: str) -> None:
    stored = {**SHAPE, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    cut = kvplan.size(stored, gpu="h100", tp=2, engine=engine)
    assert cut.refusal is not None
    assert "packed whole" in cut.refusal.message
    assert kvplan.size(stored, gpu="h100", engine=engine).refusal is None
    assert kvplan.size(stored, gpu="h100", pp=2, engine=engine).refusal is None


def test_packed_while_loading_is_cut() -> None:
    assert kvplan.size(SHAPE, gpu="h100", tp=2, quantization="bitsandbytes").refusal is None


def test_emulated_weights_have_no_time_and_are_not_offered_for_others() -> None:
    asked = kvplan.plan("nvidia/DeepSeek-R1-FP4", requests=32, tokens=8192, gpu="mi300x")
    assert all(option.speed is None for option in asked.options)
    assert all(any("is emulated" in text for text in option.warnings) for option in asked.options)
    other = kvplan.plan("deepseek-r1", requests=32, tokens=8192, gpu="mi300x", quality="aggressive")
    assert all(option.weights != "nvfp4" for option in other.options)
