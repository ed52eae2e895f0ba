"""Settings drawn by chance for models of every lineage, as releases answered (scripts/vllm_random.py)."""

from __future__ import annotations

import re
from typing import Any

import pytest

import kvplan
from kvplan.engines import ENGINES
from kvplan.engines.vllm.classes import class_of
from kvplan.errors import KvplanError
from kvplan.settings import Settings
from tests.engines.vllm_cases import CONFIGS
from tests.engines.vllm_compare import gpu_of
from tests.engines.vllm_random_cases import case_of_draw, settings_of_draw
from tests.engines.vllm_release_compare import answered as planned
from tests.engines.vllm_release_compare import minor, verdict
from tests.recorded import record

RECORD: dict[str, Any] = record("vllm_random")
REASONS: tuple[tuple[str, str], ...] = (
    ("is greater than the derived max_model_len", "max-model-len"),
    ("Total number of attention heads", "tensor-parallel"),
    ("must be greater than or equal to max_num_seqs", "max-num-batched-tokens"),
    ("must be divisible by n_predict", "speculative"),
    ("async scheduling is only supported", "speculative"),
    ("No model architectures are specified", "pipeline-parallel"),
    ("To serve at least one request", "not-enough-memory"),
    ("is not supported for quantization method", "quantization"),
    ("KV cache is not supported by the Triton", "cannot-start"),
    ("bfloat16 KV cache is not supported", "cannot-start"),
    ("mamba_(ssm_)?cache_dtype\\s+Input should be", "mamba-cache-dtype"),
    ("Failed to promote local KV cache specs", "cannot-start"),
    ("is numerically unstable|does not support float16", "dtype"),
    ("Number of experts in the model must be greater", "expert-parallel"),
)
"""vLLM's words for a reason, and kvplan's code for it."""


def answered(config: Any, version: str, **options: Any) -> Any:
    options = {"gpu": gpu_of("h100"), "kv_cache_memory": 24 * 2**30, **options}
    return ENGINES["vllm"].size(kvplan.load_model(config), Settings(**options), version)


@pytest.mark.parametrize("release", RECORD["releases"])
def test_release(release: str) -> None:
    """Every figure equal; what was refused is refused, where the reason is one of `REASONS` for the same."""
    wrong: dict[str, Any] = {}
    for entry in RECORD["releases"][release]:
        config = RECORD["configs"][entry["config"]]
        case = case_of_draw(entry, config)
        word, why = verdict(case, entry["answer"], release, settings_of_draw(entry, config))
        if word not in ("equal", "refused"):
            wrong[case.name] = (word, why)
        said = entry["answer"].get("refused", "")
        meant = next((code for words, code in REASONS if re.search(words, said)), None)
        if meant is not None:
            try:
                result = planned(case, settings_of_draw(entry, config), minor(release))
            except KvplanError:  # the command line's own word for a setting that no release has
                continue
            draft = ("speculative",) if meant == "tensor-parallel" and "draft" in entry else ()
            if result.refusal is not None and result.refusal.code not in (meant, "unsupported-model", *draft):
                wrong[case.name] = (meant, result.refusal)
    assert not wrong


def test_a_step_has_a_token_for_every_request() -> None:
    found = answered(CONFIGS["llama"], "0.33", max_num_seqs=300, max_num_batched_tokens=299).refusal
    assert found.code == "max-num-batched-tokens"
    assert answered(CONFIGS["llama"], "0.33", max_num_seqs=300, max_num_batched_tokens=300).refusal is None


@pytest.mark.parametrize(("count", "serves"), [(1, True), (2, True), (3, False), (4, True), (5, False)])
def test_drafts_are_whole_rounds_of_the_prediction_layers(count: int, serves: bool) -> None:
    config = {**CONFIGS["deepseek-v3"], "num_nextn_predict_layers": 2}
    found = answered(config, "0.33", speculative_method="mtp", num_speculative_tokens=count).refusal
    assert (found is None) is serves


@pytest.mark.parametrize(("gpu", "serves"), [("t4", False), ("v100", False), ("a100", True)])
def test_bfloat16_by_its_word_wants_a_gpu_of_8_0(gpu: str, serves: bool) -> None:
    found = answered(CONFIGS["llama"], "0.30", kv_cache_dtype="bfloat16", gpu=gpu_of(gpu)).refusal
    assert (found is None) is serves


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3.5"])
def test_since_0_30_drafts_need_no_stages(name: str) -> None:
    config = {**CONFIGS[name], "num_nextn_predict_layers": 1}
    options = {"pipeline_parallel_size": 2, "speculative_method": "mtp", "num_speculative_tokens": 1}
    assert answered(config, "0.29", **options).refusal.code == "pipeline-parallel"
    assert answered(config, "0.30", **options).refusal is None


def test_qwen3_5_drafts_with_one_layer_where_its_config_names_none() -> None:
    options = {"speculative_method": "mtp", "num_speculative_tokens": 1}
    assert answered(CONFIGS["qwen3.5"], "0.33", **options).refusal is None
    since = class_of("Qwen3_5ForCausalLM").drafts_since
    assert answered(CONFIGS["qwen3.5"], "0.27", **options).refusal.help[1] == f"use engine vllm@{since}"


def test_windows_are_divided_where_they_are_kept_whole() -> None:
    options = {"tensor_parallel_size": 8, "decode_context_parallel_size": 2}
    assert answered(CONFIGS["gemma3"], "0.32", **options).refusal.code == "context-parallel"
    whole = answered(CONFIGS["gemma3"], "0.32", disable_hybrid_kv_cache_manager=True, **options)
    assert whole.refusal is None


@pytest.mark.parametrize(
    ("name", "stages", "size"),
    [("qwen3-next", 1, 576), ("qwen3-next", 4, 576), ("qwen3-next", 8, 544), ("qwen3.5", 8, 528)],
)
def test_blocks_are_whole_checkpoint_steps_where_the_stage_has_states(
    name: str, stages: int, size: int
) -> None:
    """Each stage's worker asks its own layers: attention alone has no step (asked of 0.33)."""
    found = answered(CONFIGS[name], "0.33", pipeline_parallel_size=stages)
    assert found.settings["block_size"] == size


@pytest.mark.parametrize("stages", [1, 4, 8])
def test_before_0_33_no_state_asks_for_checkpoint_steps(stages: int) -> None:
    found = answered(CONFIGS["qwen3-next"], "0.32", pipeline_parallel_size=stages)
    assert found.settings["block_size"] == 544
