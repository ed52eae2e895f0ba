"""Counting where it is asked for: ``cards new --count``, ``--weights-from transformers``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan import KvplanError, load_model, plan, size
from kvplan.cli import main
from kvplan.files.cards.find import lint_cards
from kvplan.files.cards.new import card_from_config
from kvplan.files.cards.tensors import checkpoint_of, tensor_lines
from kvplan.weights.stored import Stored

CONFIG: dict[str, Any] = {
    "model_type": "gemma2", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "vocab_size": 3000, "dtype": "bfloat16",
}  # fmt: skip
FITS: dict[str, Any] = {"gpu": "h100", "tokens": 256, "max_model_len": 256, "engine": "sglang"}


def _extras() -> None:
    pytest.importorskip("torch", reason="the extra gpu is not installed")
    pytest.importorskip("transformers", reason="the extra hf is not installed")


def test_lines_of_a_card_are_the_tensors_again() -> None:
    tensors = [Stored("model.embed_tokens.weight", "BF16", (100, 64)), Stored("scale", "F32", ())]
    tensors += [Stored(f"model.layers.{n}.mlp.up_proj.weight", "BF16", (64, 64)) for n in (0, 1, 2, 5)]
    tensors += [Stored("model.layers.3.mlp.up_proj.weight", "BF16", (32, 64))]
    lines = tensor_lines(tensors)
    assert lines["model.layers.[0-2,5].mlp.up_proj.weight"] == "BF16 64 64"
    assert len(lines) == 4
    assert set(checkpoint_of(lines, "here").tensors) == set(tensors)


@pytest.mark.parametrize(
    "lines",
    [
        {"a": "64 64"},
        {"a": "BF17 64"},
        {"a": "BF16 -1"},
        {"a.[3-1].b": "BF16 1"},
        {"a.[0-99999].b": "BF16 1"},
        {"a": "BF16 " + "9" * 13},
    ],
)
def test_lines_that_say_nothing_are_refused(lines: dict[str, str]) -> None:
    with pytest.raises(KvplanError) as caught:
        checkpoint_of(lines, "here")
    assert caught.value.code == "invalid-card"


def test_a_counted_card_answers_without_the_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _extras()
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    plain = size(str(config), **FITS)
    card = tmp_path / "counted.yaml"
    card.write_text(card_from_config(str(config), count=True))
    from kvplan.files import meta_model

    monkeypatch.setattr(meta_model, "tensors_on_meta", None)
    assert not [one for one in lint_cards([card]) if one.code not in ("duplicate-model-name",)]
    counted = load_model(str(card)).counted
    assert counted is not None
    assert counted.tensors
    answer = size(str(card), **FITS)
    assert answer.weights is not None
    assert plain.weights is not None
    assert answer.weights.total_bytes == plain.weights.total_bytes
    assert answer.weights.bytes_per_gpu == plain.weights.bytes_per_gpu
    assert answer.weights.source == "parameter count"


def test_weights_from_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _extras()
    found = load_model(CONFIG, weights_from="transformers")
    assert found.counted is not None
    assert "built by transformers" in found.counted.where
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    words = ["size", str(config), "--gpu", "h100", "-t", "256", "--max-model-len", "256", "--json"]
    assert main([*words, "--weights-from", "transformers"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    assert answer["weights"] == json.loads(capsys.readouterr().out)["weights"]
    chosen = plan(str(config), gpu="h100", requests=1, tokens=128, weights_from="transformers")
    assert chosen.ok
    words = ["plan", str(config), "-n", "1", "-t", "128", "--gpu", "h100", "--weights-from", "transformers"]
    assert main([*words, "--write", str(tmp_path / "p.yaml")]) == 2
    assert "--count" in capsys.readouterr().err


def test_other_ways_and_other_models_are_refused() -> None:
    with pytest.raises(KvplanError) as caught:
        load_model("llama-3.1-8b", weights_from="guess")
    assert "transformers" in " ".join(caught.value.help)
    quantised = {**CONFIG, "quantization_config": {"quant_method": "fp8"}}
    with pytest.raises(KvplanError) as caught:
        load_model(quantised, weights_from="transformers")
    assert caught.value.code == "no-weights"
