"""The stages' own arithmetic: ballast, widths of the probe, graphs' sizes, the ladder."""

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
from kvplan.proof.validate.stages.graphs import batch_sizes
from kvplan.proof.validate.stages.widths import (
    COPIED,
    IN_PLACE,
    MASKED,
    REHEARSED_BYTES,
    REHEARSED_OPERATIONS,
    SORTED,
    Widths,
    rehearsed,
    widths_of,
)
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


def test_the_whole_probe_has_the_engines_widths() -> None:
    widths = widths_of(_target("llama-3.1-8b", tensor_parallel_size=2), Rank())
    assert (widths.hidden, widths.mlp, widths.vocab, widths.element) == (4096, 7168, 128256, 2)
    assert widths.forward_bytes == widths.tokens * (2 * 4096 + 3 * 7168) * 2
    experts = widths_of(_target("qwen3-30b-a3b"), Rank())
    assert (experts.pairs_per_token, experts.expert) == (8, 768)
    first = widths_of(_target("llama-3.1-8b", pipeline_parallel_size=2), Rank(stage=0))
    assert first.rows == 0  # only the last stage samples


@pytest.mark.parametrize(
    ("engine", "options", "width"),
    [("vllm", {}, 192), ("vllm", {"enable_expert_parallel": True}, 768), ("sglang", {"ep_size": 4}, 768),
     ("sglang", {"ep_size": 2}, 384), ("sglang", {"moe_a2a_backend": "deepep"}, 768),
     ("trtllm", {"moe_expert_parallel_size": 2}, 384)],
)  # fmt: skip
def test_an_expert_is_as_wide_as_the_engines_own_size_says(
    engine: str, options: dict[str, Any], width: int
) -> None:
    target = _target("qwen3-30b-a3b", engine, tensor_parallel_size=4, **options)
    assert widths_of(target, Rank()).expert == width


@pytest.mark.parametrize(
    ("engine", "made"),
    [("vllm@0.11.0", MASKED), ("vllm@0.12", SORTED), ("vllm@0.16", SORTED), ("vllm@0.20", MASKED),
     ("vllm@0.25", COPIED), ("vllm@0.27", IN_PLACE), ("vllm@0.32", IN_PLACE), ("vllm@0.33", MASKED),
     ("sglang", SORTED)],
)  # fmt: skip
def test_the_probe_samples_as_the_budget_of_the_release_counts(engine: str, made: str) -> None:
    """Of a model that the V2 runner serves: it leaves the logits alone until 0.33 masks a copy."""
    assert widths_of(_target("llama-3.1-8b", engine, gpu="h200"), Rank()).sampled == made


def test_without_a_gpu_the_probe_is_taken_to_sort() -> None:
    assert widths_of(_target("llama-3.1-8b"), Rank()).sampled == SORTED


@pytest.mark.parametrize("made", [IN_PLACE, COPIED, MASKED, SORTED])
@pytest.mark.parametrize("element", [2, 4])
def test_the_samplers_tensors_are_those_that_it_is_said_to_make(made: str, element: int) -> None:
    """In host memory, where nothing sorts beside its tensors."""
    pytest.importorskip("torch", reason="torch is not installed")
    from kvplan.proof.validate.devices import CpuDevice
    from kvplan.proof.validate.stages.activations import probe
    from kvplan.proof.validate.stages.base import Bench

    widths = Widths(8, 8, 64, 64, 5000, element, sampled=made)
    bench = Bench(CpuDevice())
    probe(bench, widths, scaled=True, budget=None, name="probe")
    (figure,) = bench.figures
    assert figure.predicted == figure.measured == widths.peak
    assert widths.peak == 8 * 64 * element + widths.sampler_bytes
    assert widths.needed >= widths.peak_on_gpu >= widths.peak


@given(st.integers(1, 20000), st.integers(1, 2_000_000))
def test_what_sorting_takes_is_no_less_than_the_order(rows: int, vocab: int) -> None:
    from kvplan.proof.validate.stages.widths import sort_bytes

    taken = sort_bytes(rows, vocab)
    assert taken >= 8 * vocab
    assert taken <= 32 * min(rows * vocab, 2**31) + 20 * vocab + 1000


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


@given(
    st.builds(
        Widths,
        tokens=st.integers(1, 10**5), rows=st.integers(0, 2048), hidden=st.integers(64, 20000),
        mlp=st.integers(64, 60000), vocab=st.integers(1000, 300000), element=st.sampled_from([1, 2, 4]),
        pairs_per_token=st.integers(0, 16), expert=st.integers(64, 8192),
    )
)  # fmt: skip
def test_a_rehearsed_probe_is_small_and_no_larger_than_the_whole(widths: Widths) -> None:
    small = rehearsed(widths)
    assert 1 <= small.tokens <= widths.tokens
    assert small.rows <= widths.rows
    assert small.peak <= widths.peak
    one = replace(small, tokens=1, rows=min(1, small.rows))
    assert small.peak <= 2 * max(REHEARSED_BYTES, one.peak)
    assert small.operations <= max(REHEARSED_OPERATIONS, one.operations)


def test_graphs_are_captured_for_the_engines_sizes() -> None:
    assert batch_sizes(8) == (8, 4, 2, 1)
    assert batch_sizes(0) == (1,)
    assert batch_sizes(256)[:3] == (256, 248, 240)
    assert batch_sizes(1024)[:3] == (512, 496, 480)
    assert len(batch_sizes(1024)) == 51  # vLLM's default list up to 512


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
