"""KV formats: the bytes of one K+V vector pair as published, and the laws of packing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.dtypes import KV_DTYPES, Packing, kv_dtype, scalar
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, MultiHeadLatentAttention, Storage
from kvplan.families.latent import RECORD_NOPE

# One K and one V vector of 128 numbers, scales included.
PAIR_OF_128 = {
    "float32": 1024,
    "bfloat16": 512,
    "float16": 512,
    "fp8_e4m3": 256,
    "fp8_e5m2": 256,
    "int8_per_token_head": 264,
    "fp8_per_token_head": 264,
    "int4_per_token_head": 136,
    "nvfp4": 144,
    "mxfp8": 264,
    "mxfp4": 136,
    "fp4_mx_block16": 144,
    "turboquant_k8v4": 196,
    "turboquant_4bit_nc": 134,
    "turboquant_k3v4_nc": 118,
    "turboquant_3bit_nc": 102,
    "q8_0": 272,
    "q5_1": 192,
    "q5_0": 176,
    "q4_1": 160,
    "q4_0": 144,
    "iq4_nl": 144,
    "int4_g128": 136,
    "int4_g64": 144,
    "int4_g32": 160,
}


@pytest.mark.parametrize(("name", "expected"), PAIR_OF_128.items())
def test_pair_of_vectors(name: str, expected: int) -> None:
    form = kv_dtype(name)
    assert form.key_packing(128).bytes_for(128) + form.value_packing(128).bytes_for(128) == expected


@pytest.mark.parametrize(
    ("name", "record"), [("bfloat16", 1152), ("fp8", 576), ("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352)]
)
def test_mla_record(name: str, record: int) -> None:
    terms = MultiHeadLatentAttention(512, 64).terms(Storage(kv=kv_dtype(name)))
    assert sum(term.entry_bytes for term in terms) == record


def test_deepseek_v4_record_is_584_bytes() -> None:
    assert RECORD_NOPE.packing("fp8", 448).bytes_for(448) + 64 * 2 == 584


@pytest.mark.parametrize(("group", "numerator"), [(32, 12), (64, 20), (128, 36)])
def test_kivi_two_bits(group: int, numerator: int) -> None:
    """0.25 + 4 / g bytes an element once a whole residual has been quantised."""
    assert kv_dtype(f"kivi2_g{group}").key_packing(128).bytes_for(group) == numerator


@given(st.integers(0, 5000))
def test_kivi_keeps_the_newest_tokens_in_16_bit(tokens: int) -> None:
    k, k_waiting, v, v_newest = FullAttention(8, 128).terms(Storage(kv=kv_dtype("kivi2")))
    assert k.entries(tokens) * 128 + k_waiting.entries(tokens) == tokens
    assert v.entries(tokens) + v_newest.entries(tokens) == tokens
    assert v_newest.entries(tokens) == min(tokens, 128)


@given(st.sampled_from(sorted(KV_DTYPES)), st.integers(1, 1024), st.integers(0, 10**6), st.integers(0, 10**6))
def test_packing_laws(name: str, width: int, small: int, more: int) -> None:
    """Whole packs, monotone, never below the bits themselves."""
    packing = kv_dtype(name).key_packing(width)
    assert isinstance(packing.bytes, int)
    assert packing.bytes_for(small) <= packing.bytes_for(small + more)
    assert packing.bytes_for(small) * 8 >= small * kv_dtype(name).key.bits
    assert packing.bytes_for(small) % packing.bytes == 0


def test_aliases_and_unknown_words() -> None:
    assert kv_dtype("fp8") is kv_dtype("fp8_e4m3")
    assert kv_dtype("torch.bfloat16") is kv_dtype("bf16")
    assert scalar("torch.half") == Packing("float16", 1, 2)
    for ask in (kv_dtype, scalar):
        with pytest.raises(KvplanError) as caught:
            ask("bfloat61")
        assert caught.value.code == "unknown-dtype"
        assert "bfloat16" in str(caught.value.help)
