"""The order of ``kvplan fits``: what people prefer before what is merely larger."""

from __future__ import annotations

import kvplan
from kvplan.api.ranking import Score, loses, place, score_of
from kvplan.files.arena import FILE, leaderboard
from scripts.make_arena import table


def test_the_table_is_that_of_the_leaderboard() -> None:
    assert FILE.read_text(encoding="utf-8") == table(), "python -m scripts.make_arena"
    assert len(leaderboard().rated) > 100


def test_a_model_that_was_not_rated_stands_beside_those_of_its_type() -> None:
    rated = leaderboard().rated
    assert score_of("qwen3-32b", "qwen3", None) == Score(rated["qwen3-32b"].score, True)
    eight = score_of("qwen3-8b", "qwen3", 8_190_735_360)
    assert eight == Score(rated["qwen3-32b"].score - 2 * leaderboard().doubling, False)
    assert score_of("qwen3-0.6b", "qwen3", 751_632_384) is None
    assert score_of("qwen3-embedding-8b", "qwen3", 7_567_295_488) is None
    assert score_of("an-older-one", "no_such_type", 8_000_000_000) is None


def test_few_bits_and_host_memory_come_last() -> None:
    rows = [
        place(1400, "q4_k_m", 20, True), place(None, "q8_0", 9, False), place(1300, "q5_k_m", 9, False),
        place(1400, "q3_k_m", 14, False), place(1400, "q4_k_m", 20, False), place(None, "q8_0", 30, False),
    ]  # fmt: skip
    assert sorted(range(6), key=lambda at: rows[at]) == [4, 2, 5, 1, 3, 0]
    assert loses("ud_iq2_xxs")
    assert not loses("iq4_xs")


def test_four_bits_that_likely_hold_are_taken_before_three_that_surely_do() -> None:
    (row,) = kvplan.fits("rtx-3060-12gb", engine="llamacpp", models="qwen3-14b").rows
    assert (row.format, row.safe_requests) == ("q4_k_m", 0)
    assert row.requests >= 1


def test_a_format_that_stays_has_its_name() -> None:
    (row,) = kvplan.fits("rtx-4090", engine="vllm", models="gpt-oss-20b").rows
    assert (row.format, row.stored) == ("as stored", "mxfp4")
