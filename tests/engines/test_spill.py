"""llama.cpp leaves in host memory what its GPUs do not hold, unless somebody says where layers lie."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.api.launching import import_launches, launched_plans
from kvplan.checking import check_plan
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.plans.findings import CheckedPlan
from kvplan.proof.validate.target import target_of
from kvplan.results import SizeResult
from tests.plans.helpers import HEAD, plan

ASKED: dict[str, Any] = {"engine": "llamacpp", "quantization": "q4_k_m"}
DENSE, EXPERTS = "llama-3.3-70b", "qwen3-30b-a3b"


def _size(model: str, **options: Any) -> SizeResult:
    return kvplan.size(model, **{**ASKED, **options})


def test_a_dense_model_keeps_some_layers_in_host_memory() -> None:
    """The answer is that of -ngl with the number that the note says, and -ngl 99 is still refused."""
    found = _size(DENSE, gpu="rtx-4090", tokens=8192)
    assert found.refusal is None
    assert found.settings["layers_on_host"] == 41
    assert "not every layer fits: --fit chooses about -ngl 40 of 81, likely 41" in found.warnings
    same = _size(DENSE, gpu="rtx-4090", tokens=8192, n_gpu_layers=40)
    assert (found.budget, found.pool, found.devices) == (same.budget, same.pool, same.devices)
    assert _size(DENSE, gpu="rtx-4090", tokens=8192, n_gpu_layers=99).refusal is not None


def test_experts_leave_before_whole_layers() -> None:
    found = _size(EXPERTS, gpu="rtx-3060", tokens=8192)
    assert found.refusal is None
    assert found.settings["layers_on_host"] == 0
    assert found.settings["expert_layers_on_host"] == 27
    assert any("-ot 21.down,22-47.exps" in line for line in found.warnings)


def test_without_a_length_the_context_is_cut_first() -> None:
    """common/fit.cpp: to 4,096 tokens at the least, whole where that is enough, and then by layers."""
    whole = _size("llama-3.1-8b", gpu="rtx-3060")
    assert whole.settings["layers_on_host"] == 0
    assert whole.pool is not None
    assert 4096 < whole.request.tokens < 131_072
    part = _size(DENSE, gpu="rtx-4090")
    assert part.request.tokens == 4096
    assert "no length given: --fit leaves 4,096 of 131,072 tokens, likely 4,096" in part.warnings
    assert part.settings["layers_on_host"] > 0


@pytest.mark.parametrize(
    "own",
    [
        {"n_gpu_layers": 99},
        {"tensor_split": "1"},
        {"kv_cache_memory": "1GiB"},
        {"weights": "40GiB"},
    ],
)
def test_what_somebody_states_stays(own: dict[str, Any]) -> None:
    own = dict(own) if "weights" not in own else {**own, "quantization": None}
    found = _size(DENSE, gpu="rtx-4090", tokens=32_768, **own)
    assert found.refusal is not None
    assert not any("not every" in line for line in found.warnings)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi"])
def test_engines_without_it_refuse(engine: str) -> None:
    assert kvplan.size(DENSE, engine=engine, gpu="rtx-4090", tokens=8192).refusal is not None


@given(
    st.sampled_from([DENSE, EXPERTS, "llama-3.1-8b"]),
    st.sampled_from(["rtx-3060", "rtx-4090", "2xrtx-3090", "l40s"]),
    st.integers(64, 100_000),
    st.sampled_from([1, 3]),
)
@settings(max_examples=30, deadline=None)
def test_no_length_is_refused_for_memory_where_the_host_may_have_it_all(
    model: str, gpu: str, tokens: int, requests: int
) -> None:
    """Law: refused only where -ngl 0 is refused too, and no fewer layers for a shorter request: but for one,
    as a part of a layer may take the place of a whole one."""
    asked = {"gpu": gpu, "tokens": tokens, "requests": requests}
    found = _size(model, **asked)
    if found.refusal is not None:
        assert _size(model, n_gpu_layers=0, cpu_moe=True, **asked).refusal is not None
        return
    shorter = _size(model, **{**asked, "tokens": max(1, tokens // 2)})
    for name in ("layers_on_host", "expert_layers_on_host"):
        assert shorter.settings.get(name, 0) <= found.settings.get(name, 0) + 1


LINE = "llama-server -hf bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M"


@pytest.mark.parametrize(
    ("words", "serve"),
    [
        (" -c 8192", {"ctx_size": 8192, "n_gpu_layers": 40}),
        ("", {"ctx_size": 4096, "n_gpu_layers": 41}),
        (" -c 8192 -ngl auto", {"ctx_size": 8192, "n_gpu_layers": 40}),
        (" -c 8192 -ngl all", {"ctx_size": 8192, "n_gpu_layers": 999}),
        (" -c 8192 --fit off", {"ctx_size": 8192, "n_gpu_layers": 999}),
        (" -c 8192 -ngl 12", {"ctx_size": 8192, "n_gpu_layers": 12}),
    ],
)
def test_a_command_is_the_plan_of_what_it_starts_with(words: str, serve: dict[str, int]) -> None:
    (plan,) = launched_plans(import_launches(LINE + words), gpu="rtx-4090")
    own = dict(plan.serve)
    assert {name: own[name] for name in serve} == serve
    said = any("not every" in line for line in plan.notes)
    assert said is (own["n_gpu_layers"] in (39, 40, 41))


def test_a_command_without_a_gpu_places_nothing() -> None:
    (plan,) = launched_plans(import_launches(LINE + " -c 8192"), needs_gpu=False)
    assert "n_gpu_layers" not in dict(plan.serve)
    with pytest.raises(KvplanError):
        launched_plans(import_launches(LINE))


def test_transformers_starts_with_the_pool_that_there_is() -> None:
    """Continuous batching has no longest request: without a length, what the pool holds of one."""
    asked: dict[str, Any] = {"engine": "transformers", "continuous_batching": True, "gpu": "rtx-4090"}
    found = kvplan.size("qwen3-8b", **asked)
    assert found.refusal is None
    assert any(line.startswith("no length given: the pool leaves") for line in found.warnings)
    length = found.request.tokens
    assert kvplan.size("qwen3-8b", tokens=length, **asked).refusal is None
    refused = kvplan.size("qwen3-8b", tokens=40_960, **asked).refusal
    assert refused is not None
    most = refused.largest_max_model_len
    assert most is not None
    assert most >= length
    assert kvplan.size("qwen3-8b", tokens=most, **asked).refusal is None
    assert kvplan.size("qwen3-8b", tokens=most + 256, **asked).refusal is not None


PLAN = """
model: llama-3.3-70b
engine: llamacpp
gpu: rtx-4090
serve: {quantization: q4_k_m, ctx_size: 8192}
require: {requests: 1, tokens: 8192%s}
"""


def _checked(more: str = "") -> CheckedPlan:
    made = plan(HEAD + PLAN.lstrip() % more)
    return check_plan(made, kvplan.load_model(made.model))


def test_a_plan_file_starts_as_its_engine_starts_it() -> None:
    """What ``size`` answers, ``check`` does: the same pool, and a warning that says where layers lie."""
    found = _checked()
    assert found.passed
    assert "left-in-host-memory" in {one.code for one in found.findings}
    sized = _size(DENSE, gpu="rtx-4090", tokens=8192, ctx_size=8192)
    assert sized.budget is not None
    known = {fact.name: fact.value for fact in found.facts}
    assert known["kv_pool_bytes"] == sized.budget.kv_pool_bytes


@pytest.mark.parametrize(("host", "passes"), [("16GiB", False), ("32GiB", True)])
def test_weights_count_in_the_host_memory_that_there_is(host: str, passes: bool) -> None:
    found = _checked(f", host_memory: {host}")
    assert found.passed is passes
    size = _size(DENSE, gpu="rtx-4090", tokens=8192, host_memory=host)
    assert (size.refusal is None) is passes
    if size.refusal is not None:
        assert "lie in host memory, of which 16.00 GiB may be taken" in size.refusal.message


@pytest.mark.parametrize(("model", "gpu"), [(DENSE, "rtx-4090"), (EXPERTS, "rtx-3060")])
def test_what_lies_in_host_memory_is_counted_and_said(model: str, gpu: str) -> None:
    """Of whole layers and of experts alone; with what the GPU holds it is the file."""
    found = _size(model, gpu=gpu, tokens=8192)
    hosted = sum(line.bytes for line in found.host if line.name == "weights")
    assert hosted
    assert found.weights is not None
    # A tied embedding would lie in both; these two have an output of their own.
    assert hosted + found.weights.bytes_per_gpu == found.weights.total_bytes
    assert any("lie in host memory, which was not counted" in line for line in found.warnings)
    enough = _size(model, gpu=gpu, tokens=8192, host_memory="64GiB")
    assert not any("was not counted" in line for line in enough.warnings)


@given(
    st.sampled_from([DENSE, EXPERTS]),
    st.sampled_from(["rtx-3060", "rtx-4090"]),
    st.integers(1, 64),
    st.integers(256, 30_000),
)
@settings(max_examples=12, deadline=None)
def test_it_is_refused_just_where_the_host_has_too_little(
    model: str, gpu: str, host: int, tokens: int
) -> None:
    """Law: with so much host memory it starts where what lies there is no more, and only there."""
    free = _size(model, gpu=gpu, tokens=tokens)
    lies = sum(line.bytes for line in free.host if line.name != "kept prompts")
    bound = _size(model, gpu=gpu, tokens=tokens, host_memory=f"{host}GiB")
    if not lies:
        assert bound.refusal == free.refusal
    else:
        assert (bound.refusal is None) is (lies <= host * 2**30)


def test_the_planner_leaves_layers_in_host_memory_where_no_gpus_hold_them() -> None:
    """One 4090 is all there is: the plan says where layers lie, and its check passes. Two more would do."""
    found = kvplan.plan(DENSE, engine="llamacpp", gpu="1xrtx-4090", tokens=8192, host_memory="64GiB")
    assert found.plan is not None
    serve = dict(found.plan.serve)
    assert serve["quantization"] == "q6_k"  # of what the quality allows the smallest
    layers = serve["n_gpu_layers"]
    assert isinstance(layers, int)
    assert 0 < layers < 81
    assert any("not every" in line for line in found.warnings)
    assert check_plan(found.plan, kvplan.load_model(DENSE)).passed
    whole = kvplan.plan(DENSE, engine="llamacpp", gpu="3xrtx-4090", tokens=8192)
    assert whole.plan is not None
    assert "n_gpu_layers" not in dict(whole.plan.serve)


def test_the_planner_does_not_promise_a_speed_or_host_memory_that_is_not_there() -> None:
    asked: dict[str, Any] = {"engine": "llamacpp", "gpu": "1xrtx-4090", "tokens": 8192}
    with pytest.raises(KvplanError, match="are not estimated"):
        kvplan.plan(DENSE, tpot=1, **asked)
    assert kvplan.plan(DENSE, host_memory="8GiB", **asked).plan is None
    assert kvplan.plan(DENSE, settings={"n_gpu_layers": 99}, **asked).plan is None


def test_fits_lists_what_the_host_takes_where_it_is_told_how_much() -> None:
    asked: dict[str, Any] = {"gpu": "rtx-4090", "engine": "llamacpp", "models": "llama-3.3-70b"}
    assert not kvplan.fits(**asked).rows
    assert not kvplan.fits(**asked, host_memory=4 * 2**30).rows
    (row,) = kvplan.fits(**asked, host_memory=64 * 2**30).rows
    assert row.format == "q4_k_m"
    assert row.safe_requests >= 1
    assert 2**30 < row.host_bytes < 64 * 2**30
    same = _size(DENSE, gpu="rtx-4090", tokens=8192, max_model_len=8192, quantization="q4_k_m")
    assert row.host_bytes == sum(line.low_bytes for line in same.host)
    with pytest.raises(KvplanError, match="leaves nothing in host memory"):
        kvplan.fits(gpu="rtx-4090", engine="vllm", host_memory=64 * 2**30)


def test_fits_ranks_what_fits_whole_first_of_its_builds() -> None:
    """A build that fits whole is taken before any that does not."""
    asked: dict[str, Any] = {"gpu": "rtx-4090", "engine": "llamacpp", "models": "llama-3.1-8b"}
    plain, hosted = kvplan.fits(**asked), kvplan.fits(**asked, host_memory=64 * 2**30)
    assert plain.rows == hosted.rows


def test_a_rehearsal_places_layers_as_the_server_does() -> None:
    made = plan(HEAD + PLAN.lstrip() % "")
    model, choice = kvplan.load_model(made.model), choose(made.engine)
    found = target_of(made, model, choice, asks_proof=False, on_gpu=True)
    assert any("not every" in note for note in found.notes)
    assert found.result.settings["layers_on_host"] > 0


@pytest.mark.parametrize(
    ("model", "gpu", "memory"),
    [("gpt-oss-120b", "rtx-3090", "64GiB"), ("qwen3-30b-a3b", "rtx-3060", "32GiB")],
)
def test_host_memory_that_was_stated_takes_the_place_of_gpus(model: str, gpu: str, memory: str) -> None:
    """Fewer GPUs than hold it whole, as many as a limit of so many finds, and how many do is said."""
    asked: dict[str, Any] = {"engine": "llamacpp", "gpu": gpu, "tokens": 16_384, "depth": False}
    whole = kvplan.plan(model, **asked).options[0].gpus
    found = kvplan.plan(model, **asked, host_memory=memory)
    assert found.options[0].gpus < whole
    assert f"{whole} GPUs hold it whole: leave --host-memory out" in found.warnings
    limited = kvplan.plan(model, **asked, host_memory=memory, max_gpus=found.options[0].gpus)
    assert limited.options[0].gpus == found.options[0].gpus
    assert limited.options[0].safe_requests == found.options[0].safe_requests
