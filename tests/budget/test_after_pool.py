"""Memory that a start takes once its pool is there, and what must be free before: lines beside the budget."""

from __future__ import annotations

from fractions import Fraction

import pytest

import kvplan
from kvplan.engines.vllm.memory.rank_budget import AFTER, FREE
from kvplan.files.gpus.find import load_gpu
from kvplan.gpu import under_wsl
from kvplan.results import SizeResult, Verdict
from kvplan.units import GIB


def asked(gpu: str, share: str, model: str = "qwen3-4b", **more: object) -> SizeResult:
    found: SizeResult = kvplan.size(
        model,
        engine="vllm@0.30",
        gpu=gpu,
        gpu_memory_utilization=share,
        max_model_len=8192,
        **more,  # type: ignore[call-overload]
    )
    return found


def test_a_start_that_died_after_its_pool_is_not_safe() -> None:
    """vllm-project/vllm#57475: 0.98 of 22.36 GiB makes a pool and dies at the graphs, 0.97 runs."""
    died, runs = asked("22.36GiB", "0.98"), asked("22.36GiB", "0.97")
    assert died.verdict is Verdict.LIKELY
    assert runs.verdict is Verdict.YES
    assert died.budget is not None
    assert (died.budget.kv_pool_low_bytes == 0) < died.budget.kv_pool_bytes
    assert any("0.97 leaves enough" in warning for warning in died.warnings)


def test_ranks_take_more_of_each_gpu() -> None:
    """vllm-project/vllm#51590: 0.95 of eight RTX PRO 4500 makes a pool of 19.0 GiB and dies."""
    found = kvplan.size(
        "openai/gpt-oss-120b", engine="vllm@0.28", gpu="8xrtx-pro-4500", tp=8, max_num_seqs=256,
        gpu_memory_utilization="0.95",
    )  # fmt: skip
    assert found.budget is not None
    assert found.budget.kv_pool_low_bytes == 0
    assert abs(found.budget.kv_pool_bytes - 19 * GIB) < GIB


def test_without_graphs_nothing_is_known_to_come_after() -> None:
    assert asked("22.36GiB", "0.98", enforce_eager=True).verdict is Verdict.YES


@pytest.mark.parametrize("share", ["0.5", "0.9", "0.95"])
def test_what_must_be_free_and_what_may_come_after_stand_beside_the_sum(share: str) -> None:
    budget = asked("h100", share).budget
    assert budget is not None
    lines = {line.name: line for line in budget.beside}
    asked_for = lines[FREE].bytes
    assert asked_for == -(-budget.total_bytes * Fraction(share) // 1)
    assert lines[AFTER].high_bytes > lines[AFTER].low_bytes == 0
    assert sum(line.bytes for line in budget.lines) + budget.kv_pool_bytes == asked_for
    shown = asked("h100", share).model_dump()["budget"]["beside"]
    assert [one["name"] for one in shown] == [FREE, AFTER]


def test_windows_holds_a_part_of_a_card() -> None:
    """30.2 of 31.84 GiB of an RTX 5090 were free under WSL: 0.95 was refused, 0.94 started."""
    card = under_wsl(load_gpu("rtx-5090"))
    total = card.memory_total_bytes
    assert total is not None
    assert abs(min(card.memory_free_seen) - Fraction("30.2") * GIB) < GIB // 50
    refused, started = asked("rtx-5090 wsl", "0.95"), asked("rtx-5090 wsl", "0.94")
    assert (refused.verdict, started.verdict) == (Verdict.LIKELY, Verdict.YES)
