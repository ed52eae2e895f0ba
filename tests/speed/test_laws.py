"""What must hold of any estimate, whatever the constants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.files.speed import speed_assumptions, speed_inputs
from kvplan.planning.speed import (
    Deployment,
    Figure,
    Load,
    SpeedProfile,
    deployment_of,
    estimate,
    most_requests,
    speed_profile,
    step_seconds,
)
from kvplan.settings import Settings
from tests.speed.conftest import Make

MODELS = ["llama-3.1-8b", "qwen3-30b-a3b", "openai/gpt-oss-20b", "deepseek-v2-lite", "qwen3-next-80b-a3b"]
GPUS = ["h100", "a100-sxm-80gb", "l40s", "b200", "mi300x", "rtx-4090"]
models, gpus = st.sampled_from(MODELS), st.sampled_from(GPUS)
loads = st.builds(Load, st.integers(1, 400), st.integers(1, 60_000), st.integers(1, 4000))
laws = settings(max_examples=60, deadline=None)


def figures(profile: SpeedProfile, load: Load) -> list[Figure]:
    found = estimate(profile, load)
    return [getattr(found, name) for name in found.__slots__]  # type: ignore[attr-defined]


@laws
@given(model=models, gpu=gpus, load=loads)
def test_intervals_hold_their_value_and_name_their_reasons(
    profile: Make, model: str, gpu: str, load: Load
) -> None:
    for figure in figures(profile(model, gpu), load):
        assert 0 < figure.low <= figure.value <= figure.high
        names = [entry.name for entry in figure.assumptions]
        assert len(names) == len(set(names))
        assert {"memory_bandwidth", "memory_efficiency"} <= set(names)
        assert all(entry.source for entry in figure.assumptions)


@laws
@given(model=models, gpu=gpus, load=loads, more=st.integers(1, 200))
def test_more_requests_are_never_faster(profile: Make, model: str, gpu: str, load: Load, more: int) -> None:
    made = profile(model, gpu)
    few, many = estimate(made, load), estimate(made, load.with_requests(load.requests + more))
    for name in ("step", "tpot", "ttft"):
        assert getattr(many, name).value >= getattr(few, name).value * (1 - 1e-9)


@laws
@given(model=models, gpu=gpus, load=loads, more=st.integers(1, 20_000))
def test_a_longer_prompt_is_never_faster(profile: Make, model: str, gpu: str, load: Load, more: int) -> None:
    made = profile(model, gpu)
    longer = Load(load.requests, load.prompt + more, load.output)
    short, long = estimate(made, load), estimate(made, longer)
    for name in ("step", "tpot", "ttft"):
        assert getattr(long, name).value >= getattr(short, name).value * (1 - 1e-9)


@laws
@given(
    model=models, requests=st.integers(1, 300), tokens=st.integers(1, 100_000), more=st.integers(1, 100_000)
)
def test_a_longer_context_never_decodes_faster(
    profile: Make, model: str, requests: int, tokens: int, more: int
) -> None:
    made = profile(model)
    assert step_seconds(made, requests, ((tokens + more, 1.0),)) >= step_seconds(
        made, requests, ((tokens, 1.0),)
    )


@laws
@given(model=models, gpu=gpus, load=loads, factor=st.floats(1.0, 8.0))
def test_more_bandwidth_or_arithmetic_is_never_slower(
    profile: Make, model: str, gpu: str, load: Load, factor: float
) -> None:
    known = kvplan.load_gpu(gpu)
    assert known.bandwidth_bytes_per_second is not None
    wider = replace(known, bandwidth_bytes_per_second=int(known.bandwidth_bytes_per_second * factor))
    stronger = replace(known, dense_tflops={name: rate * factor for name, rate in known.dense_tflops.items()})
    before = estimate(profile(model, known), load)
    for better in (wider, stronger):
        # A profile is cached by its arguments, and a GPU's rates are no part of its hash but of its equality.
        after = estimate(profile(model, better), load)
        for name in ("step", "tpot", "ttft"):
            assert getattr(after, name).value <= getattr(before, name).value * (1 + 1e-9)


@laws
@given(load=loads, cached=st.floats(0, 0.999))
def test_a_cached_prefix_is_never_slower(profile: Make, load: Load, cached: float) -> None:
    made = profile("llama-3.1-8b")
    hit = Load(load.requests, load.prompt, load.output, cached=int(load.prompt * cached))
    # A last chunk that the cache leaves small may take its own step: at most the fixed cost of one more.
    assert estimate(made, hit).ttft.value <= estimate(made, load).ttft.value * (1 + 1e-9)
    assert estimate(made, hit).tpot.value <= estimate(made, load).tpot.value * (1 + 1e-9)


@pytest.mark.parametrize("model", [*MODELS, "llama-3.1-405b", "deepseek-v3", "zai-org/GLM-4.6"])
def test_tensor_parallelism_never_increases_a_ranks_bytes(profile: Make, model: str) -> None:
    loaded = kvplan.load_model(model)
    heads = loaded.num_attention_heads
    made = [profile(model, tensor_parallel_size=ways) for ways in (1, 2, 4, 8) if heads % ways == 0]
    sizes = [entry.weight_bytes() for entry in made]
    caches = [entry.cache_bytes(10_000) for entry in made]
    assert sizes == sorted(sizes, reverse=True)
    assert caches == sorted(caches, reverse=True)
    assert sizes[0] > sizes[-1]


@laws
@given(load=loads, tpot=st.floats(0.001, 0.2), ttft=st.floats(0.01, 20))
def test_the_most_requests_are_the_most(profile: Make, load: Load, tpot: float, ttft: float) -> None:
    made = profile("qwen3-30b-a3b")
    most = most_requests(made, load, tpot=tpot, ttft=ttft, limit=512)

    def holds(requests: int) -> bool:
        found = estimate(made, load.with_requests(requests))
        return found.tpot.value <= tpot and found.ttft.value <= ttft

    assert most == 0 or holds(most)
    assert most == 512 or not holds(most + 1)


def test_the_same_question_has_the_same_answer(profile: Make) -> None:
    load = Load(17, 3000, 300)
    first, second = profile("qwen3-8b"), profile("qwen3-8b")
    assert first is second
    fresh = speed_assumptions().replaced()
    assert [f.value for f in figures(profile("qwen3-8b", table=fresh), load)] == [
        f.value for f in figures(first, load)
    ]


@laws
@given(lengths=st.lists(st.integers(1, 20_000), min_size=1, max_size=5), requests=st.integers(1, 100))
def test_a_mix_of_lengths_costs_as_its_parts(profile: Make, lengths: list[int], requests: int) -> None:
    """Below the compute bound of attention a step is linear in the cache's bytes."""
    made = profile("llama-3.1-8b")
    share = 1 / len(lengths)
    mixed = step_seconds(made, requests, tuple((length, share) for length in lengths))
    parts = [step_seconds(made, requests, ((length, 1.0),)) for length in lengths]
    assert mixed == pytest.approx(sum(parts) / len(parts), rel=1e-6)


def test_tokens_per_second_are_consistent(profile: Make) -> None:
    found = estimate(profile("llama-3.1-8b"), Load(32, 1000, 500))
    assert found.tokens_per_second.value == pytest.approx(500 * found.requests_per_second.value)
    assert found.request_tokens_per_second.value == pytest.approx(1 / found.tpot.value)
    assert found.tokens_per_second.value < 32 * found.request_tokens_per_second.value


@pytest.mark.parametrize(
    "values",
    [
        {"requests": 0},
        {"prompt": 0},
        {"output": 0},
        {"cached": 100},
        {"cached": -1},
        {"contexts": ((10, 0.5), (20, 0.4))},
        {"contexts": ((10, 1.5), (20, -0.5))},
    ],
)
def test_bad_loads_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(kvplan.KvplanError):
        Load(**{"requests": 1, "prompt": 100, "output": 10, **values})  # type: ignore[arg-type]


def test_settings_become_a_deployment() -> None:
    settings = Settings(tensor_parallel_size=4, kv_cache_dtype="fp8", max_num_batched_tokens=2048)
    made = deployment_of(settings, "sglang")
    assert made == Deployment(
        engine="sglang", tensor_parallel_size=4, kv_cache_dtype="fp8", max_num_batched_tokens=2048
    )
    assert made.gpus == 4


def test_experts_per_token_must_be_known() -> None:
    model = kvplan.load_model("mixtral-8x7b")
    inventory, _, table = speed_inputs(model)
    with pytest.raises(kvplan.KvplanError, match="of its 8 experts"):
        speed_profile(model, kvplan.load_gpu("h100"), inventory, 0, Deployment(), table)


def test_fp8_cache_halves_what_attention_reads(profile: Make) -> None:
    whole, half = profile("llama-3.1-8b"), profile("llama-3.1-8b", kv_cache_dtype="fp8")
    assert half.cache_bytes(1000) * 2 == whole.cache_bytes(1000)
    assert step_seconds(half, 64, ((8000, 1.0),)) < step_seconds(whole, 64, ((8000, 1.0),))


@laws
@given(
    model=st.sampled_from(["llama-3.1-8b", "llama-3.3-70b", "qwen3-32b"]),
    gpu=st.sampled_from(["h100", "h200", "a100-sxm-80gb", "l40s", "b200", "mi300x"]),
    tp=st.sampled_from((1, 2, 4)),
    load=loads,
)
def test_no_end_of_an_interval_is_beyond_the_machine(
    profile: Make, model: str, gpu: str, tp: int, load: Load
) -> None:
    """Weights and cache are read once a step, a prompt's matrices computed once, at the GPU's own peaks."""
    card, made = kvplan.load_gpu(gpu), profile(model, gpu, tensor_parallel_size=tp)
    assert card.bandwidth_bytes_per_second is not None
    found = estimate(made, load)
    held = made.weight_bytes() + load.requests * made.cache_bytes(load.prompt)
    assert found.tpot.low >= held / card.bandwidth_bytes_per_second * 0.999
    assert found.tpot.low >= found.step.low * 0.999
    flops = sum(part.flops_per_token for stage in made.stages for part in stage.dense) * load.prompt
    assert found.ttft.low >= flops / (card.dense_tflops["bf16"] * 10**12) * 0.999
    assert found.request_tokens_per_second.high <= 1.001 / found.step.low
    if load.output > 1:  # else no step only makes answers
        assert found.tokens_per_second.high <= load.requests * 1.001 / found.step.low
