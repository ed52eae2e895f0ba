"""The order of ``kvplan fits``: what people prefer before what is merely larger."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.api.ranking import Score, loses, place, score_of, usable, worth
from kvplan.engines.traits import builds_of
from kvplan.files.arena import FILE, leaderboard
from kvplan.results import DecodeSpeed
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


def _pace(low: float) -> DecodeSpeed:
    return DecodeSpeed(4096, low * 1.4, low, low * 2)


def test_what_answers_at_a_usable_speed_comes_first_wherever_it_lies() -> None:
    """A dense model of 31 billion at 8 tokens/s stands behind experts in host memory at 17."""
    slow, hosted, fast, faster = (
        place(1452, "q4_k_m", 17, False, _pace(8)), place(1351, "mxfp4", 20, True, _pace(17)),
        place(1437, "q6_k", 19, False, _pace(25)), place(1437, "q8_0", 25, False, _pace(90)),
    )  # fmt: skip
    assert sorted((slow, hosted, fast, faster)) == [faster, fast, hosted, slow]
    assert place(1300, "q8_0", 9, False, _pace(10)) < slow
    assert slow < place(1451, "q4_k_m", 17, False, _pace(9.9))


def test_a_model_is_listed_in_the_best_build_that_is_usable() -> None:
    """On 256 GB/s a dense model of 12 billion answers in q8_0, one of 24 in fewer bits, one of 31 in none."""
    cases = (
        ("gemma-3-12b", "q8_0", True), ("mistral-small-3.2-24b", "q4_k_m", True),
        ("gemma-4-31b", "q4_k_m", False), ("gemma-4-26b-a4b", "q8_0", True),
    )  # fmt: skip
    for name, form, fast in cases:
        (row,) = kvplan.fits("strix-halo", models=name).rows
        assert row.format == form, name
        assert row.speed is not None
        assert usable(row.speed, hosted=False) is fast, name
        better = worth(builds_of("llamacpp", kvplan.load_model(name)))
        for more in better[: better.index(form)]:
            found = kvplan.fits("strix-halo", models=name, formats=(more,)).rows
            assert not any(usable(one.speed, hosted=False) and one.safe_requests for one in found), more


@pytest.mark.parametrize(
    ("gpu", "engine"),
    [
        ("rtx-4090", "llamacpp"),
        ("rx-7900-xtx", "llamacpp"),
        ("m4-max", "llamacpp"),
        ("strix-halo", "llamacpp"),
        ("h100", "vllm"),
        ("rtx-6000-ada", "vllm"),
        ("24GiB", "vllm"),
    ],
)
def test_the_engine_is_what_people_run_on_such_a_card(gpu: str, engine: str) -> None:
    assert kvplan.fits(gpu, models="qwen3-0.6b").engine.startswith(f"{engine}@")
    assert kvplan.fits(gpu, models="qwen3-0.6b", formats=("q8_0",)).engine.startswith("llamacpp@")


def test_four_bits_that_likely_hold_are_taken_before_three_that_surely_do() -> None:
    (row,) = kvplan.fits("rtx-3060-12gb", engine="llamacpp", models="qwen3-14b").rows
    assert (row.format, row.safe_requests) == ("q4_k_m", 0)
    assert row.requests >= 1


def test_a_format_that_stays_has_its_name() -> None:
    (row,) = kvplan.fits("rtx-4090", engine="vllm", models="gpt-oss-20b").rows
    assert (row.format, row.stored) == ("as stored", "mxfp4")
