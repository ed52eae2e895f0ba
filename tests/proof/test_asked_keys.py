"""A card's config as an engine loads it: completed, and of the same sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import kvplan
from kvplan.architectures.config.read import read_config
from kvplan.architectures.config.view import split_quant
from kvplan.files.cards.find import list_cards
from kvplan.model import Model
from kvplan.proof.validate.installed.asked_keys import completed, parts
from kvplan.proof.validate.installed.question import config_of, is_of_card, write_model
from tests.laws.sampling import WHOLE

ROPES = ("rope_parameters", "rope_scaling")
THETA = "rope_theta"


def models() -> list[Model]:
    """The cards whose config is completed."""
    found = []
    for name in (card.slug for card in list_cards()):
        model = kvplan.load_model(name)
        if model.config and model.config.get("model_type") and completed(model.config) != dict(model.config):
            found.append(model)
    return found


@pytest.fixture(scope="module")
def incomplete() -> list[Model]:
    return models()


@pytest.mark.laws
def test_no_size_depends_on_what_is_added(incomplete: list[Model]) -> None:
    """Layers and budget of the completed config are the card's, for every card that is completed."""
    read = 0
    for model in incomplete[:: 1 if WHOLE else 3]:
        config, quant = split_quant(config_of(model))
        try:
            plain = read_config(config, id=model.id, source=model.source, hf_quant_config=quant)
        except kvplan.KvplanError:
            continue  # layers that the card states itself
        full = read_config(completed(config), id=model.id, source=model.source, hf_quant_config=quant)
        for field in ("runs", "max_model_len", "encoder", "draft_layers", "quantization", "facts"):
            assert getattr(full, field) == getattr(plain, field), (model.id, field)
        assert _budget(full) == _budget(plain), model.id
        read += 1
    assert read >= (60 if WHOLE else 20)


def _budget(model: Model) -> object:
    try:
        return kvplan.size(model, engine="vllm@0.33", gpu="h200", max_model_len=4096).budget
    except kvplan.KvplanError as error:
        return error.message


def test_every_rotary_object_has_its_base(incomplete: list[Model]) -> None:
    for model in incomplete:
        for part in parts(completed(config_of(model))):
            for rope in filter(None, map(part.get, ROPES)):
                inner = [one for one in rope.values() if isinstance(one, dict)] or [rope]
                assert all(THETA in one for one in inner), model.id


def test_what_the_config_says_stays() -> None:
    config = {"model_type": "deepseek_v2", "n_group": 8, "rope_scaling": {"type": "yarn", THETA: 5}}
    full = completed(config)
    assert (full["n_group"], full["topk_group"]) == (8, 1)
    assert full["rope_scaling"] == {"type": "yarn", THETA: 5}
    assert "topk_group" not in config


def test_only_a_card_is_completed(tmp_path: Path) -> None:
    card = kvplan.load_model("deepseek-v2-lite")
    own = replace(card, source="/models/deepseek/config.json")
    assert (is_of_card(card), is_of_card(own)) == (True, False)
    written = []
    for name, model in (("card", card), ("own", own)):
        folder = tmp_path / name
        folder.mkdir()
        write_model(model, folder)
        written.append(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    assert written[0]["topk_group"] == 1
    assert "topk_group" not in written[1]
    assert written[1] == dict(config_of(card))


ONE_OF_A_KIND = (
    *("bge-m3", "chatglm3-6b", "deepseek-v2-lite", "gemma-4-12b", "gemma-4-26b-a4b", "kimi-linear-48b-a3b"),
    *("kimi-vl-a3b", "laguna-xs.2-fp8", "lfm2-1.2b", "lfm2-vl-450m", "mellum2-12b-a2.5b", "mimo-v2-flash"),
    *("minimax-m2", "qwen1.5-moe-a2.7b", "qwen3-vl-30b-a3b", "trinity-mini"),
)


@pytest.mark.vllm
def test_vllm_runs_what_a_card_says() -> None:
    """None of these ran by the card's own keys: "object has no attribute 'conv_dim'" and the like."""
    pytest.importorskip("vllm")
    words = (sys.executable, "-m", "tests.proof.runs_on_meta", json.dumps(ONE_OF_A_KIND))
    said = subprocess.run(words, capture_output=True, check=True, text=True).stdout.splitlines()[-1]
    assert json.loads(said) == {}
