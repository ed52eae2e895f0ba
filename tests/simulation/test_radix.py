"""``--evict radix``: the tree that SGLang serves with, without time (test_sglang_scheduler asks it)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.simulation.cache_only import evict
from kvplan.simulation.sglang.flat import replay

CHAINS = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=7).map(
        lambda ids: tuple(tuple(ids[: place + 1]) for place in range(len(ids)))
    ),
    max_size=40,
)
"""Identities name a whole prefix."""


@given(CHAINS, st.integers(1, 12))
def test_no_more_hits_than_without_limit(chains: list[tuple[tuple[int, ...], ...]], size: int) -> None:
    few, all_of_them = replay(size, chains), replay(10**6, chains)
    assert all(a <= b for a, b in zip(few, all_of_them))
    assert all_of_them == evict.replay("lru", 10**6, chains)


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 6))
def test_of_chains_of_one_block_it_is_plain_lru(names: list[int], size: int) -> None:
    chains = [(name,) for name in names]
    assert evict.replay("radix", size, chains) == evict.replay("lru", size, chains)


def test_whole_runs_are_evicted() -> None:
    """Of a run of four, one block too many takes all that follows where another begins."""
    assert replay(6, [(1, 2, 3, 4), (5, 6), (7,), (1, 2, 3, 4)]) == [0, 0, 0, 0]
    assert evict.replay("lru", 6, [(1, 2, 3, 4), (5, 6), (7,), (1, 2, 3, 4)]) == [0, 0, 0, 3]
    assert replay(3, [(1, 2, 3, 4), (1, 2)]) == [0, 0]  # one that is larger than the cache is not stored


def test_refused() -> None:
    with pytest.raises(KvplanError):
        replay(0, [])
    with pytest.raises(KvplanError) as caught:
        evict.check_policy("radx")
    assert caught.value.help == ("did you mean radix?",)
