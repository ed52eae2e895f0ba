"""What SGLang 0.5.23's own planner says of published configs and of cards, recorded (scripts/record_sglang).

Every figure and every refusal is equal: tokens of the pools, requests, pages, context, chunks, graphs,
element types, backends, the memory fraction, what images reserve, slots of states.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from kvplan.architectures.config.read import read_config
from kvplan.errors import KvplanError
from kvplan.model import Model
from tests.engines.sglang_cases import TURNS, cases
from tests.engines.sglang_compare import differences, ours, recorded
from tests.recorded import DATA, model_of, record

RECORD: dict[str, Any] = record("sglang")
CASES = {case["name"]: case for case in cases() if case["name"] in RECORD["answers"]}
DIFFERENT = {
    "recurrentgemma-2b": "the transformers backend keeps no recurrent state: SGLang would answer wrongly",
    "card:minimax-m3-nvfp4": "the card leaves out which index layers keep no value, and the encoder's depth",
    "nvidia__Kimi-K2.6-NVFP4|17": "there is no draft: SGLang says so when it loads one",
}
"""Part of a case's name → why kvplan's answer is another one; the test fails when it is equal."""


@cache
def model_named(name: str) -> Model | KvplanError:
    """The model of a case: a published config, or a card's."""
    try:
        if not name.startswith("card:"):
            return model_of(name)
        case = next(one for one in CASES.values() if one["model"] == name)
        return read_config(case["config"], id=name, source="recorded", hf_quant_config=case["quant"])
    except KvplanError as error:
        return error


def found(name: str) -> list[str]:
    """The fields in which the answers are not the same."""
    case, model = CASES[name], model_named(CASES[name]["model"])
    mine = {"refused": model.message} if isinstance(model, KvplanError) else ours(model, case)
    return differences(mine, recorded(RECORD["answers"][name]))


def test_most_of_what_was_asked_is_the_planners_answer() -> None:
    assert len(RECORD["answers"]) == len(CASES)
    kinds = Counter("refused" in answer for answer in RECORD["answers"].values())
    assert kinds[False] >= 680
    assert kinds[True] >= 100


@pytest.mark.parametrize("turn", range(len(TURNS)))
def test_equal(turn: int) -> None:
    """All cases of one GPU and its arguments."""
    names = [name for name in CASES if name.endswith(f"|{turn}")]
    other = {name for name in names if any(part in name for part in DIFFERENT)}
    assert {name: fields for name in names if (fields := found(name)) and name not in other} == {}
    assert [name for name in other if not found(name)] == []


def test_the_page_says_how_many() -> None:
    """docs/engines.md has the figures of the record."""
    answers = RECORD["answers"]
    other = sum(any(part in name for part in DIFFERENT) for name in answers)
    refused = sum("refused" in answer for answer in answers.values())
    rows = {
        "asked": len(answers) + len(RECORD["left"]),
        "SGLang answers, every figure equal": len(answers) - refused - other,
        "SGLang refuses, and so do the rules": refused,
        "different, with a reason": other,
    }
    page = (DATA.parents[1] / "docs" / "engines.md").read_text(encoding="utf-8")
    assert [
        f"| {name} | {count} |" for name, count in rows.items() if f"| {name} | {count} |" not in page
    ] == []
