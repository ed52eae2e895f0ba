"""The laws every term obeys, over every family."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.dtypes import BFLOAT16, kv_dtype
from kvplan.engines.transformers.library import library_terms
from kvplan.engines.transformers.versions import rules_of
from kvplan.families import (
    FAMILIES,
    ChunkedAttention,
    CompressedAttention,
    CompressedConvolution,
    CrossAttention,
    FullAttention,
    GatedDeltaNet,
    HiddenMemory,
    KimiDeltaAttention,
    Kind,
    KvConvolution,
    LightningAttention,
    Mamba1,
    Mamba2,
    MultiHeadLatentAttention,
    NgramEmbedding,
    NoCache,
    Part,
    PromptTokens,
    RgLru,
    Rwkv4,
    Rwkv5,
    SharedKv,
    ShortConvolution,
    SlidingWindow,
    SparseIndexer,
    Storage,
    WindowedConvolution,
    XLstm,
    in_window,
    unwindowed,
)
from kvplan.terms import Factor, Grows, Shards, Term
from kvplan.terms import Part as TermPart

EXAMPLES: list[Part] = [
    FullAttention(8, 128),
    FullAttention(4, 192, 128),
    FullAttention(8, 64, broadcast_heads=128),
    SlidingWindow(8, 128, 4096),
    SlidingWindow(8, 128, 1024, sink_tokens=4),
    ChunkedAttention(8, 128, 8192),
    MultiHeadLatentAttention(512, 64, 128, 128, 128),
    MultiHeadLatentAttention(512, 64, sliding_window=512),
    SparseIndexer(128),
    SparseIndexer(128, float32_key=True, position_rows=3),
    CompressedAttention(512, 128, 4, overlapping=True, index_head_dim=128),
    CompressedAttention(512, 128, 128),
    CompressedAttention(512, 128),
    Mamba1(8192, 16, 4),
    Mamba2(128, 64, 128, 8, 4),
    GatedDeltaNet(16, 32, 128, 128, 4),
    KimiDeltaAttention(32, 128, 4),
    LightningAttention(64, 128),
    ShortConvolution(2048, 3),
    RgLru(2560, 4),
    Rwkv4(4096, 4096),
    Rwkv5(2560, 40, 64),
    XLstm(8, 256, 512),
    CrossAttention(20, 64),
    SharedKv(),
    SharedKv(8, 128),
    NoCache(),
    KvConvolution(8, 128, 4096, 4),
    WindowedConvolution(8, 128, 4096, 4),
    CompressedConvolution(16, 2, 128, 3),
    PromptTokens(32, 32, 128),
    HiddenMemory(1024, 512),
    NgramEmbedding(512, 3, 2),
]


class Library(NamedTuple):
    """Storage as the transformers classes have it."""

    store: Storage
    expanded: bool = False


def terms_of(part: Part, store: Storage | Library) -> tuple[Term, ...]:
    if isinstance(store, Library):
        return library_terms(part, store.store, rules_of("5.14" if store.expanded else "5.24"))
    return part.terms(store)


STORES: list[Storage | Library] = [
    Storage(),
    Storage(kv=kv_dtype("fp8")),
    Storage(kv=kv_dtype("nvfp4")),
    Storage(kv=kv_dtype("kivi2")),
    Library(Storage(conv_columns_less=0, window_less=1, index_key=kv_dtype("bfloat16"))),
    Library(Storage(), expanded=True),
]
parts = st.sampled_from(EXAMPLES)
stores = st.sampled_from(STORES)
lengths = st.integers(0, 300_000)


def held(part: Part, store: Storage | Library, tokens: int, encoder_tokens: int = 0, tp: int = 1) -> int:
    return sum(term.on_rank(tp).bytes_at(tokens, encoder_tokens) for term in terms_of(part, store))


def test_every_family_has_an_example() -> None:
    assert {part.family for part in EXAMPLES} == set(FAMILIES)


@given(parts)
def test_what_a_family_says_of_itself_is_what_its_terms_keep(part: Part) -> None:
    terms = part.terms(Storage())
    assert {term.keep_last for term in terms} - {None} == {part.span} - {None}
    widths = {term.name: term.factors[-1].value for term in terms if term.grows is not Grows.REQUEST}
    latent = widths.get("latent", 0) + widths.get("rope_key", 0)
    key = widths.get("k") or widths.get("window_latent") or latent
    assert (part.key_width, part.value_width) == (key, widths.get("v", key))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_family_explains_itself(family: type[Part]) -> None:
    assert family.family
    assert family.formula
    assert family.source
    assert family.__doc__


@given(parts, stores, lengths, st.integers(0, 100_000))
def test_bytes_never_fall_as_tokens_grow(
    part: Part, store: Storage | Library, tokens: int, more: int
) -> None:
    """Except where waiting tokens are released: compressed attention and KIVI's waiting K."""
    if any(term.part is TermPart.WAITING for term in terms_of(part, store)):
        return
    assert held(part, store, tokens) <= held(part, store, tokens + more)


@given(parts, stores, lengths)
def test_what_waits_is_less_than_a_stride(part: Part, store: Storage | Library, tokens: int) -> None:
    for term in terms_of(part, store):
        if term.part is TermPart.WAITING:
            assert term.entries(tokens) < term.stride


@given(parts, stores, lengths)
def test_a_full_window_stops_growing(part: Part, store: Storage | Library, tokens: int) -> None:
    for term in terms_of(part, store):
        if term.keep_last is not None and tokens >= term.keep_last:
            assert term.bytes_at(tokens) == term.bytes_at(tokens + 1)
            assert term.growth_at(tokens) == 0


@given(parts, stores, lengths, st.sampled_from([1, 2, 4, 8, 16, 64]))
def test_replicated_terms_do_not_shrink_and_sharded_ones_never_vanish(
    part: Part, store: Storage | Library, tokens: int, tp: int
) -> None:
    for term in terms_of(part, store):
        mine = term.on_rank(tp)
        if term.shards is Shards.REPLICATED:
            assert mine == term
        else:
            assert term.entry_bytes <= mine.entry_bytes * tp
            assert mine.entry_bytes > 0 or term.entry_bytes == 0


@given(parts, stores, st.integers(0, 100_000))
def test_growth_is_the_difference_of_one_token(part: Part, store: Storage | Library, tokens: int) -> None:
    for term in terms_of(part, store):
        if term.stride == 1 and term.part is TermPart.ENTRIES:
            assert term.growth_at(tokens) == Fraction(term.bytes_at(tokens + 1) - term.bytes_at(tokens))


@given(parts, stores, lengths)
def test_states_do_not_depend_on_length(part: Part, store: Storage | Library, tokens: int) -> None:
    for term in terms_of(part, store):
        if term.grows is Grows.REQUEST:
            assert term.bytes_at(tokens) == term.bytes_at(0) == term.entry_bytes


@given(stores, lengths, lengths)
def test_cross_attention_grows_with_the_encoder_only(
    store: Storage | Library, tokens: int, encoder_tokens: int
) -> None:
    part = CrossAttention(20, 64)
    assert held(part, store, tokens, encoder_tokens) == held(part, store, 0, encoder_tokens)
    assert held(part, store, tokens, 0) == 0


@given(parts, stores)
def test_nothing_is_a_float(part: Part, store: Storage | Library) -> None:
    for term in terms_of(part, store):
        assert type(term.entry_bytes) is int
        assert all(type(factor.value) is int for factor in term.factors)


def test_no_cache_kind_stores_nothing() -> None:
    for part in EXAMPLES:
        if part.kind is Kind.NONE:
            assert held(part, Storage(), 10_000) == 0


def test_a_term_by_hand() -> None:
    term = Term("k", (Factor("num_kv_heads", 8, sharded=True), Factor("head_dim", 128)), BFLOAT16)
    assert term.entry_bytes == 2048
    assert term.on_rank(16).entry_bytes == 256
    assert term.bytes_at(131072) == 268435456


def test_sinks_are_kept_beside_the_window() -> None:
    """1,024 newest tokens and 4 first ones, of 2 · 8 · 128 numbers of two bytes."""
    part = SlidingWindow(8, 128, 1024, sink_tokens=4)
    assert [held(part, Storage(), tokens) for tokens in (1027, 1028, 5000)] == [
        1027 * 4096, 1028 * 4096, 1028 * 4096
    ]  # fmt: skip


def test_a_full_window_has_stopped_growing_and_one_token_less_has_not() -> None:
    (k, _) = SlidingWindow(8, 128, 1024).terms(Storage())
    assert [k.growth_at(tokens) for tokens in (1023, 1024, 1025)] == [2048, 0, 0]


def test_what_another_term_skips_grows_from_there_on() -> None:
    """KIVI: V lies apart until 128 tokens are newer; K is packed 128 tokens at a time."""
    packed, _, older, newest = FullAttention(8, 128).terms(Storage(kv=kv_dtype("kivi2_g32")))
    assert [older.entries(tokens) for tokens in (127, 128, 129)] == [0, 0, 1]
    assert [older.growth_at(tokens) > 0 for tokens in (127, 128)] == [False, True]
    assert [newest.growth_at(tokens) > 0 for tokens in (127, 128)] == [True, False]
    assert packed.growth_at(0) == Fraction(packed.entry_bytes, 128)


def test_the_group_that_is_kept_is_there_with_its_first_entry() -> None:
    (kept,) = (
        term
        for term in CompressedAttention(512, 128, 4, overlapping=True).terms(Storage())
        if term.part is TermPart.FILLED
    )
    assert [kept.entries(tokens) for tokens in (0, 3, 4, 5, 8)] == [0, 0, 1, 1, 1]
    assert kept.growth_at(4) == 0


@pytest.mark.parametrize("part", [Rwkv4(4096, 2048), Rwkv5(4096, 32, 64)], ids=lambda part: part.family)
def test_ranks_share_the_state_of_rwkv_and_each_keeps_the_newest_token(part: Part) -> None:
    shift, state = part.terms(Storage())
    assert shift.on_rank(8) == shift
    assert state.on_rank(8).entry_bytes * 8 == state.entry_bytes


def test_a_window_over_what_another_term_holds_ends_where_both_are_full() -> None:
    term = Term("v", (Factor("width", 4),), BFLOAT16, keep_last=8, skip_last=3)
    assert [term.entries(tokens) for tokens in (2, 3, 10, 11, 12)] == [0, 0, 7, 8, 8]
    assert [term.growth_at(tokens) for tokens in (2, 3, 10, 11)] == [0, 8, 8, 0]


def test_without_an_encoder_s_tokens_none_are_held() -> None:
    (k, _) = CrossAttention(20, 64).terms(Storage())
    assert (k.entries(100), k.bytes_at(100), k.bytes_at(100, 7)) == (0, 0, 7 * 20 * 64 * 2)


def test_the_token_in_flight_is_not_kept_and_a_window_of_it_alone_keeps_nothing() -> None:
    less = Storage(window_less=1)
    for part in (SlidingWindow(8, 128, 1024), ChunkedAttention(8, 128, 1024)):
        assert held(part, less, 5000) == 1023 * 4096
    assert held(SlidingWindow(8, 128, 1), less, 5000) == 0


def test_pooled_keys_leave_out_gate_and_flag() -> None:
    """GLM-5.3-Flash: a key of 128, its gate, and a flag."""
    assert SparseIndexer(257, kpool=4).pooled_width == 128
    assert SparseIndexer(257, kpool=2).pooled_width == 128
    assert SparseIndexer(128).pooled_width == 128


def test_what_a_config_does_not_have_is_not_there() -> None:
    """Nothing is shared, pooled, grouped or positioned unless the part says so."""
    newest = rules_of("5.24")
    key, latent = SparseIndexer(128), MultiHeadLatentAttention(512, 64)
    assert library_terms(SharedKv(), Storage(), newest) == library_terms(NoCache(), Storage(), newest) == ()
    assert library_terms(key, Storage(), newest) == key.terms(Storage())
    assert key == SparseIndexer(128, float32_key=False, position_rows=0, kpool=1, group=1, axes=0)
    assert latent == MultiHeadLatentAttention(512, 64, 0, 0, 0)
    assert SharedKv() == SharedKv(0, 0)
    assert CompressedAttention(512, 128) == CompressedAttention(512, 128, None, overlapping=False)


def test_a_window_is_taken_off_and_put_on() -> None:
    """With the heads and widths of the layer; other parts stay."""
    full, window = FullAttention(8, 128, v_head_dim=64), SlidingWindow(8, 128, 512, v_head_dim=64)
    assert unwindowed(window) == full
    assert in_window(full, 512) == window
    for other in (ChunkedAttention(8, 128, 512), NoCache()):
        assert unwindowed(other) is other
        assert in_window(other, 512) is other
    assert unwindowed(full) is full
    assert in_window(window, 64) is window


def test_a_layer_that_shares_reads_anothers_cache() -> None:
    assert SharedKv.borrows
    assert not NoCache.borrows
