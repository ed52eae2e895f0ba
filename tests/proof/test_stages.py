"""The stages' own arithmetic: ballast, ranks, the ladder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.api import load_model, make_settings
from kvplan.engines.budget import choose
from kvplan.engines.tensors import Rank
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.plans.plan import Requirements
from kvplan.plans.workload import Shape, Workload
from kvplan.proof.validate.dry import dry_run
from kvplan.proof.validate.limit import bisect_limit
from kvplan.proof.validate.stages.ballast import _summing_to, ballast_of
from kvplan.proof.validate.target import Target, bare_plan, check_world, target_of

MIB = 1 << 20


def _target(model: str, engine: str = "vllm", *, pool: int = 64 * MIB, **options: Any) -> Target:
    settings = make_settings(kv_cache_memory=pool, **options)
    loaded, choice = load_model(model), choose(engine)
    changes = {"kv_cache_memory": pool}
    plan = bare_plan(loaded, choice, settings)
    return target_of(plan, loaded, choice, asks_proof=False, on_gpu=False, changes=changes)


@pytest.mark.parametrize(
    ("model", "options"),
    [("llama-3.1-8b", {}), ("qwen3-30b-a3b", {}), ("llama-3.1-8b", {"tensor_parallel_size": 2}),
     ("llama-3.1-8b", {"pipeline_parallel_size": 3}), ("gpt-oss-20b", {})],
)  # fmt: skip
def test_the_ballast_is_the_budgets_weights_to_the_byte(model: str, options: dict[str, Any]) -> None:
    from kvplan import size

    target = _target(model, **options)
    largest = max(ballast_of(target, rank).bytes for rank in target.ranks)
    weights = size(model, gpu="h200", **options).weights
    assert weights is not None
    assert largest == weights.bytes_per_gpu


def test_ballast_has_the_sizes_of_real_tensors() -> None:
    ballast = ballast_of(_target("llama-3.1-8b"), Rank())
    sizes = dict(ballast.tensors)
    assert sizes["model.embed_tokens"] == 128256 * 4096 * 2
    assert len(ballast.tensors) > 200


@given(st.lists(st.integers(1, 10**9), max_size=20), st.integers(0, 10**10))
def test_whatever_the_tensors_they_sum_to_the_total(sizes: list[int], total: int) -> None:
    found = _summing_to([(str(at), size) for at, size in enumerate(sizes)], total)
    assert sum(size for _, size in found) == total
    assert all(size > 0 for _, size in found)


def test_stated_and_offloaded_weights() -> None:
    assert ballast_of(_target("llama-3.1-8b", weights=1000 * MIB), Rank()).bytes == 1000 * MIB
    whole = ballast_of(_target("llama-3.1-8b"), Rank()).bytes
    assert ballast_of(_target("llama-3.1-8b", cpu_offload_gb="4"), Rank()).bytes == whole - 4 * 2**30


@pytest.mark.parametrize(("required", "flying", "wanted"), [(8, 20, 10), (20, 8, 10), (None, 6, 3)])
def test_a_pool_is_asked_for_the_requests_of_the_plan(required: int | None, flying: int, wanted: int) -> None:
    """Required or in flight, dealt over two engines, as `size` and `check` deal them."""
    loaded, choice = load_model("llama-3.1-8b"), choose("vllm")
    plan = replace(
        bare_plan(loaded, choice, make_settings(gpu="h100", max_model_len=8192)),
        gpus=2,
        require=Requirements(requests=required, tokens=None if required is None else 1000),
        workload=Workload((Shape(900, 100),), requests_in_flight=flying),
    )
    target = target_of(plan, loaded, choice, asks_proof=True, on_gpu=True)
    assert (target.wanted, target.settings.requests, target.settings.tokens) == (wanted, wanted, 1000)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 1000))
def test_bisection_finds_the_limit(low: int, extra: int, room: int, step: int) -> None:
    truth, ceiling = low + extra, low + room
    found = bisect_limit(lambda amount: amount <= truth, low, ceiling, step)
    assert low <= found.pool_bytes <= max(low, ceiling)
    assert found.by_memory == (truth < ceiling and ceiling > low)
    if found.by_memory:
        assert found.pool_bytes <= truth < found.pool_bytes + step
    assert found.tries <= 25


def test_a_world_of_the_wrong_size_says_the_command() -> None:
    target = _target("llama-3.1-8b", tensor_parallel_size=2, pipeline_parallel_size=2)
    check_world(target, 4)
    with pytest.raises(CannotRunHere) as caught:
        check_world(target, 1)
    assert caught.value.help == ("torchrun --nproc-per-node 4 -m kvplan.proof PLAN",)
    assert "tensor_parallel_size 2, pipeline_parallel_size 2" in caught.value.message


def test_ranks_lie_as_torch_numbers_them() -> None:
    target = _target("qwen3-32b", tensor_parallel_size=2, pipeline_parallel_size=2)
    assert [(one.stage, one.tensor) for one in target.ranks] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_auto_is_the_longest_that_fits_under_every_engine() -> None:
    for engine in ("vllm", "sglang", "trtllm"):
        target = _target("llama-3.1-8b", engine)
        tokens = target.result.request.tokens
        assert 0 < tokens < 1024
        assert target.layout(Rank()).requests >= 1
        longer = replace(target.settings, tokens=tokens + 64, max_model_len=tokens + 64)
        from kvplan.deployment.counts import max_requests

        assert max_requests(target.model, target.choice, longer) == 0


def test_a_pool_that_holds_nothing_is_refused() -> None:
    with pytest.raises(KvplanError, match="does not hold one token"):
        _target("llama-3.1-8b", pool=MIB)


def test_a_dry_run_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    planned = dry_run(_target("llama-3.1-8b", tensor_parallel_size=2), on_gpu=True)
    assert len(planned.ranks) == 2
    assert planned.ranks[0].pool_bytes <= planned.ranks[0].pool_reserved_bytes
    assert planned.model_dump()["ranks"][1]["tensor"] == 1
