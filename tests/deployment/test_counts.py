"""The bounds of every question, at the last number that fits and one beyond it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.deployment.counts import (
    IN_HOST,
    MAX_REQUESTS,
    Verdict,
    ask,
    compare,
    ladder,
    largest_tokens,
    max_requests,
    memory_of,
    uncounted,
    verdict,
)
from kvplan.deployment.fixes import least_trials, suggested_fixes
from kvplan.engines import choose_engine
from kvplan.engines.base import Choice
from kvplan.engines.budget import choose
from kvplan.engines.options import EngineOption
from kvplan.errors import KvplanError
from kvplan.families import CompressedAttention, FullAttention, Mamba2
from kvplan.model import Layer, Model, runs_of
from kvplan.results import Refusal, SizeResult
from kvplan.settings import Settings
from kvplan.units import MIB

GENERIC = choose_engine("generic")
FULL = FullAttention(2, 8)  # 64 bytes a token
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 512, "dtype": "bfloat16",
    "vocab_size": 1000, "intermediate_size": 1024, "max_position_embeddings": 8192,
}  # fmt: skip


def model(*parts: FullAttention | Mamba2 | CompressedAttention, longest: int = 4096) -> Model:
    layers = [Layer((part,)) for part in parts]
    return Model("tiny", "test", "test", None, runs_of(layers), "bfloat16", longest)


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
        found = verdict(model(FULL), GENERIC, asked, size(asked))
        assert found == Verdict(requests <= most, most)


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
    assert verdict(model(FULL), GENERIC, settings, refused) == Verdict(False, 0, False)


def test_a_cache_in_host_memory_is_not_counted() -> None:
    plain = size(Settings(tokens=10))
    host = replace(plain, settings={**plain.settings, "host_kv_bytes": 640})
    assert uncounted(host)
    assert not uncounted(plain)
    assert not uncounted(replace(host, refusal=Refusal("x", "y")))
    assert verdict(model(FULL), GENERIC, Settings(kv_cache_memory=10**6), host) is None
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
    found = verdict(llama, choice, settings, result)
    assert result.pool is not None
    assert found == Verdict(True, result.pool.max_running)


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


# --------------------------------------------------------------------------------------------- ladders


@pytest.mark.parametrize(
    ("most", "counts"),
    [(1, [1]), (3, [1]), (4, [1, 4]), (16, [1, 4, 16]), (63, [1, 4, 16]), (64, [1, 4, 16, 64])],
)
def test_counts_of_a_ladder(most: int, counts: list[int]) -> None:
    found = ladder(model(FULL), GENERIC, Settings(kv_cache_memory=64 * 1024 * most))
    assert [rung.tokens for rung in found.rungs] == [1024, 2048, 4096]
    assert found.rungs[0].max_requests == most
    assert not any(rung.capped_by_max_num_seqs for rung in found.rungs)
    assert [count for count, _ in found.longest] == counts
    assert found.max_model_len is None


def test_a_ladder_has_eight_counts_at_most() -> None:
    found = ladder(model(FULL), GENERIC, Settings(kv_cache_memory=64 * 1024 * 10**6))
    assert [count for count, _ in found.longest] == [4**power for power in range(8)]


def test_a_ladder_without_lengths_counts_nothing() -> None:
    assert ladder(model(FULL), GENERIC, Settings(kv_cache_memory=10**7), lengths=(9999,)).longest == ()


def test_lengths_beyond_the_model_are_left_out() -> None:
    settings = Settings(kv_cache_memory=10**7)
    found = ladder(model(FULL), GENERIC, settings, lengths=(10, 4096, 4097), counts=(3,))
    assert [rung.tokens for rung in found.rungs] == [10, 4096]
    assert found.longest == ((3, largest_tokens(model(FULL), GENERIC, replace(settings, requests=3))),)


def test_a_rung_says_when_the_scheduler_is_the_bound() -> None:
    asked = make_settings(kv_cache_memory="64MiB", max_num_seqs=4, max_model_len=4096)
    found = ladder(kvplan.load_model(LLAMA), choose_engine("vllm@0.32"), asked, lengths=(64, 4096))
    assert [rung.capped_by_max_num_seqs for rung in found.rungs] == [True, False]
    assert found.rungs[0].max_requests == 4


# --------------------------------------------------------------------------------------- suggested fixes


@pytest.mark.parametrize("requests", [1, 3, 50])
def test_the_memory_of_a_fix_is_the_least_in_whole_mebibytes(requests: int) -> None:
    asked = Settings(kv_cache_memory=1, requests=requests, tokens=4000)
    ways = suggested_fixes(model(FULL), GENERIC, asked, size(asked))
    assert ways.memory == -(-requests * 4000 * 64 // MIB) * MIB


@pytest.mark.parametrize(("requests", "tokens"), [(1, 100), (3, 5000), (40, 1000), (200, 8000)])
def test_the_memory_of_a_fix_of_vllm(requests: int, tokens: int) -> None:
    """Enough, and a block and a mebibyte less is not; never less than start-up wants for one request."""
    llama, choice = kvplan.load_model(LLAMA), choose_engine("vllm@0.32")
    asked = make_settings(kv_cache_memory="1MiB", requests=requests, tokens=tokens, max_num_seqs=512)
    ways = suggested_fixes(llama, choice, asked, ask(llama, choice, asked))
    assert ways.memory is not None
    assert ways.memory % MIB == 0
    enough = replace(asked, kv_cache_memory=ways.memory)
    assert max_requests(llama, choice, enough) >= requests
    block = 16 * 4 * 2 * 4 * 64 * 2
    less = replace(asked, kv_cache_memory=ways.memory - MIB - block)
    assert max_requests(llama, choice, less) < requests


@pytest.mark.parametrize(("card", "tokens"), [("gemma-3-27b", 9000), ("qwen3-next-80b-a3b", 5000)])
@pytest.mark.parametrize("requests", [2, 7])
def test_the_least_memory_where_a_prompt_takes_more_than_it_keeps(
    card: str, tokens: int, requests: int
) -> None:
    """To the block: what is said holds the requests, and a block less does not."""
    windowed, choice = kvplan.load_model(card), choose_engine("vllm@0.32")
    asked = make_settings(kv_cache_memory="1MiB", requests=requests, tokens=tokens, max_model_len=tokens)
    ways = suggested_fixes(windowed, choice, asked, ask(windowed, choice, asked))
    assert ways.memory is not None
    result = ask(windowed, choice, replace(asked, kv_cache_memory=ways.memory))
    assert result.pool is not None
    assert result.pool.running_blocks is not None
    block = result.pool.bytes_per_block
    assert block > MIB
    least = next(
        blocks
        for blocks in range(1, 10**6)
        if _holds(windowed, choice, replace(asked, kv_cache_memory=blocks * block))
    )
    assert ways.memory == -(-least * block // MIB) * MIB


def _holds(asked_of: Model, choice: Choice, asked: Settings) -> bool:
    return max_requests(asked_of, choice, asked) >= asked.requests


def test_no_memory_is_a_fix_of_what_memory_does_not_bound() -> None:
    """max_num_seqs is the bound: more memory is not offered."""
    llama, choice = kvplan.load_model(LLAMA), choose_engine("vllm@0.32")
    asked = make_settings(kv_cache_memory="64MiB", requests=9, tokens=100, max_num_seqs=8)
    ways = suggested_fixes(llama, choice, asked, ask(llama, choice, asked))
    assert (ways.memory, ways.requests, ways.kv_cache_dtype) == (None, 8, None)


def test_half_the_bytes_are_offered_where_they_are_enough() -> None:
    asked = Settings(kv_cache_memory=6400, requests=2, tokens=100)
    assert suggested_fixes(model(FULL), GENERIC, asked, size(asked)).kv_cache_dtype == "fp8"
    asked = replace(asked, requests=3)
    assert suggested_fixes(model(FULL), GENERIC, asked, size(asked)).kv_cache_dtype is None


def test_a_format_that_the_engine_refuses_is_not_offered() -> None:
    """transformers has no cache in FP8: half the bytes would be enough."""
    llama, choice = kvplan.load_model(LLAMA), choose_engine("transformers")
    asked = Settings(kv_cache_memory=MIB, requests=1, tokens=256)
    assert max_requests(llama, choice, asked) == 1
    asked = replace(asked, requests=2)
    with pytest.raises(KvplanError):
        max_requests(llama, choice, replace(asked, kv_cache_dtype="fp8"))
    assert suggested_fixes(llama, choice, asked, ask(llama, choice, asked)).kv_cache_dtype is None


def test_more_gpus_are_the_fewest_that_hold_it() -> None:
    choice, qwen = choose("vllm@0.32"), kvplan.load_model("qwen3-32b")
    most = max_requests(qwen, choice, make_settings(gpu="h100", tokens=16_384, tensor_parallel_size=16))
    two = max_requests(qwen, choice, make_settings(gpu="h100", tokens=16_384, tensor_parallel_size=2))
    for ranks, requests in ((1, two), (1, 60), (2, 60), (2, most)):
        asked = make_settings(gpu="h100", requests=requests, tokens=16_384, tensor_parallel_size=ranks)
        result = ask(qwen, choice, asked)
        ways = suggested_fixes(qwen, choice, asked, result)
        held = {
            wide: max_requests(qwen, choice, replace(asked, tensor_parallel_size=wide)) >= requests
            for wide in (2, 4, 8, 16)
            if wide > ranks
        }
        assert ways.tensor_parallel_size == min(wide for wide, fits in held.items() if fits)
        assert ways.memory is None
        assert ways.tokens is None or largest_tokens(qwen, choice, asked) == ways.tokens


@dataclass
class Short:
    """An engine that starts only where ``max_model_len`` is at most 1,000, and offers three sizes of help."""

    name: str = "short"
    versions: tuple[str, ...] = ("1",)
    options: tuple[EngineOption, ...] = ()

    def size(self, asked_of: Model, asked: Settings, version: str) -> SizeResult:
        result = GENERIC.engine.size(asked_of, asked, version)
        longest = asked.max_model_len or asked_of.max_model_len or 0
        return replace(result, refusal=Refusal("long", "too long", 1000)) if longest > 1000 else result

    def trials(self, asked_of: Model, asked: Settings) -> Iterable[Sequence[tuple[str, Settings]]]:
        own = replace(asked, max_model_len=1000)
        yield [
            (f"memory {count}", replace(own, kv_cache_memory=count)) for count in (1, 6399, 6400, 6401, 10**6)
        ]
        yield []
        yield [("one byte", replace(own, kv_cache_memory=1))]
        yield [("enough alone", replace(own, kv_cache_memory=6400))]
        yield [("all", replace(own, kv_cache_memory=count)) for count in (6400, 6401, 6402)]
        yield [(f"last {count}", replace(own, kv_cache_memory=count)) for count in (1, 2, 6400)]


SHORT = Choice(Short(), "1")


def test_the_length_with_which_the_engine_starts() -> None:
    asked = Settings(kv_cache_memory=10**6, tokens=100)
    refused = ask(model(FULL), SHORT, asked)
    assert suggested_fixes(model(FULL), SHORT, asked, refused).max_model_len == 100
    for other in (
        replace(asked, tokens=1000),
        replace(asked, tokens=1001),
        replace(asked, max_model_len=2000),
    ):
        ways = suggested_fixes(model(FULL), SHORT, other, ask(model(FULL), SHORT, other))
        assert ways.max_model_len == (1000 if other.tokens == 1000 else None)
        assert (ways.tokens, ways.requests) == (None, None)


def test_the_least_change_of_each_kind() -> None:
    asked = Settings(kv_cache_memory=1, tokens=100)
    found = list(least_trials(model(FULL), SHORT, asked))
    assert [words and words[0] for words in found] == [
        "memory 6400", None, None, "enough alone", "all", "last 6400",
    ]  # fmt: skip
    assert found[4] is not None
    assert found[4][1].kv_cache_memory == 6400
    assert suggested_fixes(model(FULL), SHORT, asked, ask(model(FULL), SHORT, asked)).others == (
        "memory 6400", "enough alone", "all", "last 6400",
    )  # fmt: skip
    assert not list(least_trials(model(FULL), GENERIC, asked))


# ------------------------------------------------------------------------------- comparisons and warnings


def test_a_comparison_counts_where_memory_is_known() -> None:
    rows = compare(
        [model(FULL)], [GENERIC], [Settings(), Settings(kv_cache_memory=64 * 4096 * 3)], keep_errors=True
    )
    assert [row.max_requests for row in rows] == [None, 3]


def test_the_choice_of_a_version_is_warned_of_first() -> None:
    warned = replace(GENERIC, warning="an unknown release")
    plain = size(Settings())
    assert ask(model(FULL), warned, Settings()).warnings == ("an unknown release", *plain.warnings)
    assert plain.warnings == GENERIC.engine.size(model(FULL), Settings(), "1").warnings
