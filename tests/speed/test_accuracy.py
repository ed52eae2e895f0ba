"""The published rows, the page made of them, and what the page promises."""

from __future__ import annotations

from collections import Counter

import pytest

from kvplan.files.speed import FILE, speed_assumptions
from scripts import speed_accuracy, speed_fit
from scripts.speed_accuracy import Judged
from scripts.speed_rows import models_of, read_rows, read_sources


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    return speed_accuracy.judged()


def test_the_page_is_what_the_script_writes(judged: list[Judged]) -> None:
    assert speed_accuracy.ROWS.read_text(encoding="utf-8") == speed_accuracy.rows_document(judged)
    assert speed_accuracy.OUT.read_text(encoding="utf-8") == speed_accuracy.document(judged), (
        "docs/speed.md is stale: python -m scripts.speed_accuracy --write"
    )


def test_there_are_enough_rows_of_enough_kinds() -> None:
    rows = read_rows()
    assert len(rows) >= 200
    assert len(models_of(rows)) >= 30
    assert len({row.raw["gpu"] for row in rows}) >= 12
    assert Counter(row.raw["engine"] for row in rows).keys() >= {"vllm", "sglang", "trtllm", "llamacpp"}
    assert {row.raw["source"] for row in rows} == set(read_sources())
    assert all(row.measured > 0 for row in rows)


def test_held_out_figures_lie_in_their_intervals(judged: list[Judged]) -> None:
    """About nine in ten; the rows are few and move together, so two figures less would say nothing."""
    held = [entry for entry in judged if not entry.fitted]
    inside = sum(entry.inside for entry in held) / len(held)
    assert 0.87 <= inside <= 0.97


def test_the_median_error_is_as_promised(judged: list[Judged]) -> None:
    for fitted, most in ((True, 15), (False, 25)):
        errors = [abs(entry.error) for entry in judged if entry.fitted is fitted]
        assert speed_accuracy.percentile(errors, 0.5) <= most


def test_the_halves_share_no_model(judged: list[Judged]) -> None:
    fitted = {entry.row.model for entry in judged if entry.fitted}
    held = {entry.row.model for entry in judged if not entry.fitted}
    assert fitted
    assert held
    assert not fitted & held


def test_the_fit_writes_the_file_that_it_read() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert speed_fit.written(text, speed_assumptions()) == text


def test_the_fit_goes_down_and_stays_in_its_bounds() -> None:
    rows = [row for row in read_rows() if row.model == "llama-2-7b"]
    start = speed_fit.with_value(speed_assumptions(), "memory_efficiency", 0.4)
    shares = speed_fit.weights(rows)
    found = speed_fit.fit(rows, start, (1.3,))
    assert speed_fit.loss(rows, shares, found) < speed_fit.loss(rows, shares, start)
    assert 0.4 < found["memory_efficiency"].value <= speed_fit.HIGHEST["memory_efficiency"]


@pytest.mark.parametrize(("count", "factor"), [(10, 2.839), (15, 2.480), (20, 2.310), (30, 2.140)])
def test_tolerance_factors_are_those_of_the_tables(count: int, factor: float) -> None:
    """Two-sided, 90 % of the population, 95 % confidence (NIST handbook 7.2.6.3 gives the method)."""
    assert speed_fit.tolerance_factor(count) == pytest.approx(factor, rel=0.01)
