"""Suggestions of a refusal: those that are left are a yes when they are followed."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.api.options import changed_settings
from kvplan.api.suggestions import options_of, tried, with_suggestions
from kvplan.deployment.answer import Answer, answer
from kvplan.deployment.question import Question
from kvplan.deployment.resolve import resolve
from kvplan.engines.budget import choose
from kvplan.results import Verdict


def question(card: str, engine: str = "vllm@0.33", **options: Any) -> Question:
    return Question(kvplan.load_model(card), choose(engine), make_settings(**options))


def shown(card: str, **options: Any) -> tuple[str, ...]:
    refusal = with_suggestions(answer(question(card, **options))).result.refusal
    assert refusal is not None
    return refusal.help


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("--tp 2", {"tp": "2"}),
        ("--enforce-eager", {"enforce-eager": None}),
        ("--max-model-len 4096 --enforce-eager: why", {"max-model-len": "4096", "enforce-eager": None}),
        ("use engine vllm@0.33", {"engine": "vllm@0.33"}),
        ("name the smallest of them as often", None),
        ("--engine llamacpp deals layers by what each has", None),
        ("", None),
    ],
)
def test_options_of_a_text(text: str, options: dict[str, str | None] | None) -> None:
    assert options_of(text) == options


def test_an_answer_without_a_refusal_is_left_alone() -> None:
    found = answer(question("qwen3-8b", gpu="h100", tokens=8192))
    assert with_suggestions(found) is found


def test_words_that_are_no_options_are_left_alone() -> None:
    deployment = resolve(question("qwen3-8b", gpu="h100", tokens=8192))
    assert list(tried(deployment, ["ask somebody"])) == ["ask somebody"]


def test_a_server_that_is_started_for_its_requests_is_told_a_shorter_request() -> None:
    """Qwen3-32B on an H100: 27,632 tokens are the most, of the model's own 40,960 or of 32,768 asked."""
    assert shown("qwen3-32b", gpu="h100") == ("--max-model-len 27632",)
    assert shown("qwen3-32b", gpu="h100", tokens=32_768) == ("--tokens 27632",)
    assert shown("qwen3-32b", gpu="h100", tokens=27_000, max_model_len=32_768) == ("--max-model-len 27632",)


def test_a_suggestion_that_does_not_hold_the_load_is_left_out() -> None:
    """Two GPUs start Llama-3.3-70B for one request of 8,192 tokens, and not for a hundred."""
    assert "--tp 2" in shown("llama-3.3-70b", gpu="h100", tokens=8192)
    assert shown("llama-3.3-70b", gpu="h100", tokens=8192, requests=100) == ()


def test_a_suggestion_brings_what_it_needs_besides() -> None:
    """A longer start than the model's own takes another flag too."""
    helps = shown("qwen3-32b", gpu="h200", tokens=65_536)
    assert helps[0] == "--tokens 40960"
    assert helps[1].startswith("--max-model-len 65536 --any-length: ")


def test_wider_servers_are_dealt_over_the_gpus_that_were_named() -> None:
    """Eight GPUs of one rank make four servers of two; a server of one GPU needs a second one."""
    for gpu, replicas in (("8xh100", 4), ("h100", 1)):
        asked = question("llama-3.3-70b", gpu=gpu, tensor_parallel_size=1, tokens=8192)
        found = with_suggestions(answer(asked))
        assert found.result.refusal is not None
        assert found.result.refusal.help == ("--tp 2",)
        options = {"gpu": gpu if gpu != "h100" else "2xh100", "tp": 2}
        mended = answer(Question(asked.model, asked.choice, changed_settings(asked.settings, options)))
        assert mended.deployment.replicas == replicas
        assert mended.holds


REFUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("qwen3-32b", {"gpu": "h100"}),
    ("qwen3-32b", {"gpu": "h100", "tokens": 32_768}),
    ("qwen3-32b", {"gpu": "2xh100", "tensor_parallel_size": 1, "tokens": 32_768, "requests": 2}),
    ("qwen3-32b", {"gpu": "h100", "tensor_parallel_size": 3}),
    ("qwen3-32b", {"gpu": "h200", "tokens": 65_536, "engine": "sglang"}),
    ("llama-3.3-70b", {"gpu": "h100", "tokens": 8192}),
    ("nemotron-h-56b", {"gpu": "2xh200"}),
)


@pytest.mark.parametrize(("card", "options"), REFUSED)
def test_every_suggestion_that_is_shown_is_a_yes(card: str, options: dict[str, Any]) -> None:
    asked = question(card, **options)
    found = with_suggestions(answer(asked))
    assert found.result.refusal is not None
    assert found.result.refusal.help
    for text in found.result.refusal.help:
        assert _followed(asked, text).verdict in (Verdict.YES, Verdict.LIKELY), text


def _followed(asked: Question, text: str) -> Answer:
    """The answer of who types the flags of a suggestion beside what was asked."""
    options: dict[str, Any] = {}
    for word in text.partition(": ")[0].split():
        if word.startswith("--"):
            flag = word.removeprefix("--").replace("-", "_")
            options[flag] = True
        else:
            options[flag] = int(word) if word.isdigit() else word
    return answer(Question(asked.model, asked.choice, changed_settings(asked.settings, options)))
