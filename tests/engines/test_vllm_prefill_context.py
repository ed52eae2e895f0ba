"""Prefill context parallelism of vLLM: GPUs that hold the same cache, and which sizes start."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api.launching import started_readings
from kvplan.errors import KvplanError

SPARSE, DENSE_MLA, PLAIN = "deepseek-v3.2", "deepseek-v2-lite", "qwen3-8b"
EAGER: dict[str, Any] = {"enforce_eager": True}
FP8: dict[str, Any] = {"kv_cache_dtype": "fp8"}
"""On Hopper, sparse kernels divide a request's tokens among ranks in an fp8 cache only."""


def ask(model: str = SPARSE, **options: Any) -> Any:
    options = {"engine": "vllm@0.32", "gpu": "h200", "tokens": 4096, "kv_cache_memory": 2**34, **options}
    return kvplan.size(model, **options)


def test_ranks_hold_the_same_cache() -> None:
    one, four = ask(tp=8, **EAGER), ask(tp=8, prefill_context_parallel_size=4, **EAGER)
    assert four.refusal is None
    assert (four.pool, four.per_gpu) == (one.pool, one.per_gpu)
    assert four.total.kv_bytes == 4 * one.total.kv_bytes


def test_decode_context_parallelism_divides_it() -> None:
    both = ask(tp=2, prefill_context_parallel_size=4, dcp=4, **FP8)
    alone = ask(tp=2, prefill_context_parallel_size=4, **EAGER, **FP8)
    assert both.refusal is None
    assert both.per_gpu.kv_bytes * 4 == alone.per_gpu.kv_bytes


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pcp=st.sampled_from([2, 4, 8]),
    dcp=st.sampled_from([1, 2, 4, 8, 16, 32]),
)
def test_which_decode_sizes_start(tp: int, pcp: int, dcp: int) -> None:
    """config/parallel.py, _validate_parallel_config: off, the PCP ranks, or all."""
    found = ask(tp=tp, prefill_context_parallel_size=pcp, dcp=dcp, **EAGER, **FP8).refusal
    assert (found is None) == (dcp in (1, pcp, tp * pcp)), found


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (PLAIN, {}, "without MLA"),
        (SPARSE, {}, "CUDA graphs"),
        (DENSE_MLA, {"dcp": 2}, "but for sparse MLA"),
        (SPARSE, {"enable_lora": True, **EAGER}, "LoRA"),
        (SPARSE, {"model_runner": "v1", **EAGER}, "V1"),
        (SPARSE, {"engine": "vllm@0.24", **EAGER}, "no attention backend"),
    ],
)
def test_what_is_refused(model: str, options: dict[str, Any], words: str) -> None:
    found = ask(model, prefill_context_parallel_size=2, **options).refusal
    assert found is not None
    assert words in found.message


def test_a_release_that_was_not_read() -> None:
    with pytest.raises(KvplanError, match="not known"):
        ask(prefill_context_parallel_size=2, engine="vllm@0.28", **EAGER)


def test_dense_mla_runs_with_graphs() -> None:
    assert ask(DENSE_MLA, prefill_context_parallel_size=2).refusal is None


def test_no_pool_is_claimed_of_a_gpu() -> None:
    found = kvplan.size(
        SPARSE,
        engine="vllm@0.32",
        gpu="8xh200",
        tp=4,
        settings={"prefill_context_parallel_size": 2},
        tokens=4096,
        **EAGER,
    )
    assert found.pool is None
    assert any("prefill-context-parallel" in text for text in found.warnings)


def test_gpus_of_a_plan(tmp_path: Any) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "kvplan: plan/v1\nmodel: deepseek-v3.2\nengine: vllm@0.32\ngpu: h200\ngpus: 16\n"
        "serve: {tensor_parallel_size: 4, prefill_context_parallel_size: 2, enforce_eager: true}\n",
        encoding="utf-8",
    )
    plan = kvplan.load_plans(path)[0]
    assert (plan.gpus_per_replica, plan.replicas) == (8, 2)


def test_gpus_that_are_named_are_shared_out() -> None:
    """8xh200 with two PCP ranks: tensor parallelism over four."""
    found = kvplan.size(
        SPARSE,
        engine="vllm@0.32",
        gpu="8xh200",
        settings={"prefill_context_parallel_size": 2},
        tokens=4096,
        **EAGER,
    )
    assert found.settings["tensor_parallel_size"] == 4


def test_the_command_line_of_a_server_says_it() -> None:
    (one,) = started_readings("vllm serve deepseek-ai/DeepSeek-V3.2 -tp 4 -pcp 2 --enforce-eager", "h200")
    assert one.plan is not None
    assert one.plan.gpus_per_replica == 8
