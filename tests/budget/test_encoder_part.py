"""What a published config leaves out of its encoder is what its class has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.engines.vllm.encoder_profile.encoder_widths import (
    _PATCHES,
    Patch,
    part_of,
    stated_part,
    widths_of,
)
from kvplan.engines.vllm.encoder_profile.estimate import EncoderRun
from kvplan.engines.vllm.encoder_profile.multimodal import encoder_run
from kvplan.engines.vllm.encoder_profile.patch_bytes import Widths
from kvplan.files.cards.find import load_card
from kvplan.model import Model
from kvplan.settings import Serving
from scripts.make_cards import card_config, profiled_encoder

CARDS = Path(__file__).parents[2] / "model_cards"


def _run(model: Model) -> EncoderRun:
    run = encoder_run(model, Serving(), "0.33", seqs=256, tokens=8192, length=8192, element=2)
    assert run is not None
    return run


@pytest.mark.parametrize(
    ("slug", "source"),
    [
        ("smolvlm2-2.2b-instruct", "5 image items of 1,377 tokens"),
        ("glm-ocr", "1 image item of 8,100 tokens"),
        ("voxtral-mini-3b", "1 audio item of 8,192 tokens"),
        ("paddleocr-vl", "2 image items of 3,600 tokens"),
        ("qwen3-omni-30b-a3b", "1 video item of 12,544 tokens"),
        ("dots-ocr", "1 image item of 14,400 tokens"),
        ("kimi-vl-a3b", "5 image items of 1,369 tokens"),
        ("ernie-4.5-vl-28b-a3b-thinking", "1 video item of 6,084 tokens"),
    ],
)
def test_a_card_whose_config_leaves_widths_out_is_known(slug: str, source: str) -> None:
    run = _run(load_card(slug))
    assert run.known
    assert run.source == source
    assert run.peak_bytes


_SMOL = {"hidden_size": 1152, "intermediate_size": 3072, "num_attention_heads": 16, "num_hidden_layers": 12}
_OMNI = {"hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "temporal_patch_size": 2}


@given(st.sets(st.sampled_from(sorted(_SMOL))))
def test_a_default_may_be_stated_or_left_out(stated: set[str]) -> None:
    """The same part, whichever of its defaults the config repeats."""
    part = {"model_type": "smolvlm_vision", "image_size": 384, **{key: _SMOL[key] for key in stated}}
    config = {"model_type": "smolvlm", "vision_config": part}
    found = part_of("SmolVLMForConditionalGeneration", config)
    assert found is not None
    assert {**found} == {"model_type": "smolvlm_vision", "image_size": 384, **_SMOL}


@given(st.sampled_from(sorted(_OMNI)), st.integers(1, 4096))
def test_what_is_stated_wins(key: str, value: int) -> None:
    config = {"model_type": "qwen3_omni_moe", "thinker_config": {"vision_config": {key: value}}}
    found = part_of("Qwen3OmniMoeForConditionalGeneration", config)
    assert found is not None
    assert {name: found[name] for name in _OMNI} == {**_OMNI, key: value}


@pytest.mark.parametrize("kind", ["smolvlm", "qwen3_omni_moe", "voxtral"])
def test_a_whole_part_may_be_left_out(kind: str) -> None:
    name = {"smolvlm": "SmolVLM", "qwen3_omni_moe": "Qwen3OmniMoe", "voxtral": "Voxtral"}[kind]
    tower = "audio" if kind == "voxtral" else ""
    name += "ForConditionalGeneration"
    assert stated_part(name, {"model_type": kind}, tower) is None
    assert part_of(name, {"model_type": kind}, tower)
    assert part_of(name, {"model_type": "qwen3"}, tower) is None


@pytest.mark.parametrize("stated", [{"d_model": 512}, {"hidden_size": 512}])
def test_other_names_of_a_width_are_that_width(stated: dict[str, Any]) -> None:
    """VoxtralEncoderConfig.attribute_map."""
    model = load_card("voxtral-mini-3b")
    config = {**(model.config or {}), "audio_config": {"model_type": "voxtral_encoder", **stated}}
    named = replace(model, config=config)
    assert widths_of(named, config, "audio") == Widths(512, 5120, 3072, 256)


def test_a_ratio_says_the_mlp() -> None:
    part = {"model_type": "smolvlm_vision", "mlp_ratio": 4.0}
    found = part_of("SmolVLMForConditionalGeneration", {"model_type": "smolvlm", "vision_config": part})
    assert found is not None
    assert "intermediate_size" not in found


@pytest.mark.parametrize("kind", sorted(_PATCHES))
def test_patches_are_those_of_the_class(kind: str) -> None:
    config = pytest.importorskip("transformers").AutoConfig.for_model(kind)
    assert Patch(config.patch_size, config.temporal_patch_size) == _PATCHES[kind]


def test_a_card_that_is_made_anew_keeps_what_its_encoder_is_computed_from() -> None:
    """The keys that `scripts/make_cards.py` keeps are those that the rules read, the encoder's among them."""
    lost, known = [], 0
    for path in sorted(CARDS.glob("*.yaml")):
        model = load_card(path.stem)
        if not model.config:
            continue
        run = profiled_encoder(model)
        known += run is not None
        kept = card_config(model, is_whole=True)
        if profiled_encoder(replace(model, config=kept)) != run:
            lost.append(path.stem)
    assert known > 100
    assert lost == []
