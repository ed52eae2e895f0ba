"""What stays of the embedding's copy behind a cold compile: by torch's allocator, and as starts had it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.memory.cold_compile import COMPILE, kept_copy
from kvplan.engines.vllm.memory.expert_workspaces import ExpertRun
from kvplan.engines.vllm.memory.profile_run import Load
from kvplan.units import GIB, MIB
from tests.budget.test_formula import LOAD

TABLE = GIB
AMPERE, ADA, HOPPER, BLACKWELL, CONSUMER = (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)


def load(**changes: Any) -> Load:
    return replace(LOAD, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, **changes)


def shape(hidden: int, **changes: Any) -> Shape:
    return Shape(hidden_size=hidden, vocab_size=150_000, mlp_width=4 * hidden, **changes)


@pytest.mark.parametrize(
    ("capability", "hidden", "tokens", "kept"),
    [
        (ADA, 2048, 2048, True),  # 8,388,608 bytes: less than cuBLAS's 8,519,680
        (ADA, 2304, 2048, False),
        (ADA, 2048, 8192, False),
        (AMPERE, 1024, 2048, True),
        (CONSUMER, 4096, 2048, True),  # 32 MiB since torch 2.12
        (CONSUMER, 8192, 2048, False),
        (None, 4096, 2048, False),
    ],
)
def test_a_workspace_that_no_hidden_state_leaves_room_for_lies_in_the_table_s_block(
    capability: tuple[int, int] | None, hidden: int, tokens: int, kept: bool
) -> None:
    likely, most = kept_copy(shape(hidden), load(capability=capability, max_num_batched_tokens=tokens), TABLE)
    assert likely == (TABLE if kept else 0)
    assert most in (0, TABLE)


def test_on_hopper_text_models_keep_it() -> None:
    start = load(capability=HOPPER, max_num_batched_tokens=8192)
    assert kept_copy(shape(5120), start, TABLE) == (TABLE, TABLE)
    for other in (
        replace(start, eight_bits=True),
        replace(start, packed=True),
    ):
        assert kept_copy(shape(5120), other, TABLE) == (0, TABLE)
    assert kept_copy(shape(5120, is_multimodal=True), start, TABLE) == (0, TABLE)


def test_the_experts_workspace_lies_in_it() -> None:
    """gpt-oss-20b on an RTX 4090: its hidden states leave 11.8 MB, its experts' workspace is 141 MB."""
    experts = shape(2880, expert_width=2880, experts_per_token=4)
    start = load(capability=ADA, max_num_batched_tokens=2048, experts=ExpertRun())
    likely, most = kept_copy(experts, start, TABLE)
    assert most == TABLE
    assert TABLE - likely == 2048 * 4 * (2 * 2880 + 2880) * 2
    assert kept_copy(experts, start, 100 * MIB)[0] == 0, "it does not fit in a smaller table"


def test_pipelines_and_triton_s_sampler_may_keep_it() -> None:
    start = load(capability=ADA, max_num_batched_tokens=2048)
    assert kept_copy(shape(4096), start, TABLE) == (0, 0)
    assert kept_copy(shape(2560), start, TABLE) == (0, TABLE), "10 MiB: a 3090 kept it, a 4090 did not"
    assert kept_copy(shape(4096), replace(start, fused_sampler=False), TABLE) == (0, TABLE)
    assert kept_copy(shape(4096), replace(start, pipeline_parallel_size=2), TABLE) == (0, TABLE)


@given(
    st.sampled_from((AMPERE, ADA, HOPPER, BLACKWELL, CONSUMER)),
    st.integers(64, 16_384),
    st.integers(256, 16_384),
    st.integers(MIB, 4 * GIB),
    st.booleans(),
    st.booleans(),
)
def test_never_more_than_the_table(
    capability: tuple[int, int], hidden: int, tokens: int, table: int, eight: bool, packed: bool
) -> None:
    start = load(
        capability=capability, max_num_batched_tokens=tokens, eight_bits=eight, packed=packed and not eight
    )
    likely, most = kept_copy(shape(hidden), start, table)
    assert 0 <= likely <= most <= table


def compiled(model: str, engine: str, gpu: str, **options: Any) -> tuple[int, int, int]:
    budget = kvplan.size(model, engine=engine, gpu=gpu, settings={"compile_cache": "cold"}, **options).budget
    assert budget is not None
    line = next((line for line in budget.lines if line.name == COMPILE), None)
    return (0, 0, 0) if line is None else (line.low_bytes, line.bytes, line.high_bytes)


@pytest.mark.parametrize(
    ("release", "kept"), [("0.26", False), ("0.27", True), ("0.30", True), ("0.31", False)]
)
def test_in_the_releases_that_count_what_cannot_be_given_back(release: str, kept: bool) -> None:
    low, likely, _ = compiled("Qwen/Qwen3-1.7B", f"vllm@{release}", "l4")
    assert likely - low == (151_936 * 2048 * 2 if kept else 0)


def test_memory_that_the_host_shares_keeps_none() -> None:
    low, likely, high = compiled("Qwen/Qwen3-1.7B", "vllm@0.29", "gb10")
    assert low == likely == high


def test_ranks_that_share_the_table_copy_none_of_it() -> None:
    alone, several = (
        compiled("Qwen/Qwen3-8B", "vllm@0.29", "a100-sxm-80gb", tensor_parallel_size=ways) for ways in (1, 2)
    )
    assert alone[1] > 0.8 * GIB
    assert several[1] == 0 < several[2] < 0.6 * GIB


SHORT = {"max_model_len": 640, "gpu_memory_utilization": "0.9"}


@pytest.mark.parametrize(
    ("model", "release", "gpu", "options", "printed"),
    [
        ("Qwen/Qwen3-1.7B", "0.29", "l4", SHORT, 14.83),
        ("Qwen/Qwen3-14B", "0.29", "rtx-a6000", {}, 13.86),
        ("Qwen/Qwen3-32B", "0.29", "a100-pcie-80gb", SHORT, 7.76),
        ("deepseek-v2-lite", "0.29", "a100-pcie-80gb", SHORT, 40.46),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "0.28", "rtx-pro-4000", {**SHORT, "max_model_len": 8192}, 13.42),
    ],
)
def test_pools_that_cold_starts_printed(
    model: str, release: str, gpu: str, options: dict[str, Any], printed: float
) -> None:
    """The first, the fourth and the last keep it, the others do not: 0.4 to 1.4 GiB each."""
    result = kvplan.size(
        model, engine=f"vllm@{release}", gpu=gpu, settings={"compile_cache": "cold"}, **options
    )
    assert result.budget is not None
    # A start whose requests would not fit has a pool all the same.
    assert result.budget.kv_pool_bytes / GIB == pytest.approx(printed, rel=0.025)


@pytest.mark.parametrize(
    ("count", "hidden", "kept"),
    [(58, 2560, True), (58, 3072, True), (58, 4096, False), (128, 2560, False), (None, 2560, False)],
)
def test_on_a_small_gpu_the_workspace_comes_late(count: int | None, hidden: int, kept: bool) -> None:
    """An L4 has 58 multiprocessors, and Inductor benchmarks matrix products from 68 on."""
    start = load(capability=ADA, max_num_batched_tokens=2048, multiprocessors=count)
    assert kept_copy(shape(hidden), start, TABLE)[0] == (TABLE if kept else 0)


def test_an_l4_printed_so() -> None:
    """Qwen3-4B on 0.29, cold: 10.60 GiB (akshathtiwari/spec-fp8-study, results/logs/20224e954c5db2f6.log)."""
    found = kvplan.size(
        "Qwen/Qwen3-4B", engine="vllm@0.29", gpu="l4", settings={"compile_cache": "cold"}
    ).budget
    assert found is not None
    assert found.kv_pool_bytes / GIB == pytest.approx(10.6, rel=0.01)
