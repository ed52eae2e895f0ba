"""The largest items that vLLM's own classes count: recorded (0.32), asked again where vLLM is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplan.engines.vllm.classes import class_of, names
from kvplan.engines.vllm.encoder_profile.dummy_items import Asked, Item
from kvplan.engines.vllm.encoder_profile.encoder_widths import part_of
from kvplan.engines.vllm.encoder_profile.largest_items import largest_items_of, rule_of
from tests.engines.vllm_items_cases import CASES
from tests.laws.sampling import for_each

HERE = Path(__file__).parent
RECORD = HERE / "vllm_items.json"


def _recorded() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def _pairs() -> list[tuple[dict[str, Any], int]]:
    return [(case, length) for case in CASES for length in case["lengths"]]


def items(case: dict[str, Any], length: int, **processor: Any) -> dict[str, Item]:
    name, config = case["class"], case["config"]
    beside = "image" in case["kinds"]
    part = part_of(name, config) or {}
    asked = Asked(config, part, rule_of(config), (0, 32), length, length, processor, None, beside)
    return largest_items_of(name, asked)


@for_each("place", range(len(_pairs())))
def test_the_tokens_are_those_of_the_class(place: int) -> None:
    case, length = _pairs()[place]
    answer = _recorded()[place]
    found = {kind: item.tokens for kind, item in items(case, length).items()}
    assert {kind: found[kind] for kind in answer["tokens"]} == answer["tokens"], (case["class"], length)
    if "frames" in answer:  # 14 × 14 tokens a frame, and one at the end
        assert found["video"] == answer["frames"][0] * 196 + 1


def test_every_case_was_answered() -> None:
    assert len(_recorded()) == len(_pairs())
    assert not [answer for answer in _recorded() if "error" in answer]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["class"]))
def test_a_longer_sequence_never_has_less(case: dict[str, Any]) -> None:
    lengths = sorted({*case["lengths"], 512, 8192, 65_536})
    for kind in class_of(case["class"]).modalities:
        found = [items(case, length)[kind] for length in lengths if kind in items(case, length)]
        assert [item.tokens for item in found] == sorted(item.tokens for item in found)
        assert [item.patches for item in found] == sorted(item.patches for item in found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["class"]))
def test_fewer_pixels_never_take_more_patches(case: dict[str, Any]) -> None:
    for length in case["lengths"]:
        whole = items(case, length)
        for pixels in (1 << 16, 1 << 19):
            small = items(case, length, max_pixels=pixels)
            assert small["image"].patches <= whole["image"].patches if "image" in whole else small == whole


def test_a_limit_is_a_class_s_own_kind() -> None:
    for row in map(class_of, names()):
        assert set(row.limits) <= set(row.modalities)
        assert all(count >= 1 for count in row.limits.values())


@pytest.mark.vllm
def test_the_classes_say_the_same_again() -> None:
    pytest.importorskip("vllm")
    asked = subprocess.run(
        (sys.executable, str(HERE / "vllm_items_ask.py")),
        input=json.dumps(CASES),
        capture_output=True,
        check=True,
        text=True,
    )
    line = next(line for line in asked.stdout.splitlines() if line.startswith("ANSWERS"))
    assert json.loads(line.removeprefix("ANSWERS")) == _recorded()
