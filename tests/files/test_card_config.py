"""The config that a card carries: the keys that were read, and the same weights from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.architectures.config.read import read_config
from kvplan.architectures.config.view import split_quant
from kvplan.architectures.inventory import inventory_of
from kvplan.errors import KvplanError
from kvplan.files.cards.card import Card, CardConfig, changed_keys, config_lines
from kvplan.files.cards.lint import lint
from kvplan.files.datafiles import data_dir
from kvplan.proof.validate.installed.asked_keys import completed
from scripts.config_subset import Watched, size_relevant
from tests.packaged import packaged_cards
from tests.recorded import config_names, config_of

CARDS = packaged_cards()


def test_only_what_was_read_is_kept() -> None:
    raw = {"a": 1, "b": {"c": 2, "d": 3}, "e": {"f": 4, "g": 5}, "h": [1, {"i": 6}], "j": {"k": {"l": 7}}}

    def reader(config: Any) -> None:
        assert config["a"] == 1
        assert config["b"]["c"] == 2
        assert "e" in config
        assert config.get("h") == [1, {"i": 6}]
        assert config.get("z") is None
        assert config["j"]
        raise KvplanError("no-weights", "what was read until now counts")

    assert size_relevant(raw, (reader,)) == {
        "a": 1,
        "b": {"c": 2},
        "e": {"f": 4},
        "h": [1, {"i": 6}],
        "j": {"k": {}},
    }


def test_a_copied_object_keeps_all_but_noise() -> None:
    seen: dict[str, Any] = {}
    assert dict(Watched({"x": 1, "transformers_version": "5"}, seen)) == {"x": 1}
    assert seen == {"x": {}}


def test_lines_are_json_and_short() -> None:
    config = {"list": [f"model.layers.{number}.mlp.gate" for number in range(50)], "n": None, "t": "a, b"}
    lines = config_lines(config)
    assert json.loads("\n".join(lines)) == config
    assert max(map(len, lines)) < 110


def test_a_variant_has_only_what_differs() -> None:
    base = {"a": 1, "b": 2, "c": 3}
    other = {"a": 1, "b": 5, "d": 4}
    different, without = changed_keys(base, other)
    assert (different, without) == ({"b": 5, "d": 4}, ("c",))
    again = CardConfig(json.dumps(different), "card", CardConfig(json.dumps(base), "card"), without)
    assert dict(again) == other
    assert len(again) == 3


def test_broken_json_names_the_card() -> None:
    with pytest.raises(KvplanError, match=r"x\.yaml: config"):
        CardConfig('{"a": }', "x.yaml")["a"]


def test_modelopts_file_is_kept_apart() -> None:
    config = {"model_type": "llama", "hf_quant_config": {"producer": {"name": "modelopt"}}}
    assert split_quant(config) == ({"model_type": "llama"}, {"producer": {"name": "modelopt"}})
    assert split_quant({"model_type": "llama"}) == ({"model_type": "llama"}, None)


def test_most_cards_know_their_tensors() -> None:
    known = 0
    for card in CARDS:
        if card.model.config:
            try:
                raw, quant = split_quant(card.model.config)
                known += bool(inventory_of(raw, hf_quant_config=quant).parameters)
            except KvplanError:
                continue
    assert known >= 210


ADDED: dict[str, dict[str, object]] = {
    "deepseek-v4-pro-fp8": {"expert_dtype": "fp8"},
    "ministral-3-3b": {"model_type": "mistral3"},
    "zamba2-2.7b": {"n_mamba_heads": 80, "num_mem_blocks": 2},
}
"""Keys that the copy at hand leaves out, or has otherwise, and the card states, with a note in its source."""


def test_cards_have_the_tensors_of_their_published_configs() -> None:
    checked = 0
    for card in CARDS:
        name = card.model.id.replace("/", "__")
        if not card.model.config or name not in config_names():
            continue
        raw, quant = config_of(name)
        if card.model.quantization and not (quant or "quantization_config" in raw):
            continue  # the copy at hand leaves out what the card has from the published file
        raw |= ADDED.get(card.slug, {})
        try:
            published = inventory_of(raw, hf_quant_config=quant)
        except KvplanError:
            continue
        own, own_quant = split_quant(card.model.config)
        kept = inventory_of(own, hf_quant_config=own_quant)
        assert (kept.parameters, kept.quantisation) == (published.parameters, published.quantisation)
        checked += 1
    assert checked >= 150


def test_the_linter_counts_parameters(tmp_path: Path) -> None:
    text = (data_dir("model_cards") / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
    path = tmp_path / "llama-3.1-8b.yaml"
    path.write_text(text.replace("parameters: 8030261248", "parameters: 8130261248", 1), encoding="utf-8")
    found = [finding for finding in lint([path]) if finding.code == "wrong-parameters"]
    assert len(found) == 1
    assert "8,030,261,248" in found[0].message


WITH_A_CONFIG = [card for card in CARDS if card.model.config and card.model.config.get("model_type")]
"""Of the others `validate --with` has nothing to give to an engine, and says so."""


@pytest.mark.parametrize("card", WITH_A_CONFIG, ids=lambda card: card.slug)
def test_the_config_gives_the_card_s_layers(card: Card) -> None:
    """`validate --with` starts the engine with this config: one that says less is another model."""
    given, quant = split_quant(dict(card.model.config or {}))
    read = read_config(completed(given), id=card.model.id, source="its config", hf_quant_config=quant)
    assert read.runs == card.model.runs
    assert read.draft_layers == card.model.draft_layers
    for size in ("hidden_size", "num_attention_heads", "vocab_size"):
        assert getattr(read, size) == getattr(card.model, size), size
