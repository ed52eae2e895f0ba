"""A class that nobody described is named on every answer, or refused by the engines that go by classes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.architectures.config.claims import CLASSES, unclaimed
from kvplan.architectures.config.text_part import find_text_part
from kvplan.architectures.lineages import lineage_of
from kvplan.errors import KvplanError
from tests.architectures.configs import PLAIN, read
from tests.engines.vllm_class_cases import MADE
from tests.engines.vllm_own_cases import OWN
from tests.laws.sampling import for_each
from tests.packaged import packaged_cards

BY_CLASS = ("vllm", "sglang", "trtllm", "llamacpp")
BY_TYPE = ("generic", "transformers", "tgi")
UNKNOWN = "ZephyrForFooBar"
LLAMA = {**PLAIN, "vocab_size": 1000, "intermediate_size": 128, "max_position_embeddings": 4096}


def _published() -> dict[str, dict[str, Any]]:
    path = Path(__file__).parents[1] / "data" / "configs.json.gz"
    stored: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return {name: entry["config"] for name, entry in stored.items()}


PUBLISHED = _published()
CASES = {**PUBLISHED, **OWN, **{name: dict(made.config) for name, made in MADE.items()}}


@for_each("name", sorted(CASES))
def test_the_class_of_every_config_at_hand_is_described_by_its_type(name: str) -> None:
    config = CASES[name]
    if "model_type" not in config and "architectures" not in config:
        pytest.skip("not a Hugging Face config")
    try:
        part = find_text_part(config)
    except KvplanError as error:
        pytest.skip(str(error))
    assert unclaimed(part) is None


def test_and_that_of_every_card() -> None:
    for card in packaged_cards():
        if card.model.config:
            assert unclaimed(find_text_part(card.model.config)) is None, card.slug


@pytest.mark.parametrize("name", sorted(CASES)[::3])
def test_an_unknown_class_never_has_a_silent_answer(name: str) -> None:
    """The law: over all configs, and every engine."""
    config = {**CASES[name], "architectures": [UNKNOWN]}
    for engine in (*BY_CLASS, *BY_TYPE):
        try:
            answer = kvplan.size(config, engine=engine, tokens=64)
        except KvplanError:
            continue
        said = " ".join(answer.warnings)
        if answer.refusal is not None:
            continue
        assert UNKNOWN in said or "unknown model type" in said, engine
        assert engine in BY_TYPE or "auto_map" in config, engine


@pytest.mark.parametrize("engine", BY_CLASS)
def test_engines_that_go_by_classes_refuse_it(engine: str) -> None:
    answer = kvplan.size({**LLAMA, "model_type": "llama", "architectures": [UNKNOWN]}, engine=engine)
    assert answer.refusal is not None
    assert UNKNOWN in answer.refusal.message


@pytest.mark.parametrize("engine", BY_TYPE)
def test_engines_that_go_by_types_answer_in_one_line_more(engine: str) -> None:
    config = {**LLAMA, "model_type": "llama"}
    plain = kvplan.size({**config, "architectures": ["LlamaForCausalLM"]}, engine=engine)
    other = kvplan.size({**config, "architectures": [UNKNOWN]}, engine=engine)
    assert other.per_gpu == plain.per_gpu
    said = set(other.warnings) - set(plain.warnings)
    assert said == {f"architectures names {UNKNOWN}, of which no rule is known: sized as model_type llama"}


def test_a_class_of_another_type_with_the_same_layers_is_sized_and_named() -> None:
    config = {**LLAMA, "model_type": "llama", "architectures": ["MistralForCausalLM"]}
    answer = kvplan.size(config, engine="vllm")
    assert answer.refusal is None
    said = "architectures names MistralForCausalLM, a class of mistral: sized as model_type llama"
    assert said in answer.warnings


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
@pytest.mark.parametrize("name", ["DeepseekV3ForCausalLM", "MambaForCausalLM"])
def test_a_class_of_another_type_with_other_layers_has_no_answer(engine: str, name: str) -> None:
    config = {**LLAMA, "model_type": "llama", "architectures": [name]}
    with pytest.raises(KvplanError) as caught:
        kvplan.size(config, engine=engine)
    assert caught.value.code == "unknown-rule"
    assert name in caught.value.message
    assert name in " ".join(kvplan.size(config, engine="generic").warnings)


@pytest.mark.parametrize(
    "name", ["LlamaForSequenceClassification", "LlamaModel", "LlamaForTokenClassification"]
)
def test_another_head_over_the_same_layers_is_the_types_own(name: str) -> None:
    assert not read({**LLAMA, "model_type": "llama", "architectures": [name]}).warnings


def test_a_class_with_its_module_counts() -> None:
    named = ["modeling_llama.LlamaForCausalLM"]
    assert not read({**LLAMA, "model_type": "llama", "architectures": named}).warnings


def test_types_of_listed_classes_are_known() -> None:
    from kvplan.architectures.config.class_names import class_facts

    for model_type in CLASSES:
        known = lineage_of(model_type)
        assert known.reads is not None or known.layers is not None or class_facts(model_type), model_type


def test_vllm_does_not_say_no_to_code_of_the_repository_that_it_may_run() -> None:
    config = {**LLAMA, "model_type": "llama", "architectures": [UNKNOWN]}
    remote = {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": f"modeling_x.{UNKNOWN}"}
    with pytest.raises(KvplanError) as caught:
        kvplan.size({**config, "auto_map": remote}, engine="vllm")
    assert caught.value.code == "unknown-rule"
    only_config = {"auto_map": {"AutoConfig": "configuration_x.XConfig"}}
    assert kvplan.size({**config, **only_config}, engine="vllm").refusal is not None
