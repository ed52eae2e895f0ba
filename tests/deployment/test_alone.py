"""The ways in which one request at a time is served: each is an answer of `size`, and they agree with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kvplan
from kvplan.deployment import alone
from kvplan.results import SizeResult, Verdict, Way

CASES = [
    ("qwen3-32b", "q4_k_m", "rtx-4090"), ("qwen3.6-27b", "q4_k_m", "rtx-3090"),
    ("llama-3.3-70b", "q4_k_m", "2xrtx-3090"), ("gpt-oss-120b", None, "rtx-3090"),
    ("qwen3-30b-a3b", "q4_k_m", "rtx-3060"), ("qwen3-14b", None, "m4-max"),
    ("gemma-3-12b", "q8_0", "rx-7900-xtx"), ("llama-3.3-70b", "q4_k_m", "2xrtx-3090+rtx-3060"),
]  # fmt: skip


def _size(model: str, build: str | None, gpu: str, **options: Any) -> SizeResult:
    if build is not None:
        options["quantization"] = build
    result: SizeResult = kvplan.size(model, engine="llamacpp", gpu=gpu, **options)
    return result


def _typed(way: Way) -> dict[str, Any]:
    words = way.options.split()
    names = {
        "-ctk": "cache_type_k",
        "-ctv": "cache_type_v",
        "-ngl": "n_gpu_layers",
        "--n-cpu-moe": "n_cpu_moe",
    }
    values = {names[flag]: value for flag, value in zip(words[::2], words[1::2], strict=True)}
    return {name: int(value) if value.isdigit() else value for name, value in values.items()}


@pytest.mark.parametrize(("model", "build", "gpu"), CASES)
def test_each_way_is_what_size_says_with_its_options(model: str, build: str | None, gpu: str) -> None:
    result = _size(model, build, gpu)
    assert result.ways
    for way in result.ways:
        assert way.longest is not None
        assert way.likely is not None
        assert way.longest <= way.likely
        alone = _size(model, build, gpu, settings=_typed(way), tokens=way.longest)
        assert alone.verdict is Verdict.YES, way
        hosted = alone.settings["layers_on_host"] or alone.settings.get("expert_layers_on_host")
        assert bool(hosted) <= way.hosted or gpu == "2xrtx-3090", way
        assert way.start is not None
        assert way.halfway is not None
        assert way.halfway.tokens == way.longest // 2
        assert way.halfway.tokens_per_second <= way.start.tokens_per_second


@pytest.mark.parametrize(("model", "build", "gpu"), CASES)
def test_the_first_way_is_the_answer_itself(model: str, build: str | None, gpu: str) -> None:
    """One question, one length: what the server is started with where nobody gave one."""
    result = _size(model, build, gpu)
    first = result.ways[0]
    assert first.longest == result.settings["n_ctx_seq"]
    assert first.hosted == bool(
        result.settings["layers_on_host"] or result.settings.get("expert_layers_on_host")
    )


def test_a_narrower_cache_reaches_further_and_host_memory_is_slower() -> None:
    whole, narrow, moved = _size("qwen3-32b", "q4_k_m", "rtx-4090").ways
    assert (whole.cache, narrow.cache, moved.cache) == ("f16", "q8_0", "f16")
    assert whole.longest is not None
    assert narrow.longest is not None
    assert 1.8 * whole.longest < narrow.longest < 2 * whole.longest
    assert moved.longest == 40_960
    assert whole.start is not None
    assert moved.start is not None
    assert moved.start.high < whole.start.low


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("llama-3.3-70b", "2xrtx-3090+rtx-3060"), ("llama-3.3-70b", "2xrtx-3090"),
        ("qwen3-32b", "3xrtx-3060"), ("qwen3-32b", "rtx-4090"), ("gemma-3-27b", "rtx-4090"),
    ],
)  # fmt: skip
def test_fewer_bits_never_reach_less_far(model: str, gpu: str) -> None:
    """Nor likely less than safely."""
    whole = [way for way in _size(model, "q4_k_m", gpu).ways if not way.hosted]
    safe, likely = [way.longest or 0 for way in whole], [way.likely or 0 for way in whole]
    assert safe == sorted(safe)
    assert likely == sorted(likely)
    assert all(one <= other for one, other in zip(safe, likely, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"requests": 2},
        {"kv_cache_memory": "4GiB"},
        {"weights": "15GiB"},
        {"settings": {"kv_retention": "sinks:4,window:4092"}},
    ],
)
def test_no_ways_where_another_question_was_asked(options: dict[str, Any]) -> None:
    assert _size("llama-3.1-8b", None, "rtx-4090", **options).ways == ()


def test_no_ways_on_gpus_of_data_centres_nor_of_engines_without_a_speed() -> None:
    assert _size("llama-3.1-8b", "q4_k_m", "h100").ways == ()
    assert kvplan.size("llama-3.1-8b", engine="vllm", gpu="rtx-4090").ways == ()


def test_ways_are_found_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and by the JSON, the screen and a reader alike; where nobody asks, none."""
    found: list[object] = []
    counted = alone._ways

    def noted(*given: Any) -> Any:
        found.append(given)
        return counted(*given)

    monkeypatch.setattr(alone, "_ways", noted)
    result = _size("qwen3-8b", "q4_k_m", "rtx-3060", tokens=4096)
    assert not found
    assert result.verdict is Verdict.YES
    ways = result.ways
    assert ways
    assert result.model_dump()["ways"][0]["longest"] == ways[0].longest
    assert f"{ways[0].longest:,}" in str(result)
    assert result.with_warnings(["said"]).ways is ways
    assert len(found) == 1


@pytest.mark.parametrize("width", ["18433", True, [4096]])
def test_a_width_that_is_no_number_takes_the_ways_and_not_the_answer(width: Any) -> None:
    """They are found when somebody asks for them, after the answer: nothing may fail there."""
    config = {**(kvplan.load_model("llama-3.1-8b").config or {}), "intermediate_size": width}
    found = kvplan.size(config, engine="llamacpp", gpu="rtx-4090", tokens=4096)
    assert found.ways == ()
    assert found.request.tokens == 4096
    assert json.dumps(found.model_dump())
