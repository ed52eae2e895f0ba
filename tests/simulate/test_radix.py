"""SGLang's prefix cache: its own answers, call by call, and laws."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.simulate import evict
from kvplan.simulate.radix import ORDERS, Node, RadixCache, replay
from scripts import record_sglang_radix
from scripts.record_sglang_radix import CALLS, SEEDS, exercise

RECORD: dict[str, Any] = json.loads(
    gzip.decompress(Path(__file__).with_name("sglang_radix.json.gz").read_bytes())
)
CHAINS = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=7).map(
        lambda ids: tuple(tuple(ids[: place + 1]) for place in range(len(ids)))
    ),
    max_size=40,
)
"""Identities name a whole prefix."""


@pytest.mark.parametrize("order", ORDERS)
def test_sglangs_own_answers(order: str) -> None:
    recorded = RECORD["answers"][order]
    assert len(recorded) == SEEDS
    for seed, answers in enumerate(recorded):
        assert exercise(RadixCache(order), seed) == answers, f"seed {seed}"


def test_what_is_recorded() -> None:
    assert RECORD["answers"].keys() == ORDERS.keys() == set(record_sglang_radix.ORDERS)
    every = [answers for rows in RECORD["answers"].values() for answers in rows]
    assert all(len(answers) == CALLS for answers in every)
    assert max(size for answers in every for _, size in answers) > 30
    assert any(size == 0 for answers in every for _, size in answers)


@pytest.mark.sglang
def test_sglang_answers_the_same_today() -> None:
    pytest.importorskip("sglang")
    assert record_sglang_radix.answers() == RECORD["answers"]


def _nodes(cache: RadixCache) -> list[Node]:
    found, stack = [], [cache.root]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += node.children.values()
    return found[1:]


@given(CHAINS, st.integers(1, 30), st.sampled_from(sorted(ORDERS)))
def test_the_tree_is_whole_after_every_request(
    chains: list[tuple[tuple[int, ...], ...]], size: int, order: str
) -> None:
    cache = RadixCache(order)
    for chain in chains:
        hits, node = cache.match(chain)
        cache.hold(node)
        if cache.size + len(chain) - hits > size:
            cache.evict(cache.size + len(chain) - hits - size)
        assert cache.match(chain)[0] == hits  # what is held stays
        before, end = cache.insert(chain)
        assert before == hits
        cache.release(node)
        assert cache.match(chain) == (len(chain), end)
        nodes = _nodes(cache)
        assert cache.size == sum(len(one.key) for one in nodes)
        assert all(one.parent is not None and one.parent.children[one.key[0]] is one for one in nodes)
        assert set(cache.leaves) == {one for one in nodes if not one.children}
        assert all(not one.held for one in nodes)
    stored = cache.size
    assert cache.evict(stored) == stored
    assert not cache.size
    assert not cache.root.children


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
    with pytest.raises(KvplanError) as caught:
        RadixCache("lur")
    assert caught.value.help == ("did you mean lru?",)
    with pytest.raises(KvplanError):
        replay(0, [])
    with pytest.raises(KvplanError) as caught:
        evict.check_policy("radx")
    assert caught.value.help == ("did you mean radix?",)
