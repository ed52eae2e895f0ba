"""The screens of the runs in examples/evidence, as their runs showed them: short, titled, whole with -v."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.engines.budget import choose
from kvplan.files.plans.receipts import read_receipt
from kvplan.plans.receipt import Receipt
from kvplan.proof.validate.probe import Hardware
from kvplan.proof.validate.session import Outcome
from kvplan.proof.validate.target import Target, bare_plan, target_of
from kvplan.report.layout import plain
from kvplan.report.validate import outcome_screen
from kvplan.report.validate_engine import engine_screen
from tests.proof.test_evidence import FOLDER, MEASURED, MODELS, PLANS, ROOT

OF_A_RANK = {"rank_blocks_0", "rank_requests", "attention_checks"}
"""What stands in the receipt alone: of one rank's group, or counted again in a line of the screen."""
OF_BEFORE = ("activation_", "graphs_", "matrix_workspace_")
"""Beginnings of figures of probes that kvplan no longer runs; speeds end alike."""


def _receipt(name: str) -> Receipt:
    return read_receipt(FOLDER / f"{name}.json").receipt


@functools.cache
def _target(name: str) -> Target:
    if name not in MODELS:
        path = ROOT / "examples" / "plans" / f"{name.removesuffix('-vllm')}.yaml"
        (plan,) = kvplan.load_plans(path)
        model, choice = load_model(plan.model), choose(plan.engine)
        return target_of(plan, model, choice, asks_proof=True, on_gpu=True)
    word, *flags = MODELS[name]
    model, choice = load_model(word), choose("vllm@0.33")
    given = dict(zip((flag.removeprefix("--").replace("-", "_") for flag in flags[::2]), flags[1::2]))
    pool = _receipt(name).settings["kv_cache_memory"]
    settings = make_settings(kv_cache_memory=pool, weights="0B", **given)
    changes = {"kv_cache_memory": pool}
    plan = bare_plan(model, choice, settings)
    return target_of(plan, model, choice, asks_proof=False, on_gpu=True, changes=changes)


def screen_of(name: str, *, whole: bool) -> str:
    """The text as it was, the receipt's name in the place of its file."""
    receipt = _receipt(name)
    hardware = Hardware(receipt.hardware["name"], receipt.hardware["kind"], slug=receipt.hardware["gpu"])
    outcome = Outcome(_target(name), hardware, receipt.figures, (), receipt.notes, ())
    draw = engine_screen if receipt.engine_run else outcome_screen
    typed = f"{receipt.plan_name}.yaml"
    return plain(draw(outcome, receipt, typed=typed, path=str(Path("evidence", f"{name}.json")), whole=whole))


@pytest.mark.parametrize("name", MEASURED)
def test_the_screen_is_short_and_no_wider_than_a_terminal(name: str) -> None:
    rows = screen_of(name, whole=False).splitlines()
    assert len(rows) <= 20
    assert max(map(len, rows)) <= 80
    assert rows[0].startswith(
        (
            f"Validation on {_receipt(name).hardware['name']}: the memory is there for",
            "Confirmed by vLLM 0.33.0 on NVIDIA",
        )
    )


@pytest.mark.parametrize("name", [*PLANS, *MODELS])
def test_every_figure_has_a_line_and_a_title(name: str) -> None:
    from kvplan.report.validate import _TITLES

    names = {one.name for one in _receipt(name).figures}
    figures = {one for one in names if not one.startswith(OF_BEFORE) and not one.endswith("_per_second")}
    assert figures - set(_TITLES) <= OF_A_RANK
    text = screen_of(name, whole=True)
    assert all(_TITLES[one] in text for one in figures & set(_TITLES))
    assert max(map(len, text.splitlines())) <= 80


def test_what_the_engine_measured_stands_with_its_interval_of_figures() -> None:
    text = screen_of("rag-llama-3.1-8b-128k-h200-vllm", whole=True)
    assert "57,497" in text
    assert "120,581,260,903" in text
    assert "engine 0.33.0, torch 2.14.0+cu130, Python 3.12.3, NVIDIA H200" in text
