"""What fits: held against the plain definition, length by length."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.deployment.counts import (
    MAX_REQUESTS,
    Verdict,
    ask,
    compare,
    kv_dtypes_to_compare,
    ladder,
    largest_tokens,
    max_requests,
    powers_of_two,
    verdict,
)
from kvplan.deployment.fixes import suggested_fixes
from kvplan.engines import choose_engine
from kvplan.engines.base import Choice
from kvplan.engines.options import EngineOption
from kvplan.errors import KvplanError
from kvplan.families import (
    CompressedAttention,
    FullAttention,
    Mamba2,
    MultiHeadLatentAttention,
    NoCache,
    Part,
    SlidingWindow,
)
from kvplan.model import Layer, Model, runs_of
from kvplan.results import Refusal, SizeResult
from kvplan.settings import Settings

GENERIC = choose_engine("generic")
LAYERS: dict[str, Part] = {
    "full": FullAttention(2, 8),
    "window": SlidingWindow(2, 8, 50),
    "state": Mamba2(4, 8, 16, 1, 4),
    "compressed": CompressedAttention(64, 16, compress_rate=4, overlapping=True, index_head_dim=16),
    "compressed_wide": CompressedAttention(64, 16, compress_rate=32),
    "nothing": NoCache(),
}


def _model(*kinds: str, max_model_len: int = 400) -> Model:
    layers = [Layer((LAYERS[kind],)) for kind in kinds]
    return Model("tiny", "test", "test", None, runs_of(layers), "bfloat16", max_model_len)


def _peak(model: Model, asked: Settings) -> int:
    return ask(model, GENERIC, asked).per_gpu.peak_bytes


@given(
    kinds=st.lists(st.sampled_from([kind for kind in LAYERS if kind != "nothing"]), min_size=1, max_size=4),
    memory=st.integers(0, 400_000),
    requests=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_largest_tokens_is_the_last_length_that_fits(kinds: list[str], memory: int, requests: int) -> None:
    model = _model(*kinds)
    asked = Settings(kv_cache_memory=memory, requests=requests)
    fitting = [tokens for tokens in range(1, 401) if _peak(model, replace(asked, tokens=tokens)) <= memory]
    assert largest_tokens(model, GENERIC, asked) == max(fitting, default=0)


@given(tokens=st.integers(1, 400), memory=st.integers(0, 10_000_000))
@settings(max_examples=60, deadline=None)
def test_max_requests_is_the_last_number_that_fits(tokens: int, memory: int) -> None:
    model = _model("full", "window", "state")
    asked = Settings(kv_cache_memory=memory, tokens=tokens)
    most = max_requests(model, GENERIC, asked)
    assert most * _peak(model, asked) <= memory < (most + 1) * _peak(model, asked)


def test_what_takes_nothing_fits_without_end() -> None:
    assert max_requests(_model("nothing"), GENERIC, Settings(kv_cache_memory=1)) == MAX_REQUESTS


def test_memory_must_be_given() -> None:
    with pytest.raises(KvplanError, match="memory"):
        max_requests(_model("full"), GENERIC, Settings())


@dataclass
class Picky:
    """An engine that starts only where one request of max_model_len fits at 128 bytes a token."""

    name: str = "picky"
    versions: tuple[str, ...] = ("1",)
    options: tuple[EngineOption, ...] = ()

    def size(self, model: Model, asked: Settings, version: str) -> SizeResult:
        result = GENERIC.engine.size(model, asked, version)
        longest = asked.max_model_len or model.max_model_len or 0
        most = (asked.kv_cache_memory or 0) // 128
        refusal = Refusal("does-not-fit", "one request does not fit", most) if longest > most else None
        return replace(result, refusal=refusal)


def test_a_ladder_starts_with_the_length_that_the_engine_takes() -> None:
    picky = Choice(Picky(), "1")
    found = ladder(_model("full"), picky, Settings(kv_cache_memory=128 * 100), lengths=(10, 50, 100, 200))
    assert found.max_model_len == 100
    assert [(rung.tokens, rung.max_requests) for rung in found.rungs] == [(10, 20), (50, 4), (100, 2)]
    assert found.longest == ((1, 100), (4, 50), (16, 12))


def test_a_ladder_with_the_length_given_is_refused_as_it_is() -> None:
    picky = Choice(Picky(), "1")
    found = ladder(_model("full"), picky, Settings(kv_cache_memory=12_800, max_model_len=400))
    assert (found.rungs, found.longest) == ((), ())
    assert found.result.refusal is not None


def test_a_ladder_agrees_with_the_single_answers() -> None:
    model, asked = _model("full", "window", max_model_len=8192), Settings(kv_cache_memory=10_000_000)
    found = ladder(model, GENERIC, asked)
    assert [rung.tokens for rung in found.rungs] == [1024, 2048, 4096, 8192]
    for rung in found.rungs:
        assert rung.max_requests == max_requests(model, GENERIC, replace(asked, tokens=rung.tokens))
    for number, tokens in found.longest:
        assert tokens == largest_tokens(model, GENERIC, replace(asked, requests=number))


def test_powers_of_two_end_with_the_length_itself() -> None:
    assert list(powers_of_two(1024, 5000)) == [1024, 2048, 4096, 5000]
    assert list(powers_of_two(1024, 448)) == [448]


def test_a_verdict_needs_memory_or_a_refusal() -> None:
    model = _model("full")
    plain = ask(model, GENERIC, Settings())
    assert verdict(model, GENERIC, Settings(), plain) is None
    refused = replace(plain, refusal=Refusal("x", "y"))
    assert verdict(model, GENERIC, Settings(), refused) == Verdict(False, 0, False)


def test_a_comparison_keeps_or_raises_errors() -> None:
    model, good, bad = _model("full"), Settings(), Settings(kv_cache_dtype="fp9")
    rows = compare([model], [GENERIC], [good, bad], keep_errors=True)
    assert [row.error is None for row in rows] == [True, False]
    with pytest.raises(KvplanError, match="fp9"):
        compare([model], [GENERIC], [good, bad], keep_errors=False)
    with pytest.raises(KvplanError, match="fp9"):
        compare([model], [GENERIC], [bad], keep_errors=True)


def test_records_of_a_latent_are_compared_only_where_there_is_one() -> None:
    mla = Model("m", "t", "t", None, runs_of([Layer((MultiHeadLatentAttention(512, 64),))]), None, 10)
    assert "fp8_ds_mla" in kv_dtypes_to_compare(mla)
    assert "fp8_ds_mla" not in kv_dtypes_to_compare(_model("full"))


@given(memory=st.integers(0, 200_000), requests=st.integers(1, 6), tokens=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_every_way_out_is_one(memory: int, requests: int, tokens: int) -> None:
    model = _model("full", "window")
    asked = Settings(kv_cache_memory=memory, requests=requests, tokens=tokens)
    result = ask(model, GENERIC, asked)
    ways = suggested_fixes(model, GENERIC, asked, result)
    tried = [
        replace(asked, tokens=ways.tokens) if ways.tokens else None,
        replace(asked, requests=ways.requests) if ways.requests else None,
        replace(asked, kv_cache_memory=ways.memory) if ways.memory else None,
        replace(asked, kv_cache_dtype=ways.kv_cache_dtype) if ways.kv_cache_dtype else None,
    ]
    for changed in tried:
        if changed is not None:
            found = verdict(model, GENERIC, changed, ask(model, GENERIC, changed))
            assert found is not None
            assert found.fits
