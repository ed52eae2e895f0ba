"""Orders of eviction: by hand, against plain readings of them, and against the bound that knows the trace."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.simulation.cache_only.evict import POLICIES, Cache, replay

CONVERSATION = Path("../shared/traces/mooncake_fast25_conversation.jsonl")
FLAT = st.lists(st.integers(1, 25), min_size=1, max_size=120)
CHAINS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=6), min_size=1, max_size=50)


def alone(names: list[int]) -> list[list[int]]:
    return [[name] for name in names]


def prefixes(texts: list[list[int]]) -> list[list[tuple[int, ...]]]:
    """Chains that share a block where they share all before it."""
    return [[tuple(text[: end + 1]) for end in range(len(text))] for text in texts]


def plain(policy: str, size: int, names: list[int]) -> list[int]:
    """LRU, FIFO and LFU written down a second time."""
    held: OrderedDict[int, int] = OrderedDict()
    hits = []
    for name in names:
        hits.append(int(name in held))
        if name in held:
            held[name] += 1
            if policy != "fifo":
                held.move_to_end(name)
            continue
        if len(held) == size:
            gone = min(held, key=held.__getitem__) if policy == "lfu" else next(iter(held))
            del held[gone]
        held[name] = 1
    return hits


@settings(max_examples=60, deadline=None)
@given(FLAT, st.integers(1, 12), st.sampled_from(["lru", "fifo", "lfu"]))
def test_chains_of_one_are_the_flat_orders(names: list[int], size: int, policy: str) -> None:
    assert replay(policy, size, alone(names)) == plain(policy, size, names)


@settings(max_examples=60, deadline=None)
@given(FLAT, st.integers(1, 12), st.sampled_from(POLICIES))
def test_none_beats_the_one_that_knows_the_trace(names: list[int], size: int, policy: str) -> None:
    assert sum(replay(policy, size, alone(names))) <= sum(replay("belady", size, alone(names)))


@settings(max_examples=60, deadline=None)
@given(CHAINS, st.integers(1, 12), st.sampled_from(POLICIES))
def test_a_cache_stays_a_tree_within_its_size(texts: list[list[int]], size: int, policy: str) -> None:
    cache = Cache(policy, size)
    for chain in prefixes(texts):
        before = cache.match(chain)
        assert cache.serve(chain, [0] * len(chain)) == before
        assert len(cache.blocks) <= size
        assert cache.match(chain) == min(size, len(chain))
        for block in cache.blocks.values():
            assert block.parent is None or cache.blocks[block.parent.name] is block.parent


@settings(max_examples=30, deadline=None)
@given(CHAINS, st.sampled_from(POLICIES))
def test_with_room_for_all_the_order_is_no_matter(texts: list[list[int]], policy: str) -> None:
    chains = prefixes(texts)
    assert replay(policy, 1000, chains) == replay("lru", 1000, chains)


def test_scans_pass_by_what_is_used() -> None:
    used, scan = [1, 1, 1, 2, 2, 2], list(range(100, 140))
    assert replay("lfu", 20, alone([*used, *scan, 1, 2]))[-2:] == [1, 1]
    assert replay("lru", 20, alone([*used, *scan, 1, 2]))[-2:] == [0, 0]


def test_what_cannot_be_asked() -> None:
    with pytest.raises(KvplanError, match="unknown"):
        Cache("lur", 5)
    with pytest.raises(KvplanError, match="unknown"):
        replay("slru", 5, [])
    with pytest.raises(KvplanError, match="0 blocks"):
        Cache("lru", 0)


@pytest.mark.skipif(not CONVERSATION.exists(), reason="../shared is not here")
@pytest.mark.parametrize(
    ("blocks", "mark"), [(1000, 4.45), pytest.param(50_000, 35.46, marks=pytest.mark.laws)]
)
def test_published_hit_rates(blocks: int, mark: float) -> None:
    chains = [json.loads(line)["hash_ids"] for line in CONVERSATION.read_text().splitlines()]
    hits = sum(replay("lru", blocks, chains))
    assert round(100 * hits / sum(map(len, chains)), 2) == mark
