"""Room on a GPU under vLLM: a change that is offered holds the requests, and is the least."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.deployment.answer import Answer, answer
from kvplan.deployment.counts import max_requests
from kvplan.deployment.fixes import Fix, least_trials, suggested_fixes
from kvplan.deployment.question import Question
from kvplan.engines.base import Choice
from kvplan.engines.budget import choose
from kvplan.engines.vllm.words.trials import smaller_runs
from kvplan.model import Model
from kvplan.settings import Settings, with_setting

TIGHT = [
    ("qwen3-32b", "h100", 32_768, {}),
    ("qwen3-32b", "h100", 28_000, {"max_model_len": 30_000}),
    ("qwen3-8b", "rtx-4090", 36_000, {}),
    ("llama-3.1-8b", "l4", 20_000, {"max_model_len": 20_000}),
    ("qwen2.5-7b", "rtx-4090", 32_768, {"requests": 4}),
]


def _question(card: str, gpu: str, tokens: int, more: dict[str, int]) -> tuple[Model, Choice, Settings]:
    choice = choose("vllm@0.33")
    return kvplan.load_model(card), choice, make_settings(gpu=gpu, tokens=tokens, **more)


def _holds(model: Model, choice: Choice, settings: Settings) -> bool:
    return max_requests(model, choice, settings) >= settings.requests


@pytest.mark.parametrize(("card", "gpu", "tokens", "more"), TIGHT)
def test_the_change_that_is_offered_is_the_least_that_holds(
    card: str, gpu: str, tokens: int, more: dict[str, int]
) -> None:
    model, choice, settings = _question(card, gpu, tokens, more)
    settings = replace(settings, max_model_len=settings.max_model_len or tokens)
    steps = list(smaller_runs(settings))
    held = [_holds(model, choice, changed) for _, changed in steps]
    assert held == sorted(held), "what holds with one change holds with each larger one"
    found = next(least_trials(model, choice, settings))
    if True not in held:
        assert found is None
        return
    assert found is not None
    assert found[0] == steps[held.index(True)][0]
    assert found[1].max_num_seqs is not None
    assert found[1].max_num_seqs >= settings.requests


def _fixes(model: Model, choice: Choice, settings: Settings, *, written: bool = False) -> tuple[Fix, ...]:
    """written: the server's start is a plan's, so that it is not started for the requests."""
    return suggested_fixes(_answer(model, choice, settings, written=written))


def _answer(model: Model, choice: Choice, settings: Settings, *, written: bool) -> Answer:
    return answer(Question(model, choice, settings, written=written))


def test_a_start_for_the_requests_own_length_is_offered_with_what_it_takes() -> None:
    """40,960 tokens are the model's own: with 32,768 it starts with fewer at once, or more memory."""
    model, choice, settings = _question("qwen3-32b", "h100", 32_768, {})
    assert _answer(model, choice, settings, written=True).result.refusal is not None
    ways = [way for way in _fixes(model, choice, settings, written=True) if "--max-model-len" in way.options]
    assert len(ways) == 2
    for way in ways:
        words = way.options.split()
        flags = dict(zip(words[::2], words[1::2]))
        assert flags.pop("--max-model-len") == "32768"
        assert flags, "the length alone is not enough"
        started = replace(settings, max_model_len=32_768)
        for flag, value in flags.items():
            kind = Fraction if flag == "--gpu-memory-utilization" else int
            started = with_setting(started, flag.removeprefix("--").replace("-", "_"), kind(value))
        assert _holds(model, choice, started), way
    assert ways[-1].words == f"{ways[-1].options}: then it fits"


def test_a_length_that_is_enough_alone_is_offered_alone() -> None:
    model, choice, settings = _question("qwen3-32b", "h100", 16_384, {})
    ways = [way.options for way in _fixes(model, choice, settings, written=True)]
    assert [way for way in ways if "--max-model-len" in way] == ["--max-model-len 16384"]


def test_no_length_is_offered_where_the_server_is_started_for_the_requests() -> None:
    model, choice, settings = _question("qwen3-32b", "h100", 32_768, {})
    assert _answer(model, choice, settings, written=False).deployment.chosen_length == 32_768
    assert not any("--max-model-len" in way.options for way in _fixes(model, choice, settings))


def test_no_share_above_nineteen_twentieths_and_none_below_what_was_given() -> None:
    for given, most in ((None, 0.95), ("0.93", 0.95), ("0.95", None), ("0.97", None)):
        model, choice, settings = _question("qwen3-8b", "rtx-4090", 36_000, {"max_model_len": 36_000})
        if given is not None:
            settings = replace(settings, gpu_memory_utilization=make_settings(
                gpu_memory_utilization=given).gpu_memory_utilization)  # fmt: skip
        ways = [way.options for way in _fixes(model, choice, settings)]
        shares = [way.split()[-1] for way in ways if "--gpu-memory-utilization" in way]
        assert all(most is not None and float(given or 0.92) < float(one) <= most for one in shares)


def test_the_share_that_is_offered_is_the_least_in_whole_hundredths() -> None:
    """From 0.91 on, whatever less was given; between what starts with 0.9 and what with 0.95 every step."""
    offered = set()
    for tokens in range(24_000, 34_000, 1_000):
        model, choice, settings = _question("qwen3-8b", "rtx-4090", tokens, {"max_model_len": tokens})
        settings = with_setting(settings, "gpu_memory_utilization", Fraction("0.85"))
        shares = [Fraction(step, 100) for step in range(86, 96)]
        least = next(
            (
                share
                for share in shares
                if _holds(model, choice, with_setting(settings, "gpu_memory_utilization", share))
            ),
            None,
        )
        ways = [way.options for way in _fixes(model, choice, settings)]
        found = [way.split()[-1] for way in ways if way.startswith("--gpu-memory-utilization")]
        assert found == ([] if least is None else [f"{float(max(least, Fraction('0.91'))):g}"]), tokens
        offered.update(found)
    assert {"0.91", "0.92"} <= offered


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ({}, "--max-num-seqs 512"),
        ({"max_num_seqs": 64}, "--max-num-seqs 32"),
        ({"max_num_seqs": 16}, "--max-num-batched-tokens 4096"),
        ({"requests": 100}, "--max-num-seqs 512"),
        ({"requests": 24, "max_num_seqs": 32}, "--max-num-seqs 24"),
        ({"max_num_seqs": 4, "max_num_batched_tokens": 4096}, "--max-num-batched-tokens 2048"),
    ],
)
def test_changes_begin_with_the_least(asked: dict[str, int], first: str) -> None:
    settings = make_settings(gpu="h100", tokens=1000, **asked)
    steps = list(smaller_runs(settings))
    assert steps[0][0] == first
    for _, changed in steps:
        seqs = changed.max_num_seqs
        assert seqs is None or seqs >= settings.requests
        tokens = changed.max_num_batched_tokens
        assert tokens is None or seqs is None or tokens >= seqs


def test_a_cache_of_a_given_size_is_not_larger_with_a_smaller_run() -> None:
    assert not list(smaller_runs(make_settings(kv_cache_memory="8GiB")))
    assert not list(smaller_runs(make_settings(gpu="h100", kv_cache_memory="8GiB")))
