"""``kvplan quality`` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.report.schemas import answer_errors

pytest.importorskip("torch")
SCHEMA = Path(__file__).parents[2] / "schemas" / "quality.schema.json"


def test_the_screen_and_the_json(run: Run) -> None:
    shown = run("quality", "gemma-3-4b", "--sample", "64", "-v", "--formats", "fp8,kivi2")
    assert shown.code == 0, shown.err
    assert all(len(line) < 80 for line in shown.out.splitlines())
    assert "kivi2_g32" in shown.out
    told = run("quality", "gemma-3-4b", "--sample", "64", "--formats", "fp8", "--json")
    assert not answer_errors(json.loads(SCHEMA.read_text(encoding="utf-8")), json.loads(told.out))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("qwen3-32b", "--formats", "fp9"), "unknown-dtype"),
        (("qwen3-32b", "--formats", ","), "unknown-dtype"),
        (("qwen3-32b", "--formats", "fp8_ds_mla"), "MLA latent"),
        (("qwen3-32b", "--sample", "1"), "bad-setting"),
        (("qwen3-32b", "--sample", "10m"), "bad-setting"),
        (("qwen3-32b", "--tokens", "0"), "bad-setting"),
        (("qwen3-32b", "--device", "tpu"), "bad-setting"),
        (("qwen3-32b", "--device", "cpu:1"), "bad-setting"),
        (("mamba-2.8b",), "no-kv"),
        (("no-such-model",), "unknown-model"),
        (("qwen3-32b", "--activations", "./no-such-folder"), "no folder"),
        (("qwen3-32b", "--seed", "x"), "whole number"),
    ],
)
def test_what_cannot_be_measured_is_said(run: Run, words: tuple[str, ...], said: str) -> None:
    shown = run("quality", *words)
    assert shown.code == 2
    assert said in shown.err
    assert not shown.out
    assert "Traceback" not in shown.err
