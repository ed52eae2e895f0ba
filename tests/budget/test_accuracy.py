"""Pools that real servers printed."""

from __future__ import annotations

import pytest

from kvplan.units import GIB
from scripts import accuracy
from scripts.field_rows import read_rows
from tests.recorded import DATA

REPORTS = DATA / "field_reports.json.gz", DATA / "start_ups.json.gz"


@pytest.fixture(scope="module")
def answers() -> list[accuracy.Judged]:
    rows, left = read_rows(*REPORTS)
    return accuracy.judged(rows, left)


def test_calibrated_releases(answers: list[accuracy.Judged]) -> None:
    """Nine of ten within 2 %, all within 5 %, and in the interval."""
    inner = [entry for entry in answers if accuracy.is_calibrated(entry.row)]
    assert len(inner) >= 15
    errors = [abs(entry.error) for entry in inner]
    assert sum(error <= 2 for error in errors) >= 0.9 * len(errors)
    assert max(errors) <= 5
    assert all(entry.inside for entry in inner)


def test_later_releases_lie_in_the_interval(answers: list[accuracy.Judged]) -> None:
    later = [entry for entry in answers if not accuracy.is_calibrated(entry.row)]
    assert later
    assert all(entry.inside for entry in later)


def test_weights(answers: list[accuracy.Judged]) -> None:
    """Within 0.5 % of what the log printed, tables of rotary angles included."""
    for entry in answers:
        printed = entry.row.printed("weights_gib")
        if printed is None or not accuracy.is_calibrated(entry.row):
            continue
        budget = entry.result.budget
        assert budget is not None
        amount = sum(line.bytes for line in budget.lines if line.name in ("weights", "rotary tables"))
        assert abs(amount - printed) <= printed * 0.005 + GIB // 100, entry.row.id


def test_the_document_is_not_stale() -> None:
    assert accuracy.text(*REPORTS) == accuracy.OUT.read_text(encoding="utf-8")
