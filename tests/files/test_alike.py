"""Cards that are meant by names of checkpoints in other weight formats, of folders and of fine-tunes."""

from __future__ import annotations

import pytest

from kvplan.files.cards.alike import cards_alike, cards_of_class
from kvplan.files.cards.find import load_card
from kvplan.files.cards.index import packaged_index, summaries

FORMATS = (
    "-AWQ-INT4",
    "-GPTQ-Int4",
    "-NVFP4",
    "-FP8-dynamic",
    "-w4a16",
    "-qat-q4_0-unquantized",
    "-bnb-4bit",
    "-GGUF",
)


@pytest.mark.parametrize(
    ("name", "architecture", "slug"),
    [
        ("someone/gemma-4-26B-A4B-it-qat-AWQ-INT4", "Gemma4ForConditionalGeneration", "gemma-4-26b-a4b"),
        ("/data/gemma-4-26b-it-qat-q4_0-unquantized", "Gemma4ForConditionalGeneration", "gemma-4-26b-a4b"),
        ("/home/models/openai--gpt-oss-120b", None, "gpt-oss-120b"),
        ("C:\\models\\Qwen3-8B-Q4_K_M.gguf", None, "qwen3-8b"),
        ("someone/llama-3.1-8b-law-sft-v3", "LlamaForCausalLM", "llama-3.1-8b"),
        ("/ckpt/DeepSeek-R1-0528-AWQ", "DeepseekV3ForCausalLM", "deepseek-r1"),
    ],
)
def test_names_of_checkpoints(name: str, architecture: str | None, slug: str) -> None:
    own = load_card(slug).runs
    found = cards_alike(name, architecture)
    assert found
    assert {model.runs for model in found} == {own}


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("someone/Qwen3.9-27B-INT4", "Qwen3_5ForConditionalGeneration"),  # another generation
        ("someone/NVIDIA-Nemotron-3-Nano-6B-BF16", "NemotronHForCausalLM"),  # another size
        ("someone/llama-3.1-8b-law-sft-v3", None),  # a fine-tune needs the class
        ("someone/llama-3.1-8b-law-sft-v3", "Qwen2ForCausalLM"),  # … the card's own
        ("/models/qwen", "Qwen2ForCausalLM"),
        ("", None),
        ("---", None),
        ("-AWQ", None),
    ],
)
def test_names_of_nothing_known(name: str, architecture: str | None) -> None:
    assert cards_alike(name, architecture) == ()


def test_a_weight_format_changes_no_model() -> None:
    """Of every card: its id with the words of any weight format finds the same layers."""
    for place, card in enumerate(summaries()):
        name = card.id + FORMATS[place % len(FORMATS)]
        found = cards_alike(name)
        assert load_card(card.id).runs in {model.runs for model in found}, name


def test_the_cards_of_a_class() -> None:
    found = cards_of_class("DeepseekV4ForCausalLM")
    assert {"deepseek-ai/DeepSeek-V4-Pro", "deepseek-ai/DeepSeek-V4-Flash"} <= {model.id for model in found}
    assert cards_of_class("NobodyForCausalLM") == ()
    assert len(packaged_index()["names"]) > len(found)
