"""What llama.cpp 0.5.0's own context reserves, recorded (scripts/record_llamacpp.py).

Every published config whose GGUF file llama.cpp's converter can describe, as config and as the file's keys,
and a small model of every architecture: cells, layers and MiB of each cache, MiB of states, and the compute
buffer.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from kvplan.architectures.gguf.read import read_keys
from kvplan.engines.llamacpp.start.models import refusal_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from tests.engines.llamacpp_cases import TURNS, cases
from tests.engines.llamacpp_compare import compute_bounds, equal, ours, theirs
from tests.recorded import DATA, model_of, record

RECORD: dict[str, Any] = record("llamacpp")
NOT_THE_CONTEXT = ("ASSERT", "hyperparameters", "invalid case", "the process ended", "unsupported model")
"""Words of errors about keys that the architecture wants besides."""
CASES = [
    case
    for case in cases(RECORD["keys"])
    if not any(word in RECORD["answers"][case["name"]].get("refused", "") for word in NOT_THE_CONTEXT)
]
DIFFERENT = {
    "tiiuae__falcon-7b": "the pinned transformers makes 71 KV heads of multi_query: no conversion succeeds",
    "Nemotron-Super-49B": "llama.cpp counts layers without KV heads among those of the cache",
}
"""Part of a model's name → why its caches are said otherwise; the test fails when they are equal."""
OTHER_GRAPHS = {
    "GLM-4.5": "asked with its prediction layer, whose input is kept beside the logits",
    "Laguna-XS.2": "the keys have heads of each layer: the most are counted",
}
"""Part of a model's name → why its compute buffer may lie outside the interval."""


@cache
def doors(name: str) -> tuple[Model, ...]:
    """The model by its file's keys, and by its config where it has one."""
    case = next(case for case in CASES if case["model"] == name)
    by_keys = read_keys(case["keys"], called=name, source="recorded", listed=0, cut_in=None)
    return (by_keys,) if name.startswith("small:") else (by_keys, model_of(name))


def unequal(case: dict[str, Any]) -> list[str]:
    """What is not the same, door by door."""
    answer = RECORD["answers"][case["name"]]
    found = []
    for model in doors(case["model"]):
        try:
            mine = ours(model, case["context"])
        except KvplanError as error:
            if "refused" not in answer:
                found.append(error.message)
            continue
        if "refused" in answer:
            found.append(f"not refused: {answer['refused']}")
        elif not equal(mine, theirs(answer)):
            found.append(f"{mine} for {theirs(answer)}")
    return found


@pytest.mark.parametrize("turn", range(len(TURNS)))
def test_the_caches_are_equal(turn: int) -> None:
    listed = [case for case in CASES if case["name"].endswith(f"|{turn}")]
    other = {case["name"] for case in listed if any(part in case["name"] for part in DIFFERENT)}
    found = {case["name"]: wrong for case in listed if (wrong := unequal(case))}
    assert {name: wrong for name, wrong in found.items() if name not in other} == {}
    assert other - set(found) == set()


@pytest.mark.parametrize("turn", range(len(TURNS)))
def test_the_compute_buffer_lies_in_its_interval(turn: int) -> None:
    outside = {}
    for case in CASES:
        answer = RECORD["answers"][case["name"]]
        if not case["name"].endswith(f"|{turn}") or case["model"].startswith("small:") or "refused" in answer:
            continue
        for model in doors(case["model"]):
            low, high = compute_bounds(model, case["context"])
            if not low - 1 <= answer["compute"] <= high + 1:
                outside[case["name"]] = (low, answer["compute"], high)
    assert {
        name: said for name, said in outside.items() if not any(part in name for part in OTHER_GRAPHS)
    } == {}


def test_what_the_converter_does_not_know_is_refused() -> None:
    unknown = [name for name, why in RECORD["refused"].items() if "not supported!" in why]
    assert len(unknown) >= 17
    assert [name for name in unknown if refusal_of(model_of(name)) is None] == []
    assert [name for name in RECORD["keys"] if refusal_of(model_of(name)) is not None] == []


def test_the_page_says_how_many() -> None:
    answers = [RECORD["answers"][case["name"]] for case in CASES]
    other = sum(any(part in case["name"] for part in DIFFERENT) for case in CASES)
    refused = sum("refused" in answer for answer in answers)
    rows = {
        "published configs, as config and as the file's keys": len(RECORD["keys"]),
        "architectures, as keys of a small model": len(
            {case["model"] for case in CASES if case["model"].startswith("small:")}
        ),
        "contexts asked": len(CASES),
        "every cache equal": len(CASES) - refused - other,
        "refused by both": refused,
        "different, with a reason": other,
        "configs that the converter does not take": len(RECORD["refused"]),
    }
    page = (DATA.parents[1] / "docs" / "engines.md").read_text(encoding="utf-8")
    assert [
        f"| {name} | {count} |" for name, count in rows.items() if f"| {name} | {count} |" not in page
    ] == []
