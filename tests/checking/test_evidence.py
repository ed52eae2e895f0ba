"""Receipts: of this plan, intact, young, of a GPU, and with figures that agree."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.checking import facts_of
from kvplan.checking.case import Case
from kvplan.checking.evidence import hash_of
from kvplan.plans.receipt import CONSISTENT, FIRST_FORMAT, Figure, Receipt, model_digest
from tests.plans.helpers import HEAD, plan

TEXT = "model: llama-3.1-8b\nengine: vllm@0.32\ngpu: h100\nserve: {max_model_len: 8192}\n"
TODAY = date(2026, 3, 1)


def receipt(text: str = TEXT, **changes: Any) -> Receipt:
    case = Case(plan(HEAD + text), kvplan.load_model("llama-3.1-8b"))
    known = {fact.name: fact.value for fact in facts_of(case)}
    assert case.result is not None
    gpu = case.plan.settings.gpu
    assert gpu is not None
    blocks = known["num_blocks"]
    found = Receipt(
        plan_hash=hash_of(case) or "",
        plan_name="plan",
        model_id=case.model.id,
        model_digest=model_digest(case.model, case.result.layers),
        engine="vllm",
        engine_version=case.choice.version,
        kvplan_version="1",
        kind="proof",
        created="2026-01-02T03:04:05Z",
        hardware={"name": gpu.name, "gpu": gpu.slug, "memory_total_bytes": gpu.memory_total_bytes},
        settings={**_plain(case.result.settings), "kv_cache_memory": case.memory, "tokens": 8192},
        figures=(
            _exact("weights_bytes", known.get("weights_bytes_per_gpu", 0), 0),
            _exact("pool_bytes", known["kv_pool_bytes"] // 10**6 * 10**6, 0),
            _exact("states_wrong", 0, 0),
            replace(_exact("pool_reserved_bytes", 2**30, 0), independent=True),
            _exact("requests", known["max_requests"], None),
            Figure("num_blocks", "blocks", blocks, blocks - blocks // 200, 20_000, "start"),
        ),
    )
    return replace(found, **changes)


def _exact(name: str, amount: int, rank: int | None) -> Figure:
    return Figure(name, "bytes", amount, amount, 0, "stage", rank)


def _plain(settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if isinstance(value, (str, int, float))}


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
    assert "evidence-of-another-plan" in codes(tmp_path, receipt(), text=changed)


def test_without_its_figures_a_receipt_proves_nothing(tmp_path: Path) -> None:
    assert codes(tmp_path, receipt(figures=(), format=FIRST_FORMAT)) == {"evidence-incomplete"}
    assert codes(tmp_path, receipt(figures=())) == {"evidence-unreadable"}  # a verdict without a figure


def test_a_verdict_is_no_better_than_its_figures(tmp_path: Path) -> None:
    """Nothing measured against an independent prediction: no proof, as no validation writes it any more."""
    good = receipt()
    own = tuple(replace(one, independent=False) for one in good.figures)
    assert codes(tmp_path, replace(good, figures=own)) == {"evidence-unreadable"}
    made = replace(good, figures=own, verdict=CONSISTENT)
    assert codes(tmp_path, made) == {"evidence-not-confirmed"}


def test_receipts_of_before_keep_their_meaning(tmp_path: Path) -> None:
    good = receipt()
    own = tuple(replace(one, independent=False) for one in good.figures)
    before = replace(good, figures=own, format=FIRST_FORMAT)
    assert {"class", "confirmed_by"}.isdisjoint({*before.model_dump(), *before.model_dump()["figures"][0]})
    assert codes(tmp_path, before) == set()


@pytest.mark.parametrize("name", ["weights_bytes", "pool_bytes", "states_wrong", "requests", "num_blocks"])
@pytest.mark.parametrize("how", ["gone", "not measured", "only reported"])
def test_every_stage_has_to_have_left_its_figure(name: str, how: str, tmp_path: Path) -> None:
    good = receipt()
    kept = []
    for figure in good.figures:
        if figure.name != name:
            kept.append(figure)
        elif how == "not measured":
            kept.append(replace(figure, measured=None, allowed_ppm=None))
        elif how == "only reported":
            kept.append(replace(figure, allowed_ppm=None))
    assert codes(tmp_path, replace(good, figures=tuple(kept))) == {"evidence-incomplete"}


def test_every_rank_has_to_have_left_its_figures(tmp_path: Path) -> None:
    text = TEXT.replace("gpu: h100", "gpu: h100\ngpus: 2").replace("{max", "{tensor_parallel_size: 2, max")
    one = receipt(text)
    assert codes(tmp_path, one, text=text) == {"evidence-incomplete"}
    second = tuple(replace(figure, rank=1) for figure in one.figures if figure.rank == 0)
    assert codes(tmp_path, replace(one, figures=(*one.figures, *second)), text=text) == set()


@pytest.mark.parametrize(
    ("hardware", "code"),
    [
        ({}, "evidence-of-another-gpu"),
        ({"name": "NVIDIA L4", "gpu": "l4"}, "evidence-of-another-gpu"),
        ({"name": "NVIDIA B999", "gpu": None}, "evidence-of-another-gpu"),
        ({"memory_total_bytes": None}, "evidence-incomplete"),
        ({"memory_total_bytes": 40 * 2**30}, "evidence-of-another-gpu"),
    ],
)
def test_another_gpu_proves_nothing(hardware: dict[str, Any], code: str, tmp_path: Path) -> None:
    good = receipt()
    there = {**good.hardware, **hardware} if hardware else {}
    assert codes(tmp_path, replace(good, hardware=there)) == {code}


@pytest.mark.parametrize("change", [{"engine": "sglang"}, {"engine_version": "0.31"}])
def test_another_engine_proves_nothing(change: dict[str, str], tmp_path: Path) -> None:
    assert codes(tmp_path, receipt(**change)) == {"evidence-of-another-engine"}


@pytest.mark.parametrize(
    ("name", "value"), [("max_model_len", 4096), ("max_num_seqs", 1), ("kv_cache_memory", 2**30)]
)
def test_settings_that_are_other_ones_today_are_outdated(name: str, value: int, tmp_path: Path) -> None:
    good = receipt()
    assert name in good.settings
    made = replace(good, settings={**good.settings, name: value})
    assert codes(tmp_path, made) == {"evidence-outdated"}


def test_other_weights_are_outdated(tmp_path: Path) -> None:
    good = receipt()
    more = tuple(
        replace(one, predicted=10**9, measured=10**9) if one.name == "weights_bytes" else one
        for one in good.figures
    )
    assert codes(tmp_path, replace(good, figures=more)) == {"evidence-outdated"}


@pytest.mark.parametrize("day", ["2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T25:00:00Z"])
def test_a_day_that_is_none_is_the_receipts_error_alone(day: str, tmp_path: Path) -> None:
    assert codes(tmp_path, receipt(created=day)) == {"evidence-unreadable"}


def test_a_number_that_is_none_is_the_receipts_error_alone(tmp_path: Path) -> None:
    text = json.dumps(receipt().model_dump()).replace('"tokens": 8192', '"tokens": Infinity')
    assert codes(tmp_path, text) == {"evidence-unreadable"}


def test_a_receipt_without_the_newer_keys_is_still_one(tmp_path: Path) -> None:
    dumped = receipt().model_dump()
    assert {"attention", "stopped_by"}.isdisjoint(dumped)
    assert codes(tmp_path, json.dumps(dumped)) == set()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kind": "rehearsal"}, "rehearsal-is-no-proof"),
        ({"verdict": "refuted"}, "evidence-not-confirmed"),
        ({"verdict": "stopped", "stopped_at": "start"}, "evidence-not-confirmed"),
        ({"created": "2025-01-02T03:04:05Z"}, "evidence-too-old"),
        ({"created": "2027-01-02T03:04:05Z"}, "evidence-from-the-future"),
    ],
)
def test_what_proves_nothing(change: dict[str, Any], code: str, tmp_path: Path) -> None:
    assert codes(tmp_path, receipt(**change)) == {code}


@pytest.mark.parametrize(
    ("figure", "wanted"),
    [
        (Figure("num_blocks", "blocks", 10, 10, 20_000), {"evidence-outdated"}),
        (Figure("x", "count", 1000, 1019, 10_000), {"evidence-disagrees"}),
        (Figure("x", "count", 1000, 1021, 30_000), {"evidence-disagrees"}),
        (Figure("x", "count", 1000, None, 30_000), {"evidence-disagrees"}),
        (Figure("x", "count", 1000, 1, None), set()),  # only reported
    ],
)
def test_one_figure_more_that_decides(figure: Figure, wanted: set[str], tmp_path: Path) -> None:
    good = receipt()
    assert codes(tmp_path, replace(good, figures=(*good.figures, figure))) == wanted


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


def moved(by: int, blocks: int = 0) -> Receipt:
    """The receipt of a day on which the budget left so many bytes more, and so many blocks beside its own."""
    good = receipt()
    pool = good.settings["kv_cache_memory"] + by
    case = Case(plan(HEAD + TEXT), kvplan.load_model("llama-3.1-8b"))
    there = (case.blocks_in(pool) or 0) + blocks
    figures = tuple(
        replace(one, predicted=there, measured=there) if one.name == "num_blocks" else one
        for one in good.figures
    )
    return replace(good, settings={**good.settings, "kv_cache_memory": pool}, figures=figures)


@pytest.mark.parametrize("by", [-(16 << 20), 0, 16 << 20])
def test_an_estimated_pool_is_the_same_within_todays_interval(by: int, tmp_path: Path) -> None:
    assert codes(tmp_path, moved(by)) == set()
    assert codes(tmp_path, moved(by, blocks=1)) == {"evidence-outdated"}


@pytest.mark.parametrize("by", [-(8 << 30), 8 << 30])
def test_beyond_it_the_receipt_is_outdated(by: int, tmp_path: Path) -> None:
    assert codes(tmp_path, moved(by)) == {"evidence-outdated"}


def test_a_pool_that_the_plan_gives_is_exact(tmp_path: Path) -> None:
    text = TEXT.replace("{max", "{kv_cache_memory_bytes: 8589934592, max")
    good = receipt(text)
    assert codes(tmp_path, good, text=text) == set()
    other = replace(good, settings={**good.settings, "kv_cache_memory": 8589934592 - (1 << 20)})
    assert codes(tmp_path, other, text=text) == {"evidence-outdated"}


def test_a_receipt_that_holds_is_told(tmp_path: Path) -> None:
    assert codes(tmp_path, receipt()) == set()
    [checked] = kvplan.check(tmp_path / "p.yaml", today=TODAY).plans
    [proof] = checked.evidence
    assert (proof.written, proof.measured_by, proof.version) == ("2026-01-02", "kvplan", "1")
    assert [one.name for one in proof.facts] == ["pool_bytes", "requests"]
    assert all(one.predicted == one.measured for one in proof.facts)


def test_one_that_does_not_hold_is_not(tmp_path: Path) -> None:
    assert codes(tmp_path, receipt(verdict="refuted")) == {"evidence-not-confirmed"}
    [checked] = kvplan.check(tmp_path / "p.yaml", today=TODAY).plans
    assert checked.evidence == ()
