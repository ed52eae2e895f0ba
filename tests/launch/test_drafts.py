"""A draft that nothing is known of leaves the rest of the server readable, and is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.api.launching import started_readings
from kvplan.files.cards.find import list_names
from kvplan.files.cards.near import near_card

HEAD = "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"
MODEL = "meta-llama/Llama-3.3-70B-Instruct"
VLLM = f"vllm serve {MODEL} -tp 2 -q fp8 --max-model-len 8192 --speculative-config '{{}}'"
SGLANG = (
    f"python -m sglang.launch_server --model {MODEL} --tp 2 --speculative-algorithm EAGLE3"
    f" --speculative-draft-model-path {HEAD} --speculative-num-steps 3 --speculative-num-draft-tokens 4"
    " --speculative-eagle-topk 1"
)


def vllm(**entry: object) -> str:
    return VLLM.format(json.dumps({"num_speculative_tokens": 3, **entry}))


@pytest.mark.parametrize(
    ("command", "method"),
    [
        (vllm(method="eagle3", model=HEAD), "eagle3"),
        (vllm(model=HEAD), "eagle3"),
        (vllm(method="eagle", model="/models/some-head"), "eagle"),
        (vllm(method="draft_model", model="org/Nothing-1B"), "draft_model"),
        (SGLANG, "eagle3"),
    ],
)
def test_an_unknown_draft_is_a_marked_gap(command: str, method: str) -> None:
    [reading] = started_readings(command, "h100")
    assert reading.plan is not None, reading.errors
    settings = reading.plan.settings
    assert (settings.speculative_method, settings.num_speculative_tokens) == (method, 3)
    assert settings.speculative_model is None
    [note] = [one for one in reading.plan.notes if "draft" in one]
    assert "estimate" in note


def test_a_known_draft_is_read() -> None:
    [reading] = started_readings(vllm(method="draft_model", model="llama-3.2-1b"), "h100")
    assert reading.plan is not None
    assert reading.plan.settings.speculative_model is not None
    assert not [one for one in reading.plan.notes if "draft" in one]


def test_in_a_plan_file_the_draft_is_an_error_at_its_own_line(tmp_path: Path) -> None:
    from kvplan.api.checking.load import Loader, files_of

    path = tmp_path / "plan.yaml"
    entry = f"serve:\n  speculative_config:\n    method: eagle3\n    model: {HEAD}\n"
    entry += "    num_speculative_tokens: 3\n"
    path.write_text(f"kvplan: plan/v1\nmodel: llama-3.3-70b\nengine: vllm\ngpu: h100\n{entry}")
    [reading] = Loader().readings(files_of([path]), None)
    [error] = reading.errors
    assert error.place is not None
    assert error.place.line == 8
    assert not [one for one in error.help if one.startswith("did you mean")]


@pytest.mark.parametrize(
    "key", [HEAD, "org/llama-3.1-8b-eagle", "x/qwen3-32b-speculator.eagle3", "z/qwen3-8b-draft"]
)
def test_a_draft_is_not_taken_for_its_model(key: str) -> None:
    near = near_card(key.lower(), list_names())
    assert near is None or any(word in near for word in ("eagle", "draft", "dflash", "speculator")), near
