"""Facts that `kvplan list receipts` calls bound are: each of them edited, and the digest made anew, fails."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.cli import main
from kvplan.plans.receipt import digest_of, facts_of, receipt_from

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLAN = "chat-llama-3.1-8b-h100"
RECEIPTS = (f"{PLAN}-vllm", PLAN)
_ENGINE_SETTING = "engine_run.settings."


def other(name: str, value: Any) -> Any:
    """Another value of the same type."""
    if name == "engine_run.version":
        return "0.31.0"
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value * 3 + 7
    if isinstance(value, str):
        return "sha256:" + "0" * 64 if value.startswith("sha256:") else value + "x"
    return 3 if value is None else value[:-1]


def edited(body: dict[str, Any], name: str, *, one_side: bool) -> dict[str, Any]:
    """The receipt with one fact changed, and its digest made anew."""
    made = copy.deepcopy(body)
    if name.startswith("figures."):
        for figure in made["figures"]:
            rank = "" if figure["rank"] is None else f"[{figure['rank']}]"
            if f"figures.{figure['name']}{rank}" == name:
                sides = ("measured",) if one_side else ("predicted", "measured", "low", "high")
                figure.update({side: figure[side] * 3 + 7 for side in sides if figure.get(side) is not None})
    else:
        parts = name.split(".", 2 if name.startswith(_ENGINE_SETTING) else 1)
        holder = made
        for part in parts[:-1]:
            holder = holder[part]
        holder[parts[-1]] = other(name, holder[parts[-1]])
    made["digest"] = digest_of(made)
    return made


def passes(body: dict[str, Any], folder: Path) -> bool:
    text = (EXAMPLES / "plans" / f"{PLAN}.yaml").read_text(encoding="utf-8")
    plan = folder / "plan.yaml"
    evidence = "evidence: {path: receipt.json, max_age: 36500d}"
    plan.write_text(text[: text.index("evidence: ")] + evidence, encoding="utf-8")
    (folder / "receipt.json").write_text(json.dumps(body), encoding="utf-8")
    return kvplan.check([plan]).exit_code == 0


@pytest.mark.parametrize("name", RECEIPTS)
def test_an_edit_of_a_bound_fact_is_seen_whatever_the_digest(name: str, tmp_path: Path) -> None:
    body = json.loads((EXAMPLES / "evidence" / f"{name}.json").read_text(encoding="utf-8"))
    assert passes(body, tmp_path)
    facts = facts_of(receipt_from(body))
    assert len(facts.bound) >= 30
    assert [one for one in facts.bound if passes(edited(body, one, one_side=False), tmp_path)] == []
    assert [one for one in facts.paired if passes(edited(body, one, one_side=True), tmp_path)] == []
    assert {"hardware.driver", "created", "notes"} <= set(facts.said)


def test_every_fact_has_one_class(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "receipts", str(EXAMPLES / "evidence"), "--json"]) == 0
    for one in json.loads(capsys.readouterr().out)["receipts"]:
        named = [name for kind in ("bound", "paired", "said") for name in one["facts"][kind]]
        assert len(named) == len(set(named)) > len(one["receipt"]["figures"])
