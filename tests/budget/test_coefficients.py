"""The coefficient file: strict, without gaps, and chosen by release, runner and board."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan import size
from kvplan.engines.vllm.memory import coefficients as boards
from kvplan.engines.vllm.memory.coefficients import FILE, parts, vllm_coefficients
from kvplan.engines.vllm.memory.profile_peak import H100_MULTIPROCESSORS
from kvplan.engines.vllm.memory.profile_run import Coefficients
from kvplan.engines.vllm.start.runner import V1, V2
from kvplan.files.gpus.find import load_gpu
from kvplan.record import field_names
from kvplan.units import GIB, MIB
from scripts.field_rows import Row, read_rows
from scripts.fit_budget import file_text, fit, report
from scripts.fitting.early import errors, fit_early, halves, usable
from scripts.fitting.late_rows import APART
from tests.recorded import DATA

REPORTS = tuple(
    DATA / name
    for name in ("field_reports.json.gz", "start_ups.json.gz", "more_start_ups.yaml", "measured.yaml")
)
BOARDS = (
    *(boards.NVSWITCH, boards.BLACKWELL, boards.RACK),
    *(boards.PCIE, boards.OLDER, boards.GEFORCE, boards.UNIFIED, boards.OTHER),
)
FUSED, SORTED, COUNTED = 14_252, 38_250, 14_000


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read_rows(*REPORTS)[0]


@pytest.mark.parametrize(
    ("version", "runner", "amount"),
    [
        ((0, 1), V1, SORTED),
        ((0, 10, 2), V1, SORTED),
        ((0, 11), V1, FUSED),
        ((0, 11, 1), V1, SORTED),
        ((0, 16, 3), V1, SORTED),
        ((0, 17), V1, FUSED),
        ((0, 20), V1, COUNTED),
        ((9, 9), V1, COUNTED),
        ((0, 22), V2, 6_000),
        ((0, 25, 1), V2, 6_000),
        ((0, 26), V2, 2_000),
        ((0, 27, 1), V2, 2_000),
        ((0, 28), V2, 2_000),
        ((0, 32), V2, 2_000),
        ((0, 33), V2, COUNTED),
    ],
)
def test_bytes_of_a_logit_by_release_and_runner(version: tuple[int, ...], runner: str, amount: int) -> None:
    assert vllm_coefficients(version, runner).logit_millibytes == amount


def test_graphs_are_estimated_from_0_20_and_by_the_second_runner_from_0_29() -> None:
    inside = {
        (release, runner): bool(vllm_coefficients(parts(release), runner).graph_layer_bytes)
        for release in ("0.19", "0.20", "0.28", "0.29")
        for runner in (V1, V2)
    }
    assert inside == {
        ("0.19", V1): False,
        ("0.19", V2): False,
        ("0.20", V1): True,
        ("0.20", V2): False,
        ("0.28", V1): True,
        ("0.28", V2): False,
        ("0.29", V1): True,
        ("0.29", V2): True,
    }


def test_boards_differ_where_ranks_talk() -> None:
    """A rack's buffers are larger than a board's, and one GPU's are less than several GPUs'."""
    amounts = {board: dict(vllm_coefficients((0, 24), V1, board).non_torch_by_ranks) for board in BOARDS}
    assert amounts[boards.RACK][2] > amounts[boards.NVSWITCH][2]
    assert all(each[1] <= each[2] for each in amounts.values())
    assert not vllm_coefficients((0, 24), V1, boards.OTHER).calibrated
    assert not vllm_coefficients((0, 9), V1).calibrated


@pytest.mark.parametrize(
    ("gpu", "board"),
    [
        ("t4-16gb", boards.OLDER),
        ("titan-rtx-24gb", boards.OLDER),
        ("v100-pcie-32gb", boards.OLDER),
        ("rtx-2080-ti-11gb", boards.GEFORCE),
        ("l40s-48gb", boards.PCIE),
        ("rtx-pro-6000-blackwell-96gb", boards.PCIE),
        ("v100-sxm2-32gb", boards.NVSWITCH),
        ("mi300x-192gb", boards.OTHER),
    ],
)
def test_the_board_of_a_card(gpu: str, board: str) -> None:
    assert boards.board_of(load_gpu(gpu)) == board


def test_two_cards_before_ampere_keep_what_two_t4_kept() -> None:
    """One start (exact-q3-8b-2xt4): a T4 has 40 multiprocessors, and small workspaces of cuBLAS."""
    older, newer = (vllm_coefficients((0, 22), V2, board) for board in (boards.OLDER, boards.PCIE))
    alone, two = (dict(older.non_torch_by_ranks)[ways] for ways in (1, 2))
    assert alone == dict(newer.non_torch_by_ranks)[1]
    fewer = older.multiprocessor_bytes * (H100_MULTIPROCESSORS - 40)
    assert two - fewer == pytest.approx(0.28 * GIB, rel=0.05)


@pytest.mark.parametrize("board", [boards.NVSWITCH, boards.PCIE, boards.OLDER, boards.GEFORCE])
def test_two_ranks_keep_what_one_does_since_0_27(board: str) -> None:
    for release in ((0, 27), (0, 33)):
        kept = dict(vllm_coefficients(release, V2, board).non_torch_by_ranks)
        assert set(kept) == {1, 4}
        assert kept[1] <= kept[4] < 0.7 * GIB


def test_the_second_runner_keeps_on_a_card_what_it_keeps_on_a_board() -> None:
    """Before 0.27, whose figure is another: up to 0.03 GiB more, and less than under the first runner, whose
    high end it has."""
    for board in (boards.PCIE, boards.OLDER, boards.GEFORCE):
        first, second = (vllm_coefficients((0, 26), runner, board) for runner in (V1, V2))
        there = vllm_coefficients((0, 26), V2, boards.NVSWITCH)
        alone = [dict(one.non_torch_by_ranks)[1] for one in (first, second, there)]
        assert alone[1] < alone[0]
        assert 0 <= alone[1] - alone[2] < 32 * MIB
        assert alone[1] + second.one_high >= alone[0] + first.one_high - 16 * MIB
        # Since 0.27 the sampler's tables are a line of their own; cards keep as much as before.
        later = [
            dict(vllm_coefficients((0, 27), V2, one).non_torch_by_ranks)[1]
            for one in (board, boards.NVSWITCH)
        ]
        assert abs(later[0] - alone[1]) < 16 * MIB
        assert later[0] <= later[1] < later[0] + 48 * MIB


def test_vendors_that_were_not_read_have_wide_intervals() -> None:
    for release in ((0, 20), (0, 26), (0, 29), (0, 33)):
        for runner in (V1, V2):
            other, known = (
                vllm_coefficients(release, runner, board) for board in (boards.OTHER, boards.NVSWITCH)
            )
            assert other.one_high > 4 * known.one_high
            assert other.graph_margin > known.graph_margin


def test_every_release_has_every_number() -> None:
    """Whole numbers, none below zero but a mark of releases that benchmark no kernels; later rows hold."""
    for release in range(1, 60):
        for runner in (V1, V2):
            for board in BOARDS:
                known = vllm_coefficients((0, release), runner, board)
                for name in field_names(Coefficients):
                    value = getattr(known, name)
                    pairs = value if isinstance(value, tuple) else ((value,),)
                    flat = [one for pair in pairs for one in pair if not isinstance(one, str)]
                    assert all(number >= (-1 if name == "compile_copies_milli" else 0) for number in flat)
                ranks = [ways for ways, _ in known.non_torch_by_ranks]
                assert ranks == sorted(ranks)
                assert ranks[0] == 1


def test_the_rows_of_a_line_follow_each_other() -> None:
    for rows in json.loads(FILE.read_text(encoding="utf-8"))["lines"].values():
        for runner in (V1, V2):
            for board in BOARDS:
                mine = [
                    parts(row["since"])
                    for row in rows
                    if row.get("runner", runner) == runner and row.get("board", board) == board
                ]
                assert mine == sorted(mine)
        assert all(row["source"] for row in rows)


def test_the_file_is_what_the_fit_writes(rows: list[Row]) -> None:
    assert file_text(*fit(rows)) == FILE.read_text(encoding="utf-8")


def test_a_coefficient_is_born_before_the_file_knows_it(
    rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it in the file, what is declared beside the field counts, and the fit writes the file whole."""
    name, whole = "graph_layer_bytes", FILE.read_text(encoding="utf-8")
    raw = json.loads(whole)
    for line in raw["lines"].values():
        for row in line:
            row.pop(name, None)
    (tmp_path / "budget.json").write_text(json.dumps(raw), encoding="utf-8")
    monkeypatch.setattr(boards, "FILE", tmp_path / "budget.json")
    kept = (boards.lines, boards.vllm_coefficients)
    for one in kept:
        one.cache_clear()
    try:
        assert vllm_coefficients((0, 32), V1).graph_layer_bytes == 0
        plain = size("qwen3-8b", engine="vllm", gpu="h100", tokens=8192)
        assert plain.budget is not None
        assert name in file_text(*fit(rows))
    finally:
        for one in kept:
            one.cache_clear()


def test_each_half_predicts_the_other(rows: list[Row]) -> None:
    """Activations of models that the fit has not seen, within a tenth of a GiB."""
    questions = usable(rows)
    first, second = halves(questions)
    assert not {q.row.model.id for q in first} & {q.row.model.id for q in second}
    for train, test in ((first, second), (second, first)):
        found = errors(test, fit_early(train))
        assert max(found.activation) < 0.1 * 2**30


def test_every_family_is_predicted_by_the_others(rows: list[Row]) -> None:
    lines = report(rows)
    assert len([line for line in lines if line.startswith("without ")]) >= 6


def test_every_row_that_stands_apart_is_a_row(rows: list[Row]) -> None:
    assert set(APART) <= {row.id for row in rows}
    assert all(APART.values())
