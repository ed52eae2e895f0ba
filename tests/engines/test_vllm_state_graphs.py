"""A server starts no more sequences than its pool has blocks of recurrent state (vLLM since 0.20)."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.versions import VERSIONS
from kvplan.results import Verdict

TOO_FEW = "too-few-states"
HYBRIDS = (
    "qwen3.6-27b",
    "qwen3-next-80b-a3b",
    "nemotron-3-super-120b-a12b",
    "granite-4.0-h-small",
    "lfm2-1.2b",
)
MACHINES: tuple[dict[str, Any], ...] = (
    {"gpu": "h100", "quantization": "fp8"},
    {"gpu": "2xh100", "tensor_parallel_size": 2},
    {"gpu": "rtx-4090"},
    {"gpu": "l40s", "max_num_seqs": 700},
)


def answered(model: str, **options: Any) -> kvplan.SizeResult | None:
    """None where the question has no answer of its own: weights that are stored otherwise, for example."""
    try:
        return kvplan.size(model, **options)
    except kvplan.KvplanError:
        return None


@pytest.mark.parametrize("version", ["0.19", "0.20", "0.27", VERSIONS[-1]])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one["gpu"])
def test_who_starts_has_a_block_for_every_sequence(version: str, machine: dict[str, Any]) -> None:
    seen = 0
    for model in HYBRIDS:
        result = answered(model, engine=f"vllm@{version}", **machine)
        if result is None or result.budget is None:
            continue
        seen += 1
        if result.pool is not None and version != "0.19":
            assert result.pool.num_blocks >= result.pool.max_num_seqs
        elif result.refusal is not None and result.refusal.code == TOO_FEW:
            assert version != "0.19"
            flag, number = result.refusal.help[0].split()
            assert flag == "--max-num-seqs"
            mended = answered(model, engine=f"vllm@{version}", **{**machine, "max_num_seqs": int(number)})
            assert mended is not None
            assert mended.refusal is None
            eager = answered(model, engine=f"vllm@{version}", **machine, enforce_eager=True)
            assert eager is not None
            assert eager.refusal is None
    assert seen


PUBLIC: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("vllm-project/recipes#551", "qwen3.6-27b", 856,
     {"engine": "vllm@0.22", "gpu": "h100", "quantization": "fp8", "gpu_memory_utilization": 0.95}),
    ("NVIDIA-AI-Blueprints/retail-shopping-assistant#95", "nemotron-3-super-120b-a12b", 524,
     {"engine": "vllm@0.20", "gpu": "2xh100", "tensor_parallel_size": 2, "gpu_memory_utilization": 0.9}),
    ("vllm-project/vllm#49064 (2026-09-03)", "qwen3.8-27b", 969,
     {"engine": "vllm@0.28", "gpu": "h100", "quantization": "nvfp4", "gpu_memory_utilization": 0.9,
      "max_model_len": 132_000}),
)  # fmt: skip
"""Starts that printed `max_num_seqs (1024) exceeds available Mamba cache blocks (…)`, and how many; nothing
was fitted to them. The second is a NIM that states neither its release nor its share of the memory: 542 are
said for its 524 at 0.9, 641 at vLLM's own 0.92. The third does not name the checkpoint's format: of those
published only 4 bits leave so many."""


@pytest.mark.parametrize(("source", "model", "blocks", "options"), PUBLIC, ids=lambda one: str(one)[:40])
def test_the_refusals_that_servers_printed(
    source: str, model: str, blocks: int, options: dict[str, Any]
) -> None:
    refusal = kvplan.size(model, **options).refusal
    assert refusal is not None, source
    assert refusal.code == TOO_FEW
    said = int(refusal.message.split("the ")[1].split(" blocks")[0].replace(",", ""))
    assert abs(said - blocks) <= 0.04 * blocks


def test_a_cache_that_is_stated_is_planned_with_a_warning() -> None:
    """The planner's own answer, which does not look at the graphs; the server's end is a warning."""
    result = kvplan.size(
        "qwen3.6-27b", engine="vllm@0.32", gpu="h100", quantization="fp8", kv_cache_memory="30GiB"
    )
    assert result.refusal is None
    assert result.pool is not None
    assert any("vLLM would stop: max_num_seqs" in text for text in result.warnings)


def test_what_may_not_start_holds_nothing_safely() -> None:
    """Where the likely pool has the blocks and the safe one has not."""
    from kvplan.api.options import make_settings
    from kvplan.deployment.answer import answer
    from kvplan.deployment.lengths import rungs
    from kvplan.deployment.question import Question
    from kvplan.engines.budget import choose

    model, choice = kvplan.load_model("qwen3.6-27b"), choose("vllm@0.28")
    started: dict[str, Any] = {"gpu": "h100", "quantization": "fp8", "tokens": "32k"}
    pool = answer(Question(model, choice, make_settings(**started, max_num_seqs=16))).result.pool
    assert pool is not None
    for seqs in range(pool.num_blocks - 160, pool.num_blocks, 8):
        found = answer(Question(model, choice, make_settings(**started, max_num_seqs=seqs)))
        if found.result.refusal is not None:
            break
        assert found.likely is not None
        assert found.safe is not None
        assert found.likely.each > 0
        if found.safe.each == 0:
            assert found.safe.refusal is not None
            assert found.safe.refusal.code == TOO_FEW
            assert found.verdict is Verdict.LIKELY
            assert {one.safe for one in rungs(found, (1024, 4096))} == {0}
            return
        assert found.verdict is Verdict.YES
    raise AssertionError("no number of sequences lies between the two pools")


def test_what_fits_is_told_how_it_starts() -> None:
    """With the engine's own default it would not: the row has the number that does."""
    found = kvplan.fits("24GiB", models="nemotron-3-nano", tokens=8192)
    (row, *_) = found.rows
    assert row.max_num_seqs is not None
    plain = kvplan.size(row.checkpoint, gpu="24GiB", tokens=8192, max_model_len=8192)
    assert plain.refusal is not None
    assert plain.refusal.code == TOO_FEW
    told = kvplan.size(
        row.checkpoint, gpu="24GiB", tokens=8192, max_model_len=8192, max_num_seqs=row.max_num_seqs
    )
    assert told.pool is not None
    assert told.pool.max_running == row.requests


@pytest.mark.parametrize("mode", ["none", "piecewise"])
def test_only_full_graphs_ask_for_a_block_each(mode: str) -> None:
    asked: dict[str, Any] = {"engine": "vllm@0.28", "gpu": "h100", "quantization": "nvfp4"}
    asked |= {"gpu_memory_utilization": 0.9, "max_model_len": 132_000}
    refused = kvplan.size("qwen3.8-27b", **asked)
    assert refused.refusal is not None
    assert refused.refusal.code == TOO_FEW
    assert kvplan.size("qwen3.8-27b", **asked, settings={"cudagraph_mode": mode}).refusal is None
    decodes = kvplan.size("qwen3.8-27b", **asked, settings={"cudagraph_mode": "full_decode_only"}).refusal
    assert decodes is not None
    assert decodes.code == TOO_FEW


@pytest.mark.parametrize("model", ["qwen3.6-27b-fp8", "granite-4.0-h-small"])
@pytest.mark.parametrize("gpu", ["h100", "rtx-pro-6000"])
def test_who_starts_in_the_likely_pool_alone_is_told_what_would_start(model: str, gpu: str) -> None:
    """Where the safe pool has fewer blocks than max_num_seqs and the likely one more: the flag that helps."""
    few = answered(model, gpu=gpu, engine="vllm@0.33", max_num_seqs=64)
    assert few is not None
    assert few.budget is not None
    assert few.pool is not None
    seqs = few.budget.kv_pool_bytes // few.pool.bytes_per_block
    result = answered(model, gpu=gpu, engine="vllm@0.33", max_num_seqs=seqs)
    while result is None or result.refusal is not None:  # more sequences leave less
        seqs -= max(1, seqs // 100)
        result = answered(model, gpu=gpu, engine="vllm@0.33", max_num_seqs=seqs)
    never = result.asked.safe.refusal
    assert never is not None
    assert never.code == TOO_FEW
    assert result.verdict is Verdict.LIKELY
    assert result.capacity is not None
    assert result.capacity.safe_requests == 0
    flag = never.help[0]
    assert "In the safe pool vLLM 0.33 refuses" in " ".join(str(result).split())
    assert f"help: {flag}" in str(result)
    mended = answered(model, gpu=gpu, engine="vllm@0.33", max_num_seqs=int(flag.split()[1]))
    assert mended is not None
    assert mended.verdict is Verdict.YES
