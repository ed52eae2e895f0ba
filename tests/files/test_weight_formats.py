"""The weight formats of a model are checkpoints of this model, never of another of the same sizes."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.architectures.checkpoint_names import is_of, stored_like
from kvplan.files.cards.find import list_cards
from kvplan.files.weight_formats import weight_formats

NAMES = [name for card in list_cards() for name in (card.id, *card.variants)]


def test_no_format_is_another_models() -> None:
    """Of every card and variant: what a plan may put in the place of the model that was asked for."""
    found = {name: [one.model.id for one in weight_formats(kvplan.load_model(name))] for name in NAMES}
    assert not [(name, other) for name, others in found.items() for other in others if not is_of(name, other)]
    assert sum(len(others) > 1 for others in found.values()) > 50


@pytest.mark.parametrize(
    ("model", "build"),
    [
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8"),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", "Qwen/Qwen3-Next-80B-A3B-Thinking-FP8"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8"),
    ],
)
def test_a_maker_names_its_builds_alike(model: str, build: str) -> None:
    asked = kvplan.load_model(model)
    formats = {one.model.id: one.model for one in weight_formats(asked)}
    assert set(formats) == {asked.id, build}
    assert formats[build].max_model_len == asked.max_model_len


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("Qwen/Qwen3-32B", "nvidia/Qwen3-32B-NVFP4", True),
        ("meta-llama/Llama-3.1-8B", "nvidia/Llama-3.1-8B-Instruct-FP8", True),
        ("meta-llama/Llama-3.1-8B-Instruct", "nvidia/Llama-3.1-8B-FP8", False),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen/Qwen3-235B-A22B-FP8", False),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "nvidia/Llama-3.1-8B-Instruct-FP8", False),
        ("meta-llama/Llama-3.1-8B-Instruct", "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", True),
        ("google/gemma-4-26B-A4B-it", "nvidia/Gemma-4-26B-A4B-NVFP4", True),
        ("google/gemma-4-26B-A4B", "google/gemma-4-26B-A4B-it", False),
        ("deepseek-ai/DeepSeek-V3", "nvidia/DeepSeek-V3-0324-NVFP4", False),
    ],
)
def test_words_tell_models_apart(name: str, other: str, same: bool) -> None:
    assert is_of(name, other) is same


def test_only_the_models_maker_is_taken_to_name_a_build() -> None:
    assert stored_like("Goedel-LM/Goedel-Prover-V2-32B", "Qwen/Qwen3-32B-FP8") is None
