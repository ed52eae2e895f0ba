"""llama.cpp leaves in host memory what its GPUs do not hold, unless somebody says where layers lie."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.api.launching import import_launches, launched_plans
from kvplan.errors import KvplanError
from kvplan.results import SizeResult

ASKED: dict[str, Any] = {"engine": "llamacpp", "quantization": "q4_k_m"}
DENSE, EXPERTS = "llama-3.3-70b", "qwen3-30b-a3b"


def _size(model: str, **options: Any) -> SizeResult:
    return kvplan.size(model, **{**ASKED, **options})


def test_a_dense_model_keeps_some_layers_in_host_memory() -> None:
    """The answer is that of -ngl with the number that the note says, and -ngl 99 is still refused."""
    found = _size(DENSE, gpu="rtx-4090", tokens=8192)
    assert found.refusal is None
    assert found.settings["layers_on_host"] == 41
    assert "it does not fit whole: its fitting takes some -ngl 40 of 81" in found.warnings
    same = _size(DENSE, gpu="rtx-4090", tokens=8192, n_gpu_layers=40)
    assert (found.budget, found.pool, found.devices) == (same.budget, same.pool, same.devices)
    assert _size(DENSE, gpu="rtx-4090", tokens=8192, n_gpu_layers=99).refusal is not None


def test_experts_leave_before_whole_layers() -> None:
    found = _size(EXPERTS, gpu="rtx-3060", tokens=8192)
    assert found.refusal is None
    assert found.settings["layers_on_host"] == 0
    assert found.settings["expert_layers_on_host"] == 27
    assert any("--n-cpu-moe 27 of 48" in line for line in found.warnings)


def test_without_a_length_the_context_is_cut_first() -> None:
    """common/fit.cpp: to 4,096 tokens at the least, whole where that is enough, and then by layers."""
    whole = _size("llama-3.1-8b", gpu="rtx-3060")
    assert whole.settings["layers_on_host"] == 0
    assert whole.pool is not None
    assert 4096 < whole.request.tokens < 131_072
    part = _size(DENSE, gpu="rtx-4090")
    assert part.request.tokens == 4096
    assert "no length given: it is cut to 4,096 of 131,072 tokens" in part.warnings
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
    assert not any("fit whole" in line for line in found.warnings)


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
    """Law: refused only where -ngl 0 is refused too, and never fewer layers for a shorter request."""
    asked = {"gpu": gpu, "tokens": tokens, "requests": requests}
    found = _size(model, **asked)
    if found.refusal is not None:
        assert _size(model, n_gpu_layers=0, cpu_moe=True, **asked).refusal is not None
        return
    shorter = _size(model, **{**asked, "tokens": max(1, tokens // 2)})
    for name in ("layers_on_host", "expert_layers_on_host"):
        assert shorter.settings.get(name, 0) <= found.settings.get(name, 0)


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
    said = any("fit whole" in line for line in plan.notes)
    assert said is (own["n_gpu_layers"] in (40, 41))


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
