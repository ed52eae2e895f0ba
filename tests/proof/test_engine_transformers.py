"""``validate --with transformers``: the library's own class and the cache that it keeps, to the byte."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import main
from kvplan.files.plans.receipts import read_receipt
from kvplan.proof.validate.installed.question import given_of, write_model
from tests.live.tiny import MODELS

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
WORDS = ("--with", "transformers", "--device", "cpu", "--kv-cache-memory", "64MiB")


def run(folder: Path, config: dict[str, Any], *more: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    output = folder / "r.json"
    code = main(["validate", str(folder), *WORDS, "--output", str(output), *more])
    receipt = read_receipt(output).receipt
    return code, {one.name: one for one in receipt.figures}, receipt.model_dump()


@pytest.mark.parametrize("name", ["dense", "mla"])
def test_the_library_s_own_cache_confirms(name: str, tmp_path: Path) -> None:
    code, figures, receipt = run(tmp_path, MODELS[name], "--tokens", "700")
    assert code == 0, receipt
    assert set(receipt["confirmed_by"]) == {"engine_weights_bytes", "engine_kv_bytes"}
    assert figures["engine_weights_bytes"].predicted == figures["engine_weights_bytes"].measured
    # A window's slice keeps what was computed with it alive until it grows once more.
    assert figures["engine_kv_storage_bytes"].measured >= figures["engine_kv_bytes"].measured
    assert receipt["engine_run"]["name"] == "transformers"


def test_some_layers_are_measured_alone(tmp_path: Path) -> None:
    code, figures, receipt = run(tmp_path, MODELS["sliding"], "--tokens", "700", "--layers", "4")
    assert code == 0, receipt
    one = 2 * 64 * 2 * 2  # K and V of two heads of 64, bfloat16
    assert figures["engine_kv_bytes"].measured == 2 * one * (3 * 511 + 700)
    assert receipt["engine_run"]["layers"] == 4


def test_a_cache_of_another_size_refutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """kvplan is told of one more head than the library builds."""

    def other(model: Any, folder: Path) -> None:
        write_model(model, folder)
        config = copy.deepcopy(MODELS["dense"])
        config["num_key_value_heads"] = 4
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    monkeypatch.setattr("kvplan.proof.validate.installed.run.write_model", other)
    code, figures, _ = run(tmp_path, MODELS["dense"], "--tokens", "100")
    assert code == 1
    assert figures["engine_kv_bytes"].measured == 2 * figures["engine_kv_bytes"].predicted
    assert "kv !" in capsys.readouterr().out


PAGED = ("--continuous-batching", "--block-size", "64", "--tokens", "700", "--max-num-batched-tokens", "2048")
"""A batch of 2,048 tokens: the masks of the library's 8,192 take 9 GB, which a small machine has not."""


def test_continuous_batching_is_measured_by_its_own_cache_and_scheduler(tmp_path: Path) -> None:
    """Windows and full layers: most of the 88 that fit at full length start before the first one ends."""
    config = {**MODELS["dense"], "num_hidden_layers": 4, "sliding_window": 256, "use_sliding_window": True}
    config["layer_types"] = ["sliding_attention"] * 3 + ["full_attention"]
    config["model_type"], config["vocab_size"] = "qwen3", 1000
    config["architectures"] = ["Qwen3ForCausalLM"]
    code, figures, receipt = run(tmp_path, config, *PAGED)
    assert code == 0, receipt
    assert receipt["verdict"] == "confirmed"
    for name in (
        "weights_bytes",
        "cache_bytes",
        "num_blocks",
        "groups",
        "requests_at_full_length",
        "requests",
    ):
        one = figures[f"engine_{name}"]
        assert one.predicted == one.measured, name
    assert figures["engine_requests"].measured < figures["engine_requests_at_full_length"].measured


def test_a_pool_of_another_page_refutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(target: Any, *, on_gpu: bool) -> dict[str, Any]:
        found = given_of(target, on_gpu=on_gpu)
        found["settings"]["num_sectors"] -= 1
        return found

    monkeypatch.setattr("kvplan.proof.validate.installed.run.given_of", other)
    code, figures, _ = run(tmp_path, MODELS["dense"], *PAGED)
    assert code == 1
    assert figures["engine_num_blocks"].measured == figures["engine_num_blocks"].predicted - 1
