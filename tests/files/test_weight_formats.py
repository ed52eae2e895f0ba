"""The weight formats of a model are checkpoints of this model, never of another of the same sizes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.files.cards.checkpoints import OTHERS, is_of, is_quantised_name, known_ids, rank_of
from kvplan.files.cards.find import list_cards, load_card
from kvplan.files.cards.index import FOLDER, is_name, key_of
from kvplan.files.datafiles import data_dir
from kvplan.files.weight_formats import FILE, form_of, formats_text, listed_formats, weight_formats

NAMES = [name for card in list_cards() for name in (card.id, *card.variants)]
PAIRS = Path(__file__).parents[1] / "data" / "recipe_pairs.txt"


def others_of(name: str) -> list[str]:
    return [one.model.id for one in weight_formats(kvplan.load_model(name))[1:]]


def test_what_is_written_down_is_what_the_checkpoints_say() -> None:
    """Renew it with ``python -m scripts.make_cards --index``."""
    text = (data_dir(FOLDER) / FILE).read_text(encoding="utf-8")
    kept = json.loads(text)
    assert sorted(NAMES) == list(kept)
    if os.environ.get("KVPLAN_LAWS") == "all":
        assert formats_text(NAMES) == text
    for name in NAMES[::23]:
        assert [list(one) for one in listed_formats(name)] == kept[name], name


def test_no_format_is_another_models() -> None:
    """Of every card and variant: what a plan may put in the place of the model that was asked for."""
    found = {name: others_of(name) for name in NAMES[::5]}
    assert not [(name, other) for name, others in found.items() for other in others if not is_of(name, other)]
    assert sum(len(others) > 0 for others in found.values()) > 30


def test_what_recipes_recommend_is_offered() -> None:
    """Of each model and precision of vLLM's recipes a checkpoint in that format, but for those named here."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for line in PAIRS.read_text(encoding="utf-8").splitlines()[1:]:
        model, precision, build = line.split("\t")
        pairs.setdefault((model, precision), []).append(build)
    known = {model for model, _ in pairs if is_known(model)}
    asked = {pair: builds for pair, builds in pairs.items() if pair[0] in known}
    missing = {pair for pair, builds in asked.items() if not is_offered(*pair, builds)}
    assert len(asked) > 130
    assert missing == {
        ("baidu/ERNIE-4.5-VL-28B-A3B-PT", "fp8"),  # a larger model's
        ("google/gemma-4-E2B-it", "int2/4/8"),  # its config is not public to us
        ("google/gemma-4-E4B-it", "int2/4/8"),
        ("thinkingmachines/Inkling-NVFP4", "mxfp4"),  # whoever names a format means it
        ("thinkingmachines/Inkling-Small-NVFP4", "mxfp4"),
    }


def is_known(name: str) -> bool:
    try:
        load_card(name)
    except KvplanError:
        return False
    return True


def is_offered(model: str, precision: str, builds: list[str]) -> bool:
    formats = weight_formats(load_card(model))
    if {one.model.id for one in formats} & set(builds):
        return True
    wanted = {form_of(load_card(build)) for build in builds if is_known(build)}
    wanted = {(label, bits) for label, bits in wanted if bits < 16}
    wanted |= {("fp8", 8)} if precision == "fp8" else set()  # where the mixture is mostly in 4 bits
    return bool(wanted & {(one.label, one.bits) for one in formats})


@pytest.mark.parametrize(
    ("model", "build"),
    [
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8"),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", "Qwen/Qwen3-Next-80B-A3B-Thinking-FP8"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8"),
        ("deepseek-ai/DeepSeek-R1", "nvidia/DeepSeek-R1-FP4"),
        ("moonshotai/Kimi-K2.5", "nvidia/Kimi-K2.5-NVFP4"),
    ],
)
def test_a_build_is_found_by_its_name(model: str, build: str) -> None:
    asked = kvplan.load_model(model)
    formats = {one.model.id: one.model for one in weight_formats(asked)}
    assert build in formats
    assert formats[build].max_model_len == asked.max_model_len


def test_the_makers_own_come_first() -> None:
    for name in ("Qwen/Qwen3-32B", "google/gemma-4-31B-it", "meta-llama/Llama-3.3-70B-Instruct"):
        model = kvplan.load_model(name)
        others = [one.model for one in weight_formats(model)[1:]]
        own = [key_of(one.id).partition("/")[0] == key_of(name).partition("/")[0] for one in others]
        assert own == sorted(own, reverse=True)
        ranks = [rank_of(one, model.id) for one in others]
        assert ranks == sorted(ranks)


def test_of_other_makers_only_formats_that_nobody_else_has() -> None:
    model = kvplan.load_model("meta-llama/Llama-3.3-70B-Instruct")
    formats = weight_formats(model)[1:]
    labels = [one.label for one in formats if rank_of(one.model, model.id) == OTHERS]
    assert len(labels) == len(set(labels))
    assert not set(labels) & {one.label for one in formats if rank_of(one.model, model.id) < OTHERS}


def test_whoever_names_a_format_means_it() -> None:
    for name in ("Qwen/Qwen3-32B-FP8", "nvidia/Llama-3.3-70B-Instruct-NVFP4", "zai-org/GLM-4.7-FP8"):
        assert others_of(name) == []


def test_published_ids_are_quantised_and_answered() -> None:
    ids = known_ids()
    assert len(ids) > 1000
    assert len({key_of(one) for one in ids}) == len(ids)
    assert [one for one in ids if not is_quantised_name(one) or is_name(one)] == []
    assert [one for one in ids[::40] if load_card(one).quantization is None] == []


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("Qwen/Qwen3-32B", "nvidia/Qwen3-32B-NVFP4", True),
        ("meta-llama/Llama-3.1-8B", "nvidia/Llama-3.1-8B-Instruct-FP8", False),
        ("meta-llama/Llama-3.1-8B-Instruct", "nvidia/Llama-3.1-8B-FP8", False),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen/Qwen3-235B-A22B-FP8", False),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "nvidia/Llama-3.1-8B-Instruct-FP8", False),
        ("meta-llama/Llama-3.1-8B-Instruct", "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", True),
        ("google/gemma-4-26B-A4B-it", "nvidia/Gemma-4-26B-A4B-NVFP4", True),
        ("google/gemma-4-26B-A4B", "nvidia/Gemma-4-26B-A4B-NVFP4", False),
        ("google/gemma-4-26B-A4B", "google/gemma-4-26B-A4B-it", False),
        ("deepseek-ai/DeepSeek-V3", "nvidia/DeepSeek-V3-0324-NVFP4", False),
        ("Qwen/Qwen3-32B", "huihui-ai/Qwen3-32B-abliterated-FP8", False),
        ("openai/gpt-oss-120b", "amd/gpt-oss-120b-w-mxfp4-a-fp8", True),
        ("deepseek-ai/DeepSeek-R1-0528", "nvidia/DeepSeek-R1-0528-NVFP4-v2", True),
        ("google/gemma-4-12B-it", "google/gemma-4-12B-it-qat-w4a16-ct", True),
    ],
)
def test_words_tell_models_apart(name: str, other: str, same: bool) -> None:
    assert is_of(name, other) is same
