"""Pools that real servers printed."""

from __future__ import annotations

from statistics import median

import pytest

from kvplan.units import GIB
from scripts import accuracy
from scripts.cold_warm import cold_warm_lines
from scripts.field_rows import read_rows
from scripts.judged import CLOSE, NEAR, Judged, is_calibrated, is_late, judged, safe, share
from scripts.served_rows import served
from tests.recorded import DATA

REPORTS = tuple(
    DATA / name
    for name in ("field_reports.json.gz", "start_ups.json.gz", "more_start_ups.yaml", "measured.yaml")
)

HELD_OUT = DATA / "held_out.yaml"


@pytest.fixture(scope="module")
def answers() -> list[Judged]:
    rows, left = read_rows(*REPORTS)
    return judged(rows, left)


def test_releases_whose_logs_print_every_term(answers: list[Judged]) -> None:
    """All within 2 %, and in the interval."""
    inner = [entry for entry in answers if is_calibrated(entry.row)]
    assert len(inner) >= 16
    assert max(abs(entry.error) for entry in inner) <= 2
    assert all(entry.inside for entry in inner)
    assert median(entry.half_width for entry in inner) <= 0.45


def test_later_releases(answers: list[Judged]) -> None:
    """What is asked of rows with known weights: 75 % within 2 %, 92 % within 5 % and in an interval that says
    something."""
    late = [entry for entry in answers if is_late(entry.row)]
    late = [
        entry for entry in late if entry.row.raw["weights_gib"] or entry.row.raw["weight_quant"] == "none"
    ]
    assert len(late) >= 60
    assert share(late, lambda entry: abs(entry.error) <= NEAR) >= 0.75
    assert share(late, lambda entry: abs(entry.error) <= CLOSE) >= 0.92
    assert share(late, lambda entry: entry.inside) >= 0.92
    separate = [entry for entry in late if "unified" not in entry.place]
    assert median(entry.half_width for entry in separate) <= 1.2  # memory shared with the CPU is noisy
    dense = [entry for entry in separate if entry.kind.startswith("dense") and entry.place.startswith("one")]
    assert len(dense) >= 25
    assert median(entry.half_width for entry in dense) <= 0.5


BELOW_SAFE = {
    "lebh-q35-08b-a100",  # this and the next: 2.5 GiB stay beside the weights, of Qwen3.8-27B there 0.5
    "lebh-q35-08b-a100-serve",
    "compose-q36-35b-nvidia-gb10-mtp2-marlin-2",  # by 0.03 GiB; its twin printed 1.6 GiB more
    "aither-q38-27b-fp8-2xquadro6000",  # images on GPUs without FlashAttention: 2.5 GiB more, not explained
    "fentz26-q38-27b-fp8-2x5090-0271",  # its graphs are estimated at 3.5 GiB, of like starts at 1.1
    "akbun-q25-3b-5060ti-085",  # this and the next: a desktop's card keeps 0.5 GiB more
    "akbun-q25-3b-5060ti-090",
    "t1m-q38-27b-awq-strixhalo",  # this and the next: no start of such GPUs was fitted
    "t1m-q3-4b-strixhalo",
}


OUTSIDE = {
    "modal-q38-27b-int4-a100-40",  # --enable-sleep-mode, with weights whose format is not told
    "dread-dgemma-26b-fp8-h100",  # its max_num_seqs is not told: with the other start's 256 inside
    "issei-q25-7b-a40-pp2",  # by 0.07 GiB: this and the next keep nothing beside their lines
    "shani-q3-06b-2080ti-eager",  # by 0.01 GiB
    "shani-q3-06b-2080ti-eager-int8kv",
    "tiara-l31-8b-3090-warm",  # by 0.01 GiB: its card shows 0.1 GiB more than most of its kind
    "spp-otg15-7b-gb10",  # by 0.09 GiB: memory shared with the CPU
    "colab-g4-26b-awq-mtp3-a100",  # these two ran a patch of attention, not read for its memory
    "colab-g4-31b-qat-mtp3-a100",
    "agents-q36-35b-fp8-gb10",  # more than the share that was asked for: the page cache gave back meanwhile
}
"""Whose printed pool lies outside, beside those below the safe figure: the causes are open."""


def test_rows_that_no_constant_has_seen(answers: list[Judged]) -> None:
    """All but these in the interval; with the fitted ones at most 1.5 GiB wide."""
    rows, left = read_rows(HELD_OUT)
    assert (len(rows), left) == (527, {})
    assert not {row.id for row in rows} & {entry.row.id for entry in answers}
    held = judged(rows, left)
    below = {e.row.id for e in held if e.printed < e.budget.kv_pool_low_bytes - GIB // 200}
    outside = {entry.row.id for entry in held if not entry.inside}
    assert below <= outside <= BELOW_SAFE | OUTSIDE
    assert len(below) <= 0.05 * len(held)
    assert median(entry.half_width for entry in held) <= 1.2
    late = [entry for entry in answers if is_late(entry.row)]
    assert median(entry.half_width for entry in (*late, *held)) <= 1.3
    assert accuracy.first_told(held).startswith("then ")


def test_sglang_with_the_weights_of_the_log() -> None:
    """What is asked of them: 90 % inside, half-widths of 0.8 GiB a GPU."""
    rows, held = (served("sglang", *paths) for paths in (REPORTS, (HELD_OUT,)))
    assert (len(rows), len(held)) >= (6, 10)
    both = [*rows, *held]
    assert sum(row.inside for row in both) >= 0.9 * len(both)
    assert max(row.half_width for row in both) <= 0.8
    assert max(abs(row.error) for row in rows) <= 0.5


def test_a_cold_start_is_the_likelier_guess() -> None:
    """Told nothing, the budget takes a start for cold: the page counts what either guess would cost."""
    rows = [row for path in (*REPORTS, HELD_OUT) for row in read_rows(path)[0] if is_late(row)]
    shown = [row.raw["compile_cache"] for row in rows if row.raw.get("compile_cache") in ("cold", "warm")]
    text = "\n".join(cold_warm_lines(rows))
    assert shown.count("cold") > 2 * shown.count("warm")
    assert f"Of {len(shown)} starts" in text
    assert f"{shown.count('cold')} compiled" in text


def test_only_own_starts_are_called_measured(answers: list[Judged]) -> None:
    late = [entry for entry in answers if is_late(entry.row)]
    own = {entry.row.id for entry in late if entry.row.source == accuracy.MEASURED}
    assert len(own) >= 8
    assert own == {entry.row.id for entry in late if entry.row.id.startswith("h200-033")}


def test_the_safe_figure_is_safe(answers: list[Judged]) -> None:
    """At most 5 % of the starts print less."""
    assert share(answers, lambda entry: entry.printed < safe(entry)) <= 0.05


def test_a_start_that_is_known_to_be_cold_or_warm_has_a_narrow_interval() -> None:
    """Dense text on one card with memory of its own, told what the log shows of the compile cache."""
    rows, _ = read_rows(*REPORTS)
    told = [
        entry
        for entry in judged(rows, {}, told=True)
        if is_late(entry.row) and entry.kind == "dense" and entry.place.startswith("one")
    ]
    told = [entry for entry in told if "unified" not in entry.place]
    assert len(told) >= 5
    assert median(entry.half_width for entry in told) <= 0.5


def test_weights(answers: list[Judged]) -> None:
    """Within 0.5 % of what the log printed, tables of rotary angles included."""
    for entry in answers:
        printed = entry.row.printed("weights_gib")
        if printed is None or not is_calibrated(entry.row):
            continue
        amount = sum(line.bytes for line in entry.budget.lines if line.name in ("weights", "rotary tables"))
        assert abs(amount - printed) <= printed * 0.005 + GIB // 100, entry.row.id


def test_the_documents_are_not_stale() -> None:
    for path, text in accuracy.documents(*REPORTS, held_out=HELD_OUT).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale: make accuracy"
