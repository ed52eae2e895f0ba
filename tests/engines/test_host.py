"""What an engine takes of the host: what leaves its GPUs, queues in /dev/shm, layers without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.engines.vllm.memory.host import tier_tokens
from kvplan.results import MEMORY, SHM
from kvplan.units import GIB, MIB

LLAMA = "llama-3.3-70b"


def host(engine: str = "vllm@0.32", **options: Any) -> dict[str, Any]:
    found = kvplan.size(LLAMA, engine=engine, tokens=4096, **options)
    return {one.name: one for one in found.host}


def test_one_gpu_needs_no_queues() -> None:
    assert host(gpu="b300") == {}
    assert "host" not in kvplan.size(LLAMA, gpu="b300", tokens=4096).model_dump()


@given(tp=st.sampled_from([2, 4, 8]), pp=st.sampled_from([1, 2]))
def test_queues_are_counted_by_hand(tp: int, pp: int) -> None:
    """10 chunks of 16 MiB to all ranks, 10 of 24 MiB from each, 6 of 4 MiB in each group."""
    line = host(gpu="h200", tp=tp, pp=pp)["queues of the processes"]
    ranks = tp * pp
    steps, answers = 10 * (16 * MIB + 1 + ranks), ranks * 10 * (24 * MIB + 2)
    assert line.high_bytes == steps + answers + pp * 6 * (4 * MIB + tp)
    assert (line.low_bytes, line.where) == (0, SHM)


def test_blocks_off_the_gpu_lie_in_shm_since_a_release() -> None:
    new = host(gpu="h200", tp=4, kv_offloading_size=100)["KV blocks off the GPU"]
    assert (new.low_bytes, new.high_bytes, new.where) == (100 * GIB, 100 * GIB, SHM)
    old = host("vllm@0.25", gpu="h200", tp=4, kv_offloading_size=100)["KV blocks off the GPU"]
    assert (old.low_bytes, old.high_bytes, old.where) == (100 * GIB, 200 * GIB, MEMORY)


@pytest.mark.parametrize(
    ("amount", "block", "copies", "sizes", "held"),
    [
        (100 * GIB, 2 * MIB, 2, [16], (25_600, 409_600)),
        # Four groups of one size: a quarter of the tokens that the blocks alone would be (vllm#56871).
        (100 * GIB, 27_262_976, 2, [832] * 4, (1_969, 409_344)),
        (100 * GIB, MIB, 1, [16, 64], (102_400, 1_310_720)),
        (GIB, 4097, 1, [16], (131_072, 2_097_152)),  # whole pages
        (MIB, 2 * MIB, 1, [16], (0, 0)),
    ],
)
def test_a_tier_holds_blocks_of_every_group(
    amount: int, block: int, copies: int, sizes: list[int], held: tuple[int, int]
) -> None:
    assert tier_tokens(amount, block, copies, sizes) == held


@given(st.integers(1, 10**6), st.lists(st.sampled_from([16, 64, 832, 2048]), min_size=1, max_size=5))
def test_one_token_more_needs_a_block_that_is_not_there(pages: int, sizes: list[int]) -> None:
    blocks, tokens = tier_tokens(pages * 4096, 4096, 1, sizes)
    assert blocks == pages
    taken = [sum(-(-count // size) for size in sizes) for count in (tokens, tokens + 1)]
    assert taken[0] <= blocks < taken[1]


def test_the_tokens_of_a_tier_are_told() -> None:
    line = host(gpu="h200", tp=4, kv_offloading_size=100)["KV blocks off the GPU"]
    assert line.tokens == 100 * GIB // (16 * 80 * 2 * 8 * 128 * 2) * 16
    latent = kvplan.size(
        "deepseek-ai/DeepSeek-V2-Lite", engine="vllm@0.32", gpu="h100", tp=2, tokens=1024,
        settings={"kv_offloading_size": 10},
    )  # fmt: skip
    assert latent.pool is not None
    (kept,) = (one.tokens for one in latent.host if one.tokens is not None)
    assert kept == 10 * GIB // -(-latent.pool.bytes_per_block // 4096) // 4096 * 16


def test_what_others_measured_lies_inside() -> None:
    """vllm-project/vllm#53042: 1.92 times what --kv-offloading-size asks for, before the shared region."""
    line = host("vllm@0.25", gpu="h200", tp=4, kv_offloading_size=200)["KV blocks off the GPU"]
    assert line.low_bytes <= 384 * GIB <= line.high_bytes


def test_offloaded_weights_are_pinned_on_every_rank() -> None:
    line = host(gpu="h100", tp=4, cpu_offload_gb=10)["weights"]
    assert (line.low_bytes, line.high_bytes, line.where) == (40 * GIB, 80 * GIB, MEMORY)


def test_layers_without_a_gpu() -> None:
    found = kvplan.size(
        LLAMA,
        engine="llamacpp",
        gpu="rtx-4090",
        quantization="q4_k_m",
        settings={"n_gpu_layers": 30},
        tokens=8192,
    )
    own = {one.name: one for one in found.host}
    (there,) = [one for one in found.devices if one.name == "host"]
    assert own["weights"].bytes == there.weights_bytes
    assert own["KV cache"].bytes == there.kv_bytes
    assert own["kept prompts"].high_bytes == 8 * GIB


PLAN = """kvplan: plan/v1
model: llama-3.3-70b
engine: vllm@0.32
gpu: h200
gpus: 4
serve: {tensor_parallel_size: 4, kv_offloading_size: 100, max_model_len: 8192}
require: {requests: 4, tokens: 8192, shm: SIZE}
"""


@pytest.mark.parametrize(("size", "passes"), [("64GiB", False), ("101GiB", False), ("102GiB", True)])
def test_a_plan_may_say_how_much_shm_there_is(tmp_path: Any, size: str, passes: bool) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN.replace("SIZE", size), encoding="utf-8")
    (plan,) = kvplan.check(path).plans
    assert plan.passed is passes
    assert [one.code for one in plan.findings if one.severity.value == "error"] == (
        [] if passes else ["shm-too-small"]
    )


def test_a_written_plan_keeps_it(tmp_path: Any) -> None:
    from kvplan.report.plan_file import plan_text

    path = tmp_path / "plan.yaml"
    path.write_text(PLAN.replace("SIZE", "102GiB"), encoding="utf-8")
    (plan,) = kvplan.load_plans(path)
    path.write_text(plan_text(plan), encoding="utf-8")
    assert kvplan.load_plans(path)[0].require == plan.require
