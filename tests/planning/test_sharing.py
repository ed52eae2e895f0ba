"""Shared prompts: planner and check count alike, and a lever says what the plan says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.engines.budget.sharing import Sharing, Taken
from kvplan.errors import KvplanError
from kvplan.plans.workload import Shape, Workload
from kvplan.report.plan_file import plan_text

CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama-3.1-8b", {"tokens": "16k", "requests": 60, "shared_prefix": "8k", "gpu": "rtx-3090"}),
    ("llama-3.1-8b", {"tokens": "4k", "requests": 20, "samples": 4, "gpu": "rtx-3090"}),
    ("deepseek-v3", {"tokens": "16k", "requests": 64, "shared_prefix": "4k", "samples": 2, "gpu": "8xh200"}),
    ("gemma-3-27b", {"tokens": "16k", "requests": 20, "shared_prefix": "8k", "gpu": "h100"}),
    ("qwen3-next-80b-a3b-instruct", {"tokens": "16k", "requests": 20, "samples": 2, "gpu": "h100"}),
    ("llama-3.1-8b", {"tokens": "8k", "requests": 50, "samples": 2, "gpu": "l40s", "engine": "sglang"}),
    (
        "llama-3.1-8b",
        {
            "tokens": "2k",
            "requests": 3,
            "samples": 2,
            "gpu": "l40s",
            "engine": "llamacpp",
            "weights": "16GiB",
        },
    ),
]


@pytest.mark.parametrize(("model", "asked"), CASES)
def test_planner_and_check_agree_to_the_request(model: str, asked: dict[str, Any], tmp_path: Path) -> None:
    result = kvplan.plan(model, depth=False, **asked)
    assert result.plan is not None
    best = result.options[0]
    assert check(result.plan, tmp_path) == 0
    one_more = replace(result.plan.workload, requests_in_flight=best.requests + best.replicas)  # type: ignore[type-var]
    assert check(replace(result.plan, workload=one_more), tmp_path) == 1


def check(plan: Any, folder: Path) -> int:
    (folder / "plan.yaml").write_text(plan_text(plan, directory=folder), encoding="utf-8")
    return kvplan.check(str(folder / "plan.yaml")).exit_code


def test_sharing_saves_gpus_only_where_the_engine_shares() -> None:
    def gpus(model: str, **more: Any) -> int:
        asked = {"tokens": "16k", "requests": 60, "gpu": "l40s", "quality": "lossless", "depth": False}
        return kvplan.plan(model, **{**asked, **more}).options[0].gpus

    plain = gpus("llama-3.1-8b")
    assert gpus("llama-3.1-8b", shared_prefix="12k") < plain
    assert gpus("llama-3.1-8b", shared_prefix="12k", enable_prefix_caching=False) == plain
    assert gpus("gemma-3-12b", shared_prefix="12k") == gpus("gemma-3-12b")


@given(
    st.integers(1, 3000), st.integers(0, 500), st.integers(0, 3000), st.integers(1, 4),
    st.sampled_from((0, 16, 64)),
)  # fmt: skip
def test_what_is_shared_is_never_more_than_there_is(
    prompt: int, answer: int, prefix: int, samples: int, block: int
) -> None:
    """Shared blocks held once take at most what they take apart, and at least what one sequence takes."""
    unit = block or 16

    def share(tokens: int) -> Fraction:
        return Fraction(-(-tokens // unit), 1000)

    def takes(tokens: int, generated: int) -> Taken:
        return Taken(share(tokens))

    sharing, shape = Sharing(block, prefix, samples), Shape(prompt, answer)
    own = sharing.request(shape.input_tokens, shape.output_tokens, takes, share)
    assert own is not None
    whole = own.share + sharing.hit(prompt, prefix, share)
    assert share(shape.tokens) <= whole <= share(shape.tokens) * samples
    if not block:
        assert whole == share(shape.tokens) * samples


def test_the_lever_counts_what_the_plan_counts() -> None:
    load = Workload((Shape(14336, 2048),), shared_prefix_tokens=8192)
    result = kvplan.plan(
        "llama-3.1-8b", workload=load, requests=64, gpu="h100", levers=True, quality="lossless"
    )
    lever = next(one for one in result.levers if one.name == "prefix sharing")
    best = result.options[0]
    wide = kvplan.plan(
        "llama-3.1-8b", workload=load, objective="requests", gpu=f"{best.gpus}xh100", depth=False,
        quality="lossless", tp=1, pp=1, max_num_seqs=(best.max_num_seqs, 256),
    )  # fmt: skip
    assert lever.effect("sequences with sharing") == pytest.approx(
        wide.options[0].requests / best.replicas, abs=3
    )
    names = {one.name for one in result.levers}
    assert {
        "prefix sharing",
        "KV format",
        "preemption",
        "offload over PCIe",
        "disaggregated prefill",
    } <= names
    offload = next(one for one in result.levers if one.name.startswith("offload"))
    assert (offload.effect("time to compute it") or 0) > 0


def test_a_tier_in_host_memory_is_written_and_checked(tmp_path: Path) -> None:
    for engine, flag in (("vllm", "kv_offloading_size"), ("sglang", "hicache_size")):
        result = kvplan.plan(
            "llama-3.1-8b",
            tokens="8k",
            requests=200,
            gpu="h100",
            engine=engine,
            host_memory="300GiB",
            depth=False,
        )
        assert result.plan is not None
        assert dict(result.options[0].serve)[flag]
        assert 0 < result.plan.require.host_memory_bytes <= 300 * 2**30
        assert check(result.plan, tmp_path) == 0
    with pytest.raises(KvplanError, match="host memory"):
        kvplan.plan("llama-3.1-8b", tokens="8k", gpu="h100", engine="trtllm", host_memory="300GiB")


def test_arrivals_without_targets_are_refused() -> None:
    with pytest.raises(KvplanError, match="together"):
        kvplan.plan("llama-3.1-8b", tokens="8k", gpu="h100", arrival=3)
    known = kvplan.plan("llama-3.1-8b", tokens="8k", gpu="h100", arrival=3, requests=40, depth=False)
    assert known.requests == 40
