"""What a figure is worth: confirmed, self-consistent or reported; a verdict says no more than its figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.files.plans.receipts import read_receipt
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.receipt import (
    CLASSES,
    CONFIRMED,
    CONSISTENT,
    FIRST_FORMAT,
    REFUTED,
    REPORTED,
    STOPPED,
    Figure,
    Receipt,
    digest_of,
)
from kvplan.proof.validate.receipts import receipt_of, write_receipt
from kvplan.proof.validate.session import Outcome
from kvplan.report.layout import printable
from kvplan.report.validate import _TITLES, outcome_screen
from tests.proof.test_receipt_files import CPU, H200, NOW, _receipt, _target

TARGET = _target()
NUMBERS = st.integers(0, 10**12)
NAMES = st.sampled_from(["pool_bytes", "pool_reserved_bytes", "num_blocks", "requests", "device_nvml_bytes",
                         "states_wrong", "copy_bytes_per_second", "engine_num_blocks"])  # fmt: skip


@st.composite
def figures(draw: st.DrawFn) -> Figure:
    predicted, measured = draw(NUMBERS), draw(NUMBERS)
    if draw(st.booleans()):
        measured = predicted
    allowed = draw(st.sampled_from([None, 0, 5_000]))
    return Figure(draw(NAMES), "count", predicted, measured, allowed, "stage", 0, draw(st.booleans()))


@given(st.lists(figures(), max_size=12))
def test_confirmed_only_by_figures_of_the_first_class(given_figures: list[Figure]) -> None:
    """The law: the verdict is refuted where one that decides differs, confirmed where one of the first class
    is among those that agree, and else self-consistent; it names those that it stands on."""
    receipt = _receipt(*given_figures)
    wrong = [one for one in given_figures if not one.agrees]
    first = {one.name for one in given_figures if one.evidence == CONFIRMED and one.agrees}
    assert receipt.verdict == (REFUTED if wrong else CONFIRMED if first else CONSISTENT)
    if receipt.verdict == CONFIRMED:
        assert set(receipt.confirmed_by) == first
    assert all(one.evidence in CLASSES for one in given_figures)
    assert all((one.evidence == REPORTED) == (one.allowed_ppm is None) for one in given_figures)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_an_estimate_holds_within_its_interval(a: int, b: int, c: int, measured: int) -> None:
    low, predicted, high = sorted((a, b, c))
    made = Figure("engine_pool_bytes", "bytes", predicted, measured, 0, low=low, high=high)
    assert made.agrees == (low <= measured <= high)
    assert replace(made, low=None, high=None).agrees == (measured == predicted)


def _read_back(receipt: Receipt, path: Path) -> Receipt:
    write_receipt(receipt, path)
    read = read_receipt(path)
    assert read.intact
    return read.receipt


def test_classes_are_written_and_read_back(tmp_path: Path) -> None:
    made = _receipt(
        Figure("pool_reserved_bytes", "bytes", 5, 5, 0, "pool", 0, independent=True),
        Figure("engine_pool_bytes", "bytes", 5, 6, 0, "engine", independent=True, low=4, high=7),
        Figure("num_blocks", "blocks", 5, 5, 0),
        Figure("copy_bytes_per_second", "bytes_per_second", None, 9),
    )
    path = tmp_path / "r.json"
    assert _read_back(made, path) == made
    data = json.loads(path.read_text(encoding="utf-8"))
    assert [one["class"] for one in data["figures"]] == [CONFIRMED, CONFIRMED, CONSISTENT, REPORTED]
    assert data["confirmed_by"] == ["pool_reserved_bytes", "engine_pool_bytes"]
    assert data["kvplan"] == "receipt/v2"


def test_receipts_of_before_are_read_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = replace(_receipt(Figure("num_blocks", "blocks", 5, 5, 0)), verdict=CONFIRMED, format=FIRST_FORMAT)
    path = tmp_path / "r.json"
    read = _read_back(old, path)
    assert (read.verdict, read.confirmed_by, read.has_classes) == (CONFIRMED, (), False)
    assert "class" not in path.read_text(encoding="utf-8")
    assert main(["list", "receipts", str(path)]) == 0
    out = capsys.readouterr().out
    assert "1 confirmed" in out
    assert "confirmed (v1)" in out


@pytest.mark.parametrize(
    "edit",
    [
        {"class": REPORTED},
        {"class": None},
        {"class": CONSISTENT},  # nothing of the first class is left, and the verdict still says confirmed
    ],
)
def test_a_file_whose_classes_cannot_be_is_no_receipt(edit: dict[str, object], tmp_path: Path) -> None:
    data = _receipt(Figure("engine_num_blocks", "blocks", 5, 5, 0, independent=True)).model_dump()
    data["figures"][0].update(edit)
    data["digest"] = digest_of(data)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(KvplanError, match="is not a receipt"):
        read_receipt(path)


ERRORS = st.lists(
    st.builds(
        Finding,
        st.just("bytes-differ"),
        st.sampled_from([Severity.ERROR, Severity.WARNING]),
        st.text("word ", max_size=300),
        detail=st.lists(st.text("word ", max_size=200), max_size=5).map(tuple),
    ),
    max_size=6,
)


@given(
    st.lists(figures(), max_size=40),
    ERRORS,
    st.booleans(),
    st.sampled_from([None, "time", "memory", "fault"]),
)
def test_a_screen_is_short_unless_asked_for(
    made: list[Figure], findings: list[Finding], on_gpu: bool, stopped: str | None
) -> None:
    """At most 25 lines whatever was found."""
    outcome = Outcome(
        TARGET, H200 if on_gpu else CPU, tuple(made), tuple(findings), ("a note",) * 9, (),
        None if stopped is None else "pool", stopped,
    )  # fmt: skip
    receipt = receipt_of(outcome, created=NOW)
    shown = printable_lines(outcome, receipt, whole=False)
    assert len(shown) <= 25, "\n".join(shown)
    assert max(len(row) for row in shown) <= 80
    whole = printable_lines(outcome, receipt, whole=True)
    assert len([row for row in whole if "a note" in row]) == 9
    assert (receipt.verdict == STOPPED) <= (stopped is not None)


def test_the_longest_screen_is_short_too() -> None:
    """Every figure differs, findings and details abound, and a plan asks for a proof."""
    names = [*_TITLES]
    made = tuple(Figure(name, "bytes", 10**12, 10**11, 0, independent=place % 2 == 0)
                 for place, name in enumerate(names))  # fmt: skip
    wrong = Finding("w", Severity.ERROR, "word " * 99, detail=("word " * 99,) * 9)
    for hardware in (CPU, H200):
        target = replace(TARGET, asks_proof=True)
        outcome = Outcome(target, hardware, made, (wrong,) * 9, ("a note",) * 9, ())
        receipt = receipt_of(outcome, created=NOW)
        shown = printable_lines(outcome, receipt, whole=False)
        assert len(shown) <= 25, "\n".join(shown)
        assert f"{len(names) // 2} differ" in "\n".join(shown)


def printable_lines(outcome: Outcome, receipt: Receipt, *, whole: bool) -> list[str]:
    screen = outcome_screen(outcome, receipt, typed="llama-3.1-8b", path="r.json", whole=whole)
    return printable("\n".join("".join(piece.text for piece in row) for row in screen)).splitlines()
