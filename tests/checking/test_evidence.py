"""Receipts: of this plan, intact, young, of a GPU, and with figures that agree."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.checking.case import Case
from kvplan.checking.evidence import hash_of
from kvplan.checking.facts import facts_of
from kvplan.plans.identity import model_digest
from kvplan.plans.receipt import Figure, Receipt
from tests.plans.helpers import HEAD, plan

TEXT = "model: llama-3.1-8b\nengine: vllm@0.32\ngpu: h100\nserve: {max_model_len: 8192}\n"
TODAY = date(2026, 3, 1)


def receipt(**changes: Any) -> Receipt:
    case = Case(plan(HEAD + TEXT), kvplan.load_model("llama-3.1-8b"))
    blocks = next(fact.value for fact in facts_of(case) if fact.name == "num_blocks")
    assert case.result is not None
    found = Receipt(
        plan_hash=hash_of(case) or "",
        plan_name="plan",
        model_id="llama-3.1-8b",
        model_digest=model_digest(case.model, case.result.layers),
        engine="vllm",
        engine_version="0.32.0",
        kvplan_version="1",
        kind="proof",
        created="2026-01-02T03:04:05Z",
        figures=(Figure("num_blocks", "blocks", blocks, blocks - blocks // 200, 20_000, "start"),),
    )
    return replace(found, **changes)


def codes(
    folder: Path, made: Receipt | str | None, *, text: str = TEXT, today: date | None = TODAY
) -> set[str]:
    if made is not None:
        dumped = made if isinstance(made, str) else json.dumps(made.model_dump())
        (folder / "r.json").write_text(dumped)
    (folder / "p.yaml").write_text(HEAD + text + ("evidence: r.json\n" if "evidence" not in text else ""))
    [checked] = kvplan.check(folder / "p.yaml", today=today).plans
    assert checked.error is None
    return {
        finding.code for finding in checked.findings if "evidence" in finding.code or "proof" in finding.code
    }


def test_a_good_receipt_proves_the_plan(tmp_path: Path) -> None:
    assert codes(tmp_path, receipt()) == set()


def test_names_and_layout_change_nothing(tmp_path: Path) -> None:
    assert codes(tmp_path, receipt(), text="name: other  # a remark\ntolerance: 3%\n" + TEXT) == set()


def test_another_setting_is_another_plan(tmp_path: Path) -> None:
    changed = TEXT.replace("8192", "4096")
    assert codes(tmp_path, receipt(figures=()), text=changed) == {"evidence-of-another-plan"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kind": "rehearsal"}, "rehearsal-is-no-proof"),
        ({"verdict": "refuted"}, "evidence-not-confirmed"),
        ({"verdict": "stopped", "stopped_at": "start"}, "evidence-not-confirmed"),
        ({"created": "2025-01-02T03:04:05Z"}, "evidence-too-old"),
        ({"created": "2027-01-02T03:04:05Z"}, "evidence-from-the-future"),
        ({"figures": (Figure("num_blocks", "blocks", 10, 10, 20_000),)}, "evidence-outdated"),
        ({"figures": (Figure("x", "count", 1000, 1019, 10_000),)}, "evidence-disagrees"),
        ({"figures": (Figure("x", "count", 1000, 1021, 30_000),)}, "evidence-disagrees"),
        ({"figures": (Figure("x", "count", 1000, None, 30_000),)}, "evidence-disagrees"),
    ],
)
def test_what_proves_nothing(change: dict[str, Any], code: str, tmp_path: Path) -> None:
    assert codes(tmp_path, receipt(**change)) == {code}


def test_a_figure_that_is_only_reported_need_not_agree(tmp_path: Path) -> None:
    assert codes(tmp_path, receipt(figures=(Figure("x", "count", 1000, 1, None),))) == set()


def test_the_age_that_the_plan_allows(tmp_path: Path) -> None:
    for days, wanted in (("57d", {"evidence-too-old"}), ("58d", set())):
        text = TEXT + f"evidence: [{{path: r.json, max_age: {days}}}]\n"
        assert codes(tmp_path, receipt(), text=text) == wanted
    assert (
        codes(tmp_path, receipt(), text=TEXT + "evidence: [{path: r.json, max_age: 1d}]\n", today=None)
        == set()
    )


def test_an_edited_receipt(tmp_path: Path) -> None:
    dumped = receipt().model_dump()
    dumped["figures"][0]["measured"] += 1
    assert codes(tmp_path, json.dumps(dumped)) == {"evidence-edited"}


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"kvplan": "receipt/v1"}', "{" * 100_000])
def test_a_file_that_is_no_receipt(content: str | None, tmp_path: Path) -> None:
    assert codes(tmp_path, content) == {"evidence-unreadable"}


@pytest.mark.parametrize("created", ["9999-99-99T99:99:99Z", "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z"])
def test_a_time_that_is_none_is_no_receipt(tmp_path: Path, created: str) -> None:
    assert codes(tmp_path, receipt(created=created)) == {"evidence-unreadable"}
