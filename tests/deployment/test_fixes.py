"""Changes that are offered: each holds the load, and is the least of its kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.api import make_settings
from kvplan.api.options import changed_settings
from kvplan.deployment.answer import Answer, answer
from kvplan.deployment.counts import ask, largest_tokens, max_requests
from kvplan.deployment.fixes import Fix, least_trials, suggested_fixes
from kvplan.deployment.question import Question
from kvplan.engines import choose_engine
from kvplan.engines.base import Choice
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.families import SlidingWindow
from kvplan.model import Model
from kvplan.results import Verdict
from kvplan.settings import Settings
from kvplan.units import MIB
from tests.deployment.by_hand import FULL, GENERIC, LLAMA, LLAMA_BLOCK, SHORT, answered, model


def offered(fixes: Iterable[Fix], flag: str) -> str | None:
    """The value with which a change of this flag alone is offered."""
    found = [fix.options.split()[1] for fix in fixes if fix.options.split()[0] == f"--{flag}"]
    assert len(found) <= 1
    return found[0] if found else None


def memory_of(found: Answer) -> int | None:
    """Bytes of the memory that is offered."""
    value = offered(suggested_fixes(found), "kv-cache-memory")
    if value is None:
        return None
    assert value.endswith("MiB")
    return int(value.removesuffix("MiB")) * MIB


def _holds(asked_of: Model, choice: Choice, asked: Settings) -> bool:
    return max_requests(asked_of, choice, asked) >= asked.requests


def test_a_fix_in_words() -> None:
    assert Fix("--requests 3", "as many fit").words == "--requests 3: as many fit"


# ----------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("requests", [1, 3, 50])
def test_the_memory_of_a_fix_is_the_least_in_whole_mebibytes(requests: int) -> None:
    found = answered(Settings(kv_cache_memory=1, requests=requests, tokens=4000))
    assert memory_of(found) == -(-requests * 4000 * 64 // MIB) * MIB


@pytest.mark.parametrize(("requests", "tokens"), [(1, 100), (3, 5000), (40, 1000), (200, 8000)])
def test_the_memory_of_a_fix_of_vllm(requests: int, tokens: int) -> None:
    """Every block of the requests and the block that no request gets, in whole mebibytes; of 200 whose
    prompts are read one after the other a little less, since the first are done before the last."""
    llama, choice = kvplan.load_model(LLAMA), choose_engine("vllm@0.32")
    asked = make_settings(kv_cache_memory="1MiB", requests=requests, tokens=tokens, max_num_seqs=512)
    memory = memory_of(answered(asked, llama, choice))
    blocks = requests * -(-tokens // 16) + 1
    assert memory is not None
    every = -(-blocks * LLAMA_BLOCK // MIB) * MIB
    assert memory == every if requests < 200 else every * 98 // 100 < memory < every
    started = replace(asked, max_model_len=tokens)
    assert _holds(llama, choice, replace(started, kv_cache_memory=memory))
    assert not _holds(llama, choice, replace(started, kv_cache_memory=memory - MIB))


@pytest.mark.parametrize(("card", "tokens"), [("gemma-3-27b", 9000), ("qwen3-next-80b-a3b", 5000)])
@pytest.mark.parametrize("requests", [2, 7])
def test_the_least_memory_where_a_prompt_takes_more_than_it_keeps(
    card: str, tokens: int, requests: int
) -> None:
    """To the block: the amount that is said holds the requests, and a block less does not."""
    windowed, choice = kvplan.load_model(card), choose_engine("vllm@0.32")
    asked = make_settings(kv_cache_memory="1MiB", requests=requests, tokens=tokens, max_model_len=tokens)
    memory = memory_of(answered(asked, windowed, choice))
    assert memory is not None
    result = ask(windowed, choice, replace(asked, kv_cache_memory=memory))
    assert result.pool is not None
    assert result.pool.running_blocks is not None
    block = result.pool.bytes_per_block
    assert block > MIB
    least = next(
        blocks
        for blocks in range(1, 10**6)
        if _holds(windowed, choice, replace(asked, kv_cache_memory=blocks * block))
    )
    assert memory == -(-least * block // MIB) * MIB


def test_no_memory_is_a_fix_of_what_memory_does_not_bound() -> None:
    """max_num_seqs is the bound: more memory is not offered, and more sequences are."""
    llama, choice = kvplan.load_model(LLAMA), choose_engine("vllm@0.32")
    asked = make_settings(kv_cache_memory="64MiB", requests=9, tokens=100, max_num_seqs=8)
    ways = suggested_fixes(answered(asked, llama, choice))
    assert [way.options for way in ways] == ["--max-num-seqs 9", "--requests 8"]
    assert "memory is not the limit" in ways[0].why


def test_more_sequences_are_no_fix_where_memory_is_the_bound_too() -> None:
    """A request of 100 tokens has 7 blocks: 64 MiB have 1,024, the null block among them, for 146."""
    assert LLAMA_BLOCK == 64 * 1024
    llama, choice = kvplan.load_model(LLAMA), choose_engine("vllm@0.32")
    asked = make_settings(kv_cache_memory="64MiB", tokens=100, max_num_seqs=8)
    for requests, told in ((146, "146"), (147, None)):
        ways = suggested_fixes(answered(replace(asked, requests=requests), llama, choice))
        assert offered(ways, "max-num-seqs") == told


# --------------------------------------------------------------------------------------- a smaller load


def test_fewer_requests_and_shorter_ones() -> None:
    """6,400 bytes are 100 tokens, 50 of each of two requests."""
    ways = suggested_fixes(answered(Settings(kv_cache_memory=6400, requests=2, tokens=100)))
    assert [(way.options, way.why) for way in ways[:2]] == [
        ("--requests 1", "as many of 100 tokens fit"),
        ("--tokens 50", "the largest length at which 2 requests fit"),
    ]


def test_a_smaller_load_is_of_all_replicas() -> None:
    """Five servers of one GPU: five times the requests of one, and lengths at which a fifth of them fits."""
    qwen, choice = kvplan.load_model("qwen3-8b"), choose("vllm@0.33")
    asked = make_settings(gpu="5xl4", tensor_parallel_size=1, tokens=8192, requests=1000)
    found = answer(Question(qwen, choice, asked))
    ways = suggested_fixes(found)
    one = answer(Question(qwen, choice, replace(asked, gpus=1, requests=1)))
    assert one.likely is not None
    assert offered(ways, "requests") == str(5 * one.likely.each)
    fifth = replace(asked, gpus=1, requests=200, max_model_len=8192)
    assert offered(ways, "tokens") == str(largest_tokens(qwen, choice, fifth))


# ------------------------------------------------------------------------------------------ other formats


def test_half_the_bytes_are_offered_where_they_are_enough() -> None:
    asked = Settings(kv_cache_memory=6400, requests=2, tokens=100)
    assert offered(suggested_fixes(answered(asked)), "kv-cache-dtype") == "fp8"
    assert offered(suggested_fixes(answered(replace(asked, requests=3))), "kv-cache-dtype") is None


def test_a_format_that_the_engine_refuses_is_not_offered() -> None:
    """transformers has no cache in FP8: half the bytes would be enough."""
    llama, choice = kvplan.load_model(LLAMA), choose_engine("transformers")
    asked = Settings(kv_cache_memory=MIB, requests=1, tokens=256)
    assert max_requests(llama, choice, asked) == 1
    asked = replace(asked, requests=2)
    with pytest.raises(KvplanError):
        max_requests(llama, choice, replace(asked, kv_cache_dtype="fp8"))
    assert offered(suggested_fixes(answered(asked, llama, choice)), "kv-cache-dtype") is None


# ---------------------------------------------------------------------------------------- a shorter start


def test_the_length_with_which_the_engine_starts() -> None:
    """An engine that is not started for its requests (`starts_for_length`), at most for 1,000 tokens."""
    asked = Settings(kv_cache_memory=10**6, tokens=100)
    assert offered(suggested_fixes(answered(asked, choice=SHORT)), "max-model-len") == "100"
    for other in (
        replace(asked, tokens=1000),
        replace(asked, tokens=1001),
        replace(asked, max_model_len=2000),
    ):
        ways = suggested_fixes(answered(other, choice=SHORT))
        assert offered(ways, "max-model-len") == ("1000" if other.tokens == 1000 else None)
        assert (offered(ways, "tokens"), offered(ways, "requests")) == (None, None)


def test_the_least_change_of_each_kind() -> None:
    asked = Settings(kv_cache_memory=1, tokens=100)
    found = list(least_trials(model(FULL), SHORT, asked))
    assert [words and words[0] for words in found] == [
        "memory 6400", None, None, "enough alone", "all", "last 6400",
    ]  # fmt: skip
    assert found[4] is not None
    assert found[4][1].kv_cache_memory == 6400
    assert [way.options for way in suggested_fixes(answered(asked, choice=SHORT))] == [
        "memory 6400", "enough alone", "all", "last 6400",
    ]  # fmt: skip
    assert not list(least_trials(model(FULL), GENERIC, asked))


# --------------------------------------------------------------------------------------------- every one


def _read(value: str) -> int | str:
    return int(value) if value.isdigit() else value


@given(memory=st.integers(0, 200_000), requests=st.integers(1, 6), tokens=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_every_way_out_is_one(memory: int, requests: int, tokens: int) -> None:
    asked_of = model(FULL, SlidingWindow(2, 8, 50), longest=400)
    asked = Settings(kv_cache_memory=memory, requests=requests, tokens=tokens)
    for way in suggested_fixes(answered(asked, asked_of)):
        flag, value = way.options.split()
        changed = changed_settings(asked, {flag.removeprefix("--").replace("-", "_"): _read(value)})
        assert answered(changed, asked_of).verdict is Verdict.YES, way
