"""Routers against their rules on states made by hand, and a fleet's hit rates."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.simulation.cache_only import evict
from kvplan.simulation.fleet.routers import ROUTERS, CacheAware, PowerOfTwo, replay, router, stable_hash

CONVERSATION = Path("../shared/traces/mooncake_fast25_conversation.jsonl")


def test_round_robin_and_loads() -> None:
    turn = router("round-robin", 3)
    assert [turn.pick([], [0, 0, 0]) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert router("least-loaded", 3).pick([], [4, 2, 2]) == 1


def test_of_two_the_less_loaded() -> None:
    picked = [PowerOfTwo(4, seed).pick([], [9, 8, 7, 0]) for seed in range(200)]
    assert set(picked) == {1, 2, 3}  # the most loaded of all is never the less loaded of two
    assert picked == [PowerOfTwo(4, seed).pick([], [9, 8, 7, 0]) for seed in range(200)]
    assert PowerOfTwo(1).pick([], [3]) == 0


def test_the_same_beginning_and_the_same_session_stay_together() -> None:
    hashed, session = router("prefix-hash", 5), router("session", 5)
    assert len({hashed.pick([1, 2, last], [0] * 5) for last in range(50)}) == 1
    assert len({hashed.pick([first, 2], [0] * 5) for first in range(50)}) == 5
    assert len({session.pick([last], [0] * 5, "chat-7") for last in range(50)}) == 1
    assert stable_hash("chat-7") == crc32(b"'chat-7'")


def test_cache_aware() -> None:
    aware = CacheAware(2)
    assert aware.pick([1, 2, 3, 4], [1, 0]) == 1  # nothing matches: the least loaded
    assert aware.pick([1, 2, 3, 9], [0, 5]) == 1  # three of four blocks match
    assert aware.pick([1, 7, 8, 9], [0, 5]) == 0  # a quarter is not more than 0.3
    assert aware.pick([1, 2, 3, 9], [0, 65]) == 0  # out of balance: 65 apart, and more than half again
    assert aware.pick([1, 2, 3, 4], [200, 265]) == 1  # 65 apart only


def test_what_cannot_be_asked() -> None:
    with pytest.raises(KvplanError, match="unknown"):
        router("round-robbin", 2)
    with pytest.raises(KvplanError, match="0 replicas"):
        router("session", 0)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=5), min_size=1, max_size=40), st.integers(1, 4)
)
def test_every_request_is_served_and_one_replica_is_one_cache(texts: list[list[int]], count: int) -> None:
    chains = [[tuple(text[: end + 1]) for end in range(len(text))] for text in texts]
    for policy in ROUTERS:
        found = replay(router(policy, count), chains, 6)
        assert sum(found.served) == len(chains)
        assert sum(found.load) + sum(found.hits) == sum(map(len, chains))
        if count == 1:
            assert found.hits == evict.replay("lru", 6, chains)


@pytest.mark.skipif(not CONVERSATION.exists(), reason="../shared is not here")
@pytest.mark.parametrize(
    ("policy", "replicas", "blocks", "mark"),
    [
        ("cache-aware", 8, 5000, 34.6),
        pytest.param("round-robin", 4, 2500, 8.9, marks=pytest.mark.laws),
        pytest.param("prefix-hash", 4, 2500, 20.7, marks=pytest.mark.laws),
        pytest.param("cache-aware", 4, 2500, 20.7, marks=pytest.mark.laws),
        pytest.param("longest-match", 4, 2500, 5.9, marks=pytest.mark.laws),
        pytest.param("prefix-hash", 8, 5000, 34.9, marks=pytest.mark.laws),
    ],
)
def test_published_marks_of_a_fleet(policy: str, replicas: int, blocks: int, mark: float) -> None:
    chains = [json.loads(line)["hash_ids"] for line in CONVERSATION.read_text().splitlines()]
    found = replay(router(policy, replicas), chains, blocks)
    assert round(100 * sum(found.hits) / sum(map(len, chains)), 1) == mark
