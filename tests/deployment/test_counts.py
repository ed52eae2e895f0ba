"""Requests that one pool runs, and how long they may be: at the last number that fits and one beyond it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.deployment.counts import (
    IN_HOST,
    MAX_REQUESTS,
    ask,
    largest_tokens,
    max_requests,
    memory_of,
    uncounted,
)
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.families import CompressedAttention
from kvplan.model import Model
from kvplan.results import Capacity, Refusal, SizeResult, Verdict
from kvplan.settings import Settings
from tests.deployment.by_hand import FULL, GENERIC, answered, model


def size(settings: Settings, asked: Model | None = None) -> SizeResult:
    return ask(asked or model(FULL), GENERIC, settings)


# ------------------------------------------------------------------------------- how many, and whether


@pytest.mark.parametrize(
    ("memory", "most"), [(6399, 0), (6400, 1), (12_799, 1), (12_800, 2), (6400 * 77, 77)]
)
def test_so_many_fit_and_not_one_more(memory: int, most: int) -> None:
    settings = Settings(kv_cache_memory=memory, tokens=100)
    assert max_requests(model(FULL), GENERIC, settings) == most
    for requests in (most or 1, most + 1):
        asked = replace(settings, requests=requests)
        found = answered(asked)
        assert found.verdict is (Verdict.YES if requests <= most else Verdict.NO)
        assert found.result.capacity == Capacity(most, most, most, most)


def test_there_is_an_end_to_requests() -> None:
    settings = Settings(kv_cache_memory=64 * (MAX_REQUESTS + 5), tokens=1)
    assert max_requests(model(FULL), GENERIC, settings) == MAX_REQUESTS
    assert max_requests(model(FULL), GENERIC, replace(settings, kv_cache_memory=64 * (MAX_REQUESTS - 5))) == (
        MAX_REQUESTS - 5
    )


def test_requests_that_share_what_is_rounded() -> None:
    """The peak of many is looked at, not that of one times their number: scales of four tokens' worth."""
    asked = Settings(kv_cache_memory=10_000, tokens=3, kv_cache_dtype="nvfp4")
    most = max_requests(model(FULL, FULL), GENERIC, asked)
    peaks = [
        size(replace(asked, requests=count), model(FULL, FULL)).per_gpu.peak_bytes
        for count in (most, most + 1)
    ]
    assert peaks[0] <= 10_000 < peaks[1]


def test_a_refusal_holds_nothing() -> None:
    refused = replace(size(Settings(kv_cache_memory=10**9)), refusal=Refusal("x", "y"))
    settings = Settings(kv_cache_memory=10**9)
    assert max_requests(model(FULL), GENERIC, settings, refused) == 0


def test_a_cache_in_host_memory_is_not_counted() -> None:
    plain = size(Settings(tokens=10))
    host = replace(plain, settings={**plain.settings, "host_kv_bytes": 640})
    assert uncounted(host)
    assert not uncounted(plain)
    assert not uncounted(replace(host, refusal=Refusal("x", "y")))
    with pytest.raises(KvplanError) as caught:
        max_requests(model(FULL), GENERIC, Settings(kv_cache_memory=10**6), host)
    assert caught.value.message == IN_HOST


def test_memory_as_given_or_as_the_gpu_leaves_it() -> None:
    settings = make_settings(gpu="h100", tokens=1000)
    choice = choose("vllm@0.32")
    llama = kvplan.load_model("llama-3.1-8b")
    result = ask(llama, choice, settings)
    assert result.budget is not None
    assert memory_of(settings, result) == result.budget.kv_pool_bytes
    assert memory_of(Settings(kv_cache_memory=5), result) == 5
    assert memory_of(Settings(), size(Settings())) is None
    assert result.pool is not None
    assert max_requests(llama, choice, settings, result) == result.pool.max_running


# --------------------------------------------------------------------------------------------- lengths


@pytest.mark.parametrize(("memory", "longest"), [(63, 0), (64, 1), (6400, 100), (6463, 100), (10**9, 4096)])
def test_so_many_tokens_and_not_one_more(memory: int, longest: int) -> None:
    assert largest_tokens(model(FULL), GENERIC, Settings(kv_cache_memory=memory)) == longest


def test_waiting_tokens_are_looked_at_one_by_one() -> None:
    """Strides of 4 and 6: within a period of 12 the bytes rise and fall."""
    both = model(CompressedAttention(8, 2, 4), CompressedAttention(8, 2, 6), longest=100)
    peaks = [size(Settings(tokens=tokens), both).per_gpu.peak_bytes for tokens in range(1, 101)]
    for memory in sorted({*peaks, *(peak - 1 for peak in peaks)}):
        fitting = [tokens for tokens, peak in enumerate(peaks, 1) if peak <= memory]
        assert largest_tokens(both, GENERIC, Settings(kv_cache_memory=memory)) == max(fitting, default=0)


# -------------------------------------------------------------------------------------------- warnings


def test_the_choice_of_a_version_is_warned_of_first() -> None:
    warned = replace(GENERIC, warning="an unknown release")
    plain = size(Settings())
    assert ask(model(FULL), warned, Settings()).warnings == ("an unknown release", *plain.warnings)
    assert plain.warnings == GENERIC.engine.size(model(FULL), Settings(), "1").warnings
