"""Layers of small extras, by hand, where no paper or printed page has the corner."""

from __future__ import annotations

import pytest

from kvplan.families import CompressedAttention, Storage, WindowedConvolution

PLAIN = Storage()


@pytest.mark.parametrize(
    ("heads", "width", "hidden", "packed"),
    [
        (8, 128, 6144, 2048),  # 256 and 2 · 768 are 1,792
        (4, 128, 512, 512),  # 256 and 2 · 128: a power of two as it is
        (4, 129, 512, 1024),  # two more
        (1, 1, 1, 4),
    ],
)
def test_a_windowed_convolution_is_filled_up_to_a_power_of_two(
    heads: int, width: int, hidden: int, packed: int
) -> None:
    """The newest four tokens, K and V of a head with its share of two streams, 2 bytes a number."""
    layer = WindowedConvolution(heads, width, hidden, 4)
    assert layer.packed_width == packed
    (term,) = layer.terms(PLAIN)
    for tokens in (1, 3, 4, 5, 100):
        assert term.bytes_at(tokens) == min(tokens, 4) * heads * packed * 2


@pytest.mark.parametrize(("rate", "waiting"), [(1, 0), (2, 1), (4, 3), (8, 7)])
def test_tokens_wait_for_an_entry_where_one_is_of_several(rate: int, waiting: int) -> None:
    """Seven tokens: what no entry covers waits as value and gate; with an entry for each, nothing does."""
    terms = {term.name: term for term in CompressedAttention(512, 128, rate).terms(PLAIN)}
    assert terms["compressed_latent"].bytes_at(7) == 7 // rate * 1024
    assert ("latent_waiting" in terms) is (rate > 1)
    assert sum(term.bytes_at(7) for name, term in terms.items() if "waiting" in name) == waiting * 2 * 1024
