"""Requests by length and length by requests: one server, and what it holds of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.deployment.answer import Answer, answer
from kvplan.deployment.counts import largest_tokens, max_requests, powers_of_two
from kvplan.deployment.lengths import (
    Ladder,
    by_length,
    ladder,
    longest_of,
    rungs,
    starts_for_all,
    usual_lengths,
)
from kvplan.deployment.question import Question
from kvplan.deployment.rows import side_by_side
from kvplan.engines import choose_engine
from kvplan.engines.base import Choice
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.families import SlidingWindow
from kvplan.model import Model
from kvplan.settings import Settings
from tests.deployment.by_hand import FULL, GENERIC, LLAMA, PICKY, model


def by_lengths(
    settings: Settings,
    lengths: Sequence[int] = (),
    counts: Sequence[int] = (),
    asked: Model | None = None,
    choice: Choice = GENERIC,
) -> Ladder:
    return ladder(Question(asked or model(FULL), choice, settings), lengths, counts)


@pytest.mark.parametrize(
    ("most", "counts"),
    [(1, [1]), (3, [1]), (4, [1, 4]), (16, [1, 4, 16]), (63, [1, 4, 16]), (64, [1, 4, 16, 64])],
)
def test_counts_of_a_ladder(most: int, counts: list[int]) -> None:
    found = by_lengths(Settings(kv_cache_memory=64 * 1024 * most))
    assert [rung.tokens for rung in found.rungs] == [1024, 2048, 4096]
    assert (found.rungs[0].likely, found.rungs[0].safe) == (most, most)
    assert not any(rung.capped for rung in found.rungs)
    assert [count for count, _ in found.longest] == counts
    assert found.max_model_len is None


def test_a_ladder_has_eight_counts_at_most() -> None:
    found = by_lengths(Settings(kv_cache_memory=64 * 1024 * 10**6))
    assert [count for count, _ in found.longest] == [4**power for power in range(8)]


def test_lengths_beyond_the_model_are_left_out() -> None:
    settings = Settings(kv_cache_memory=10**7)
    found = by_lengths(settings, (10, 4096, 4097), (3,))
    assert [rung.tokens for rung in found.rungs] == [10, 4096]
    assert found.longest == ((3, largest_tokens(model(FULL), GENERIC, replace(settings, requests=3))),)


def test_a_ladder_of_nothing_but_longer_ones_says_why() -> None:
    """An engine that takes no request beyond the model's own length."""
    vllm, settings = choose_engine("vllm@0.32"), make_settings(kv_cache_memory="64MiB")
    found = by_lengths(settings, (9999,), asked=kvplan.load_model(LLAMA), choice=vllm)
    assert (found.rungs, found.longest) == ((), ())
    assert found.found.result.refusal is not None
    assert found.found.result.refusal.code == "request-too-long"


def test_a_rung_says_when_the_scheduler_is_the_bound() -> None:
    asked = make_settings(kv_cache_memory="64MiB", max_num_seqs=4, max_model_len=4096)
    found = by_lengths(asked, (64, 4096), asked=kvplan.load_model(LLAMA), choice=choose_engine("vllm@0.32"))
    assert [rung.capped for rung in found.rungs] == [True, False]
    assert found.rungs[0].likely == 4


def test_a_ladder_starts_with_the_length_that_the_engine_takes() -> None:
    found = by_lengths(Settings(kv_cache_memory=128 * 2048), asked=model(FULL, longest=4096), choice=PICKY)
    assert found.max_model_len == 2048
    assert [(rung.tokens, rung.likely) for rung in found.rungs] == [(1024, 4), (2048, 2)]
    assert found.longest == ((1, 2048), (4, 1024))


@pytest.mark.parametrize("lengths", [(), (10, 50)])
def test_a_ladder_with_the_length_given_is_refused_as_it_is(lengths: tuple[int, ...]) -> None:
    settings = Settings(kv_cache_memory=12_800, max_model_len=400)
    found = by_lengths(settings, lengths, asked=model(FULL, longest=400), choice=PICKY)
    assert (found.rungs, found.longest) == ((), ())
    assert found.found.result.refusal is not None


def test_a_ladder_agrees_with_the_single_answers() -> None:
    asked, settings = model(FULL, SlidingWindow(2, 8, 50), longest=8192), Settings(kv_cache_memory=10_000_000)
    found = by_lengths(settings, asked=asked)
    assert [rung.tokens for rung in found.rungs] == [1024, 2048, 4096, 8192]
    for rung in found.rungs:
        assert rung.likely == max_requests(asked, GENERIC, replace(settings, tokens=rung.tokens))
    for number, tokens in found.longest:
        assert tokens == largest_tokens(asked, GENERIC, replace(settings, requests=number))


def test_powers_of_two_end_with_the_length_itself() -> None:
    assert list(powers_of_two(1024, 5000)) == [1024, 2048, 4096, 5000]
    assert list(powers_of_two(1024, 448)) == [448]


def test_replicas_hold_as_often_as_many() -> None:
    """Eight GPUs of one rank are eight servers: the same lengths, eight times as many requests."""
    one, eight = (
        by_lengths(
            make_settings(gpu=gpu, tensor_parallel_size=1),
            (2048, 16_384),
            (8,),
            asked=kvplan.load_model("qwen3-8b"),
            choice=choose("vllm@0.33"),
        )
        for gpu in ("l4", "8xl4")
    )
    assert [rung.likely for rung in eight.rungs] == [8 * rung.likely for rung in one.rungs]
    assert [rung.safe for rung in eight.rungs] == [8 * rung.safe for rung in one.rungs]
    single = by_lengths(
        make_settings(gpu="l4"), (2048, 16_384), (1,), kvplan.load_model("qwen3-8b"), choose("vllm@0.33")
    )
    assert eight.longest == ((8, single.longest[0][1]),)


# ------------------------------------------------------------------------------------ one server, or several


def test_a_server_for_the_longest_or_one_for_each() -> None:
    """Qwen3-8B on an L4 starts for 20,000 tokens and for no 40,000."""
    question = Question(kvplan.load_model("qwen3-8b"), choose("vllm@0.33"), make_settings(gpu="l4"))
    answers, alone = by_length(question, (1000, 20_000))
    assert not alone
    assert {one.deployment.settings.max_model_len for one in answers} == {20_000}
    answers, alone = by_length(question, (1000, 40_000))
    assert alone
    assert [one.deployment.settings.max_model_len for one in answers] == [1000, 40_000]
    assert answers[1].result.refusal is not None
    assert answers[1].likely is None or answers[1].likely.each == 0


def test_a_length_that_was_given_serves_all() -> None:
    settings = make_settings(gpu="l4", max_model_len=40_000)
    question = Question(kvplan.load_model("qwen3-8b"), choose("vllm@0.33"), settings)
    assert starts_for_all(replace(question, lengths=(1000, 40_000)))
    answers, alone = by_length(question, (1000, 30_000))
    assert not alone
    assert all(one.result.refusal is not None for one in answers)


def test_other_lengths_of_the_same_servers() -> None:
    """`rungs` asks the servers that an answer is about, whatever it asked of them."""
    settings = make_settings(gpu="h100", tokens=8192, requests=100)
    found = answer(Question(kvplan.load_model("qwen3-8b"), choose("vllm@0.33"), settings))
    own, shorter = rungs(found, (8192, 1024))
    assert found.result.capacity is not None
    assert (own.likely, own.safe) == (
        found.result.capacity.requests, found.result.capacity.safe_requests,
    )  # fmt: skip
    alone = make_settings(gpu="h100", tokens=1024, max_model_len=8192)
    one = answer(Question(kvplan.load_model("qwen3-8b"), choose("vllm@0.33"), alone)).result.capacity
    assert one is not None
    assert (shorter.likely, shorter.safe) == (one.requests, one.safe_requests)


def test_the_longest_is_of_the_model_and_not_of_the_requests() -> None:
    settings = make_settings(gpu="l4", tokens=1000)
    found = answer(Question(kvplan.load_model("qwen3-8b"), choose("vllm@0.33"), settings))
    longest = longest_of(found)
    assert found.deployment.chosen_length == 1000
    assert longest is not None
    assert longest.own == 40_960
    assert longest.likely is not None
    assert longest.safe is not None
    assert 1000 < longest.safe <= longest.likely < 40_960
    for length, starts in ((longest.likely, True), (longest.likely + 16, False)):
        one = replace(settings, max_model_len=length, tokens=None)
        refusal = answer(Question(found.deployment.model, choose("vllm@0.33"), one)).result.refusal
        assert (refusal is None) is starts
    assert longest.own_bytes == 40_960 * 147_456


# ------------------------------------------------------------------------------------------------- rows


def test_a_comparison_counts_where_memory_is_known() -> None:
    rows = side_by_side(
        [
            Question(model(FULL), GENERIC, Settings()),
            Question(model(FULL), GENERIC, Settings(kv_cache_memory=64 * 4096 * 3)),
        ],
        keep_errors=True,
    )
    assert [row.max_requests for row in rows] == [None, 3]


def test_a_comparison_keeps_or_raises_errors() -> None:
    good, bad = (
        Question(model(FULL), GENERIC, settings) for settings in (Settings(), Settings(kv_cache_dtype="fp9"))
    )
    rows = side_by_side([good, bad], keep_errors=True)
    assert [row.error is None for row in rows] == [True, False]
    with pytest.raises(KvplanError, match="fp9"):
        side_by_side([good, bad], keep_errors=False)
    with pytest.raises(KvplanError, match="fp9"):
        side_by_side([bad], keep_errors=True)


def test_usual_lengths_end_at_what_the_server_is_started_for() -> None:
    vllm, llama = choose_engine("vllm@0.32"), kvplan.load_model("llama-3.1-8b")
    settings = make_settings(kv_cache_memory="64GiB", tokens=1000, max_model_len=131072)
    found = answer(Question(llama, vllm, settings))
    assert usual_lengths(found) == [1000, 4096, 32768, 131072]
    assert usual_lengths(found, steps=True) == [1000, *(1024 << step for step in range(8))]
    short = answer(Question(llama, vllm, replace(settings, max_model_len=5000)))
    assert usual_lengths(short) == [1000, 4096, 5000]


def test_a_ladder_is_of_a_server_for_its_longest_length() -> None:
    found = by_lengths(Settings(kv_cache_memory=10**7), (10, 4096))
    assert found.found.result.request.tokens == 4096


def test_a_question_that_cannot_be_answered_has_no_servers_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its error is said once, by whoever asks the lengths."""

    def refused(question: Question) -> Answer:
        raise KvplanError("no-weights", f"{question.model.id}: nobody lists its tensors")

    monkeypatch.setattr("kvplan.deployment.lengths.answer", refused)
    settings = Settings(kv_cache_memory=10**7)
    assert starts_for_all(Question(model(FULL), choose_engine("vllm@0.32"), settings, lengths=(10, 20)))
