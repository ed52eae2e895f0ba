"""The coefficient file: strict, without gaps, and chosen by the release that was asked for."""

from __future__ import annotations

import json

import pytest

from kvplan.engines.vllm.coefficients import FILE, coefficients_of, vllm_coefficients
from kvplan.engines.vllm.memory import Coefficients
from kvplan.record import field_names
from scripts.field_rows import read_rows
from scripts.fit_budget import RANGES, file_text, fit, report, usable
from tests.recorded import DATA

REPORTS = DATA / "field_reports.json.gz", DATA / "start_ups.json.gz"


@pytest.mark.parametrize(
    ("version", "since"),
    [
        ((0, 8), "0.8"),
        ((0, 11), "0.11"),
        ((0, 11, 0), "0.11"),
        ((0, 11, 1), "0.11.1"),
        ((0, 11, 2), "0.11.1"),
        ((0, 16, 3), "0.11.1"),
        ((0, 17), "0.17"),
        ((0, 19, 1), "0.18"),
        ((0, 20), "0.20"),
        ((0, 33), "0.20"),
        ((9, 9), "0.20"),
        ((0, 1), "0.8"),
    ],
)
def test_a_release_has_one_range(version: tuple[int, ...], since: str) -> None:
    assert vllm_coefficients(version).since == since


def test_only_the_measured_releases_are_called_calibrated() -> None:
    assert [entry.since for entry in RANGES if entry.calibrated] == ["0.11", "0.11.1", "0.17", "0.18"]
    for entry in RANGES:
        version = tuple(int(part) for part in entry.since.split("."))
        assert vllm_coefficients(version).calibrated is entry.calibrated


def test_the_ranges_follow_each_other_and_are_whole_numbers() -> None:
    ranges = json.loads(FILE.read_text(encoding="utf-8"))["ranges"]
    assert [entry["until"] for entry in ranges[:-1]] == [entry["since"] for entry in ranges[1:]]
    assert ranges[-1]["until"] is None
    for entry in ranges:
        known = coefficients_of(entry)
        amounts = [getattr(known, name) for name in field_names(Coefficients)[3:]]
        flat = [one for amount in amounts for one in (amount if isinstance(amount, tuple) else (amount,))]
        numbers = [one for pair in flat for one in (pair if isinstance(pair, tuple) else (pair,))]
        assert all(isinstance(number, int) and number >= 0 for number in numbers)
        assert list(known.non_torch_by_tp) == sorted(known.non_torch_by_tp)


def test_the_file_is_what_the_fit_writes() -> None:
    questions = usable(read_rows(*REPORTS)[0])
    assert file_text(fit(questions), len(questions)) == FILE.read_text(encoding="utf-8")


def test_each_half_predicts_the_other() -> None:
    """Activations of models that the fit has not seen, within a tenth of a GiB."""
    from scripts.fit_budget import errors, halves

    questions = usable(read_rows(*REPORTS)[0])
    first, second = halves(questions)
    assert not {q.row.model.id for q in first} & {q.row.model.id for q in second}
    for train, test in ((first, second), (second, first)):
        found = errors(test, fit(train))
        assert max(found.activation) < 0.1 * 2**30
    assert len(report(questions)) == 5
