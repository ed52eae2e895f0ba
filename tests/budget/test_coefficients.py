"""The coefficient file: strict, without gaps, and chosen by the release that was asked for."""

from __future__ import annotations

import pytest

from kvplan.errors import KvplanError
from kvplan.readers.coefficients import FILE, read_coefficients, vllm_coefficients
from kvplan.readers.yaml.strict import load_yaml
from scripts.field_rows import read_rows
from scripts.fit_budget import RANGES, file_text, fit, report, usable
from tests.recorded import DATA

REPORTS = DATA / "field_reports.json.gz"


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


def test_a_gap_between_ranges_is_an_error() -> None:
    text = FILE.read_text(encoding="utf-8").replace('until: "0.17"', 'until: "0.16"')
    with pytest.raises(KvplanError, match=r"ends at 0\.16, but 0\.17 follows"):
        read_coefficients(load_yaml(text, name="x.yaml"))


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("kvplan: vllm-budget/v1", "kvplan: other/v1", "invalid-coefficients"),
        ("calibrated: false", "calibrated: 1", "invalid-coefficients"),
        ("graph_margin: 0", "graph_margin: -1", "invalid-coefficients"),
        ("graph_margin: 0", "graph_marge: 0", "unknown-key"),
    ],
)
def test_a_broken_file_is_refused(old: str, new: str, code: str) -> None:
    text = FILE.read_text(encoding="utf-8").replace(old, new, 1)
    with pytest.raises(KvplanError) as caught:
        read_coefficients(load_yaml(text, name="x.yaml"))
    assert caught.value.code == code


def test_the_file_is_what_the_fit_writes() -> None:
    questions = usable(read_rows(REPORTS)[0])
    assert file_text(fit(questions), len(questions)) == FILE.read_text(encoding="utf-8")


def test_each_half_predicts_the_other() -> None:
    """Activations of models that the fit has not seen, within a tenth of a GiB."""
    from scripts.fit_budget import errors, halves

    questions = usable(read_rows(REPORTS)[0])
    first, second = halves(questions)
    assert not {q.row.model.id for q in first} & {q.row.model.id for q in second}
    for train, test in ((first, second), (second, first)):
        found = errors(test, fit(train))
        assert max(found.activation) < 0.1 * 2**30
    assert len(report(questions)) == 5
