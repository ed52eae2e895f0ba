"""llm-d's scorers and Dynamo's cost on states made by hand."""

from __future__ import annotations

import pytest

from kvplan.errors import KvplanError
from kvplan.simulation.fleet.scored import Dynamo, LlmD, State, scored


def _state(waiting: int = 0, used: int = 0, prefill: int = 0, queued: int = 0) -> State:
    return State(waiting, used, 100, prefill, queued, 16)


def test_llmd_weighs_prefix_queue_and_kv() -> None:
    router = LlmD(3, {})
    router.known[1].add([1, 2], 100)
    states = [_state(waiting=4, used=10), _state(waiting=2, used=50), _state(waiting=0, used=90)]
    scores = router.scores([1, 2, 3, 4], 64, 16, states, [one.matched([1, 2, 3, 4]) for one in router.known])
    assert [score for score, _ in scores] == pytest.approx(
        [0 + 2 * 0.0 + 2 * 0.9, 3 * 0.5 + 2 * 0.5 + 2 * 0.5, 0 + 2 * 1.0 + 2 * 0.1]
    )
    assert router.choose([1, 2, 3, 4], 64, 16, states) == 1
    assert router.known[1].matched([1, 2, 3, 4]) == 4  # and it knows all of it now


def test_llmd_queues_of_equal_length_score_one() -> None:
    router = LlmD(2, {"prefix": 0, "kv": 0})
    assert [score for score, _ in router.scores([], 10, 16, [_state(3), _state(3)], [0, 0])] == [2.0, 2.0]


def test_dynamo_costs_prefill_and_decode_blocks() -> None:
    router = Dynamo(2, {})
    router.known[0].add([7, 8], 100)
    states = [_state(used=30, prefill=160), _state(used=20, prefill=0, queued=2)]
    scores = router.scores([7, 8, 9], 48, 16, states, [2, 0])
    # (160 + 16) / 16 + 30 + 1 against 48 / 16 + 20 + 2 + 3
    assert [-score for score, _ in scores] == [42.0, 28.0]
    assert router.choose([7, 8, 9], 48, 16, states) == 1
    light = Dynamo(2, {"weight": 0.0})
    assert [-score for score, _ in light.scores([7, 8, 9], 48, 16, states, [2, 0])] == [31.0, 25.0]


def test_dynamo_of_equal_costs_takes_who_knows_fewer_blocks() -> None:
    router = Dynamo(2, {})
    router.known[0].add([1, 2, 3], 100)
    assert router.choose([9], 16, 16, [_state(), _state()]) == 1


def test_what_is_known_is_what_fits() -> None:
    router = LlmD(1, {})
    small = State(0, 0, 4, 0, 0, 16)
    router.choose([1, 2, 3], 48, 16, [small])
    router.choose([4, 5], 32, 16, [small])
    assert list(router.known[0].kept) == [2, 1, 5, 4]


@pytest.mark.parametrize(
    "policy", ["llm-d:prefixes=1", "dynamo:weight=much", "llm-d:kv=-1", "dynamo:weight=1e9"]
)
def test_bad_weights(policy: str) -> None:
    with pytest.raises(KvplanError) as caught:
        scored(policy, 2)
    assert caught.value.code == "bad-router"
    assert "--router" in caught.value.help[0]


def test_weights_are_read() -> None:
    found = scored("llm-d:prefix=1,kv=0.5", 2)
    assert found is not None
    assert found.weights == {"prefix": 1.0, "queue": 2.0, "kv": 0.5}
    assert scored("round-robin", 2) is None
