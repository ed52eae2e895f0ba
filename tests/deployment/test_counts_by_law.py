"""What fits: held against the plain definition, length by length."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.deployment.counts import (
    MAX_REQUESTS,
    ask,
    kv_dtypes_to_compare,
    largest_tokens,
    max_requests,
)
from kvplan.engines import choose_engine
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


def test_records_of_a_latent_are_compared_only_where_there_is_one() -> None:
    mla = Model("m", "t", "t", None, runs_of([Layer((MultiHeadLatentAttention(512, 64),))]), None, 10)
    assert "fp8_ds_mla" in kv_dtypes_to_compare(mla)
    assert "fp8_ds_mla" not in kv_dtypes_to_compare(_model("full"))
