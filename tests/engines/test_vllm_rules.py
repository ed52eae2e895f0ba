"""Rules of vLLM one by one: releases, refusals, defaults by GPU, what a request of the encoder takes."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.cache_layout.built_model import stage_bounds
from kvplan.errors import KvplanError
from tests.engines.vllm_cases import CONFIGS
from tests.engines.vllm_compare import gpu_of

GIB = 2**30
LLAMA = CONFIGS["llama"]


def pool_of(name: str, version: str, **options: Any) -> Any:
    result = kvplan.size(CONFIGS[name], engine=f"vllm@{version}", kv_cache_memory=4 * GIB, **options)
    assert result.pool is not None, result.refusal
    return result.pool


def test_tokens_are_printed_from_concurrency_since_0_20() -> None:
    new, old = pool_of("gemma3", "0.20"), pool_of("gemma3", "0.19")
    assert new.kv_tokens == int(new.max_concurrency * 16384)
    assert old.kv_tokens == old.num_blocks // len(old.groups) * 16


def test_windows_are_charged_for_all_batches_in_flight_since_0_29() -> None:
    new, old = pool_of("mistral-window", "0.29"), pool_of("mistral-window", "0.25")
    assert old.groups[0].blocks_per_request == -(-(4095 + 8192) // 16) + 1
    assert new.groups[0].blocks_per_request == -(-min(4095 + 16384, 16384) // 16) + 1


def test_the_null_block_is_counted_since_0_29() -> None:
    request = 7 * 2 * 16 * 4 * 128 * 2 * (16384 // 16)
    assert kvplan.size(LLAMA, engine="vllm@0.25", kv_cache_memory=request).ok
    refusal = kvplan.size(LLAMA, engine="vllm@0.29", kv_cache_memory=request).refusal
    assert refusal is not None
    assert refusal.largest_max_model_len == 16384 - 16


def test_a_delta_net_reserves_a_checkpoint_since_0_33() -> None:
    assert [group.blocks_per_request for group in pool_of("qwen3-next", "0.32").groups][:3] == [2, 2, 2]
    assert [group.blocks_per_request for group in pool_of("qwen3-next", "0.33").groups][:3] == [3, 3, 3]


def test_states_are_cached_by_default_since_0_28() -> None:
    """Before, prefix caching beside states was asked for; Mamba's classes then kept a state a block."""
    new, old = pool_of("jamba", "0.28"), pool_of("jamba", "0.27")
    assert [group.blocks_per_request for group in new.groups][:2] == [2, 2]
    assert [group.blocks_per_request for group in old.groups][:2] == [1, 1]
    every = pool_of("jamba", "0.27", enable_prefix_caching=True)
    assert {group.blocks_per_request for group in every.groups} == {16384 // 2048}


def test_yarn_multiplies_the_original_length_before_0_30() -> None:
    """A file of 32,768 with a factor of 4 was served with 131,072 until then."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = {**LLAMA, "max_position_embeddings": 32768, "rope_scaling": yarn}
    new, old = (kvplan.size(config, engine=f"vllm@{version}") for version in ("0.30", "0.29"))
    assert (new.settings["max_model_len"], old.settings["max_model_len"]) == (32768, 131072)


def test_deepseek_v4_has_to_be_asked_for_fp8_before_0_30() -> None:
    model = kvplan.load_model("deepseek-v4-flash")
    old = kvplan.size(model, engine="vllm@0.29")
    assert old.refusal is not None
    assert old.refusal.code == "kv-cache-dtype"
    assert kvplan.size(model, engine="vllm@0.29", kv_cache_dtype="fp8").ok
    assert kvplan.size(model, engine="vllm@0.30").ok


def test_no_hybrid_groups_in_0_8() -> None:
    assert len(pool_of("gemma3", "0.8").groups) == 1
    with pytest.raises(KvplanError, match="outside the paged pool"):
        kvplan.size(CONFIGS["jamba"], engine="vllm@0.8")


@pytest.mark.parametrize(
    ("card", "usage", "memory", "expected"),
    [
        ("h100", "server", None, (8192, 1024)),
        ("h100", "llm", None, (16384, 1024)),
        ("b200", "server", None, (16384, 1024)),
        ("a100", "server", None, (2048, 256)),
        ("a100", "llm", None, (8192, 256)),
        ("l40s", "server", None, (2048, 256)),
        ("l40s", "server", 70 * GIB, (8192, 1024)),
    ],
)
def test_batch_defaults(card: str, usage: str, memory: int | None, expected: tuple[int, int]) -> None:
    settings = kvplan.size(LLAMA, gpu=gpu_of(card, memory), settings={"usage": usage}).settings
    assert (settings["max_num_batched_tokens"], settings["max_num_seqs"]) == expected


def test_without_a_gpu_an_h100_is_assumed_and_said() -> None:
    assert "assumed" in kvplan.size(LLAMA).settings["gpu"]


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (80, 3, [27, 27, 26]),
        (61, 4, [15, 15, 16, 15]),
        (7, 2, [4, 3]),
        (4, 4, [1, 1, 1, 1]),
        (10, 3, [3, 4, 3]),
    ],
)
def test_stages(layers: int, stages: int, sizes: list[int]) -> None:
    assert [last - first for first, last in stage_bounds(layers, stages)] == sizes


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("llama", {"tensor_parallel_size": 3}, "tensor-parallel"),
        ("llama", {"max_model_len": 20000}, "max-model-len"),
        ("llama", {"tokens": 20000}, "request-too-long"),
        ("llama", {"pipeline_parallel_size": 9}, "pipeline-parallel"),
        ("llama", {"tensor_parallel_size": 4, "decode_context_parallel_size": 2}, "context-parallel"),
        ("gemma3", {"tensor_parallel_size": 8, "decode_context_parallel_size": 2}, "context-parallel"),
        ("mamba", {"tensor_parallel_size": 2, "decode_context_parallel_size": 2}, "context-parallel"),
        ("gemma2", {"dtype": "float16"}, "dtype"),
        ("llama", {"speculative_method": "mtp", "num_speculative_tokens": 1}, "speculative"),
        ("deepseek-v3", {"kv_cache_dtype": "int8_per_token_head"}, "cannot-start"),
        ("jamba", {"disable_hybrid_kv_cache_manager": True}, "cannot-start"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], code: str) -> None:
    result = kvplan.size(CONFIGS[name], engine="vllm@0.32", **options)
    assert result.refusal is not None
    assert result.refusal.code == code
    assert not result.ok


@pytest.mark.parametrize("architecture", ["MptForCausalLM", "NoSuchForCausalLM"])
def test_classes_that_are_not_built(architecture: str) -> None:
    refusal = kvplan.size({**LLAMA, "architectures": [architecture]}, engine="vllm@0.32").refusal
    assert refusal is not None
    assert refusal.code == "unsupported-model"


def test_fp8_needs_a_card_that_has_it() -> None:
    refusal = kvplan.size(LLAMA, gpu=gpu_of("t4"), kv_cache_dtype="fp8").refusal
    assert refusal is not None
    assert "8.9" in refusal.message


def test_a_request_takes_the_blocks_of_its_own_encoder_tokens() -> None:
    result = kvplan.size(CONFIGS["whisper"], kv_cache_memory=GIB, engine="vllm@0.32")
    assert result.pool is not None
    own, cross = result.pool.groups
    assert (own.kind, cross.kind) == ("full_attention", "cross_attention")
    # The planner reserves a whole batch of encoder tokens; the request needs 1,500.
    assert cross.blocks_per_request == 512
    assert result.per_gpu.kv_bytes_per_request == (28 + 94) * result.pool.bytes_per_block


def test_a_model_without_a_cache_takes_nothing() -> None:
    config = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 100}
    result = kvplan.size(config, kv_cache_memory=GIB, tokens=100)
    assert result.per_gpu.kv_bytes_per_request == 0
    assert result.pool is None


def test_an_unknown_backend_is_an_error() -> None:
    with pytest.raises(KvplanError, match="unknown attention backend") as caught:
        kvplan.size(LLAMA, attention_backend="FLASH_ATN")
    assert caught.value.code == "unknown-backend"
    assert caught.value.help == ("did you mean FLASH_ATTN?",)


def test_the_backend_decides_the_block_size() -> None:
    flash = kvplan.size(CONFIGS["deepseek-v3"], attention_backend="FLASHMLA").settings
    assert (flash["block_size"], flash["attention_backend"]) == (64, "FLASHMLA")
    infer = kvplan.size(CONFIGS["deepseek-v3"], attention_backend="FLASHINFER_MLA", gpu=gpu_of("b200"))
    assert infer.settings["block_size"] == 32


@pytest.mark.parametrize("version", ["0.8", "0.20", "0.33"])
def test_expert_parallelism_wants_experts(version: str) -> None:
    """vllm/config/model.py, _verify_with_expert_parallelism: every release; DBRX counts its own too deep."""
    asked: dict[str, Any] = {
        "engine": f"vllm@{version}",
        "enable_expert_parallel": True,
        "tensor_parallel_size": 2,
    }
    for dense in ("llama-3.1-8b", "dbrx"):
        refusal = kvplan.size(dense, **asked).refusal
        assert refusal is not None
        assert refusal.code == "expert-parallel"
    assert kvplan.size("mixtral-8x7b", **asked).ok


def test_llama_3_2_vision_is_copied_to_every_rank_since_0_25() -> None:
    """Asked of 0.20 to 0.33 with a processor beside the config: stages share its layers, ranks do not."""
    model = kvplan.load_model("llama-3.2-11b-vision")
    each: tuple[dict[str, Any], ...] = ({"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2})
    for ways in each:
        old = kvplan.size(model, engine="vllm@0.24", **ways).refusal
        assert old is not None
        assert "no " + next(iter(ways)).split("_")[0] + "-parallel plan" in old.message
        for version in ("0.25", "0.28", "0.33"):
            assert kvplan.size(model, engine=f"vllm@{version}", **ways).ok


def test_gpt_j_names_a_rotation_that_is_taken_for_a_scaling() -> None:
    refusal = kvplan.size("gpt-j-6b", engine="vllm@0.12").refusal
    assert refusal is not None
    assert "gptj" in refusal.message
    assert kvplan.size("gpt-j-6b", engine="vllm@0.11").ok


DIVIDED: dict[str, Any] = {
    "tensor_parallel_size": 16,
    "decode_context_parallel_size": 2,
    "max_model_len": 4096,
}


@pytest.mark.parametrize(
    ("gpu", "options", "served"),
    [
        ("h100-sxm-80gb", {}, True),
        ("h100-sxm-80gb", {"kv_cache_dtype": "fp8_e5m2"}, True),
        ("h100-sxm-80gb", {"kv_cache_dtype": "turboquant_k8v4"}, False),
        ("a100-sxm-80gb", {"kv_cache_dtype": "fp8"}, True),
        ("v100-sxm2-32gb", {}, False),
        ("t4-16gb", {}, False),
        ("mi300x-192gb", {}, False),
    ],
)
def test_a_request_is_divided_among_ranks_where_the_backend_can(
    gpu: str, options: dict[str, Any], served: bool
) -> None:
    """`supports_dcp` is asked when the backend is chosen since 0.30: Triton's, AMD's K and V have none."""
    new = kvplan.size("llama-3.1-8b", engine="vllm@0.33", gpu=gpu, kv_cache_memory=GIB, **DIVIDED, **options)
    assert (new.refusal is None) is served
    old = kvplan.size("llama-3.1-8b", engine="vllm@0.29", gpu=gpu, kv_cache_memory=GIB, **DIVIDED)
    assert old.refusal is None
    latent: dict[str, Any] = {"engine": "vllm@0.33", "kv_cache_memory": GIB, **DIVIDED}
    assert kvplan.size("deepseek-v2-lite", gpu=gpu, **latent).ok


def test_lookups_are_scheduled_ahead_since_0_33() -> None:
    """Under the second runner (config/vllm.py): windows are charged for two batches in flight."""
    options: dict[str, Any] = {"speculative_method": "ngram", "num_speculative_tokens": 3}
    new, old = (pool_of("mistral-window", version, **options) for version in ("0.33", "0.32"))
    assert new.groups[0].blocks_per_request == -(-min(4095 + 16384, 16384) // 16) + 1
    assert old.groups[0].blocks_per_request == -(-(4095 + 8192) // 16) + 1
    first = pool_of("mistral-window", "0.33", model_runner="v1", **options)
    assert first.groups[0].blocks_per_request == old.groups[0].blocks_per_request


@pytest.mark.parametrize("name", ["gemma3", "mistral-window", "llama"])
def test_turboquant_takes_no_windows_on_amd_either(name: str) -> None:
    result = kvplan.size(CONFIGS[name], engine="vllm@0.33", gpu="mi300x-192gb", kv_cache_memory=4 * GIB,
                         kv_cache_dtype="turboquant_k8v4")  # fmt: skip
    assert (result.refusal is None) is (name == "llama")


@pytest.mark.parametrize(
    ("engine", "gpu", "said"),
    [
        ("vllm", "v100-32gb", True),
        ("vllm@0.19", "v100-32gb", False),
        ("vllm", "t4", False),
        ("vllm", None, False),
    ],
)
def test_wheels_of_cuda_13_have_no_kernels_for_volta(engine: str, gpu: str | None, said: bool) -> None:
    found = kvplan.size(LLAMA, engine=engine, gpu=gpu, tokens=1024).warnings
    assert any("no kernels for compute capability 7.0" in warning for warning in found) == said


@pytest.mark.parametrize("release", ["0.10", "0.12", "0.19", "0.33"])
@pytest.mark.parametrize("block_size", [1, 16])
def test_a_request_of_no_tokens_takes_nothing(release: str, block_size: int) -> None:
    found = kvplan.size("llama-3.1-8b", engine=f"vllm@{release}", tokens=0, block_size=block_size)
    assert found.per_gpu.kv_bytes_per_request == found.total.kv_bytes_per_request == 0
