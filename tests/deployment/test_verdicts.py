"""Verdicts: yes, likely, unlikely and no, with a budget made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.api import make_settings
from kvplan.deployment.answer import Answer, answer
from kvplan.deployment.question import Question
from kvplan.engines.base import LIKELY, SAFE, Choice
from kvplan.engines.budget import TOO_LITTLE, answered, choose
from kvplan.engines.options import EngineOption
from kvplan.model import Model
from kvplan.results import Budget, Capacity, Pool, PoolGroup, Refusal, SizeResult, Verdict
from kvplan.settings import Settings
from tests.deployment.by_hand import FULL, GENERIC, model

SAFE_BYTES, LIKELY_BYTES, HIGH_BYTES = 1200, 1600, 2000
BLOCK = 64
"""One token of `FULL`."""


def budget(low: int = SAFE_BYTES, likely: int = LIKELY_BYTES, high: int = HIGH_BYTES) -> Budget:
    return Budget("by hand", 10_000, (), likely, low, high, 0, calibrated=True)


@dataclass
class ByHand:
    """An engine in whose pool every token is a block; a choice of it divides a GPU as `memory` says.

    starts: requests of that many tokens at most; the memory of the pool is enough for one of ``starts_at``
    bytes or the engine refuses.
    """

    memory: Budget = field(default_factory=budget)
    starts_at: int = 0
    code: str = TOO_LITTLE
    name: str = "by-hand"
    versions: tuple[str, ...] = ("1",)
    options: tuple[EngineOption, ...] = ()

    def size(self, asked_of: Model, asked: Settings, version: str) -> SizeResult:
        memory = asked.kv_cache_memory
        result = GENERIC.engine.size(asked_of, asked, version)
        if memory is None:
            return result
        blocks, tokens = memory // BLOCK, result.request.tokens
        fits = blocks // tokens
        group = PoolGroup("full_attention", 1, 1, BLOCK, tokens)
        pool = Pool(memory, BLOCK, blocks, (group,), blocks, fits, fits, fits, 10**6, fits)
        refusal = None if memory >= self.starts_at else Refusal(self.code, "too little")
        return replace(result, pool=None if refusal else pool, refusal=refusal)


def answered_by_hand(asked_of: Model, choice: Choice, asked: Settings) -> SizeResult:
    """`kvplan.engines.budget.answered`, with the budget of an engine by hand."""
    engine = choice.engine
    if not isinstance(engine, ByHand) or asked.kv_cache_memory is not None or choice.pool is None:
        return answered(asked_of, choice, asked)
    own = engine.memory
    pool = own.kv_pool_low_bytes if choice.pool == SAFE else own.kv_pool_bytes
    found = engine.size(asked_of, replace(asked, kv_cache_memory=pool), choice.version)
    return replace(found, budget=own)


@pytest.fixture(autouse=True, scope="module")
def budget_by_hand() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvplan.deployment.counts.answered", answered_by_hand)
        yield


def asked(requests: int, *, pool: str = LIKELY, **engine: Any) -> Answer:
    """Requests of ten tokens: 640 bytes each, so that the pools by hand hold 1, 2 and 3 of them."""
    choice = Choice(ByHand(**engine), "1", pool=pool)
    return answer(Question(model(FULL), choice, Settings(tokens=10, requests=requests)))


@pytest.mark.parametrize(
    ("requests", "verdict"),
    [(1, Verdict.YES), (2, Verdict.LIKELY), (3, Verdict.UNLIKELY), (4, Verdict.NO)],
)
@pytest.mark.parametrize("pool", [LIKELY, SAFE])
def test_which_pool_holds_the_load(requests: int, verdict: Verdict, pool: str) -> None:
    """The verdict does not depend on the pool that has to hold the load; whether it is held does."""
    found = asked(requests, pool=pool, memory=budget(low=700, likely=1300, high=1930))
    assert found.verdict is verdict
    assert found.result.capacity == Capacity(2, 1, 2, 1)
    yes = (Verdict.YES,) if pool == SAFE else (Verdict.YES, Verdict.LIKELY)
    assert found.holds is (verdict in yes)
    assert found.likely is not None
    assert found.safe is not None
    assert (found.likely.memory, found.safe.memory) == (1300, 700)


def test_the_result_is_of_the_pool_that_has_to_hold_it() -> None:
    for pool, memory in ((LIKELY, LIKELY_BYTES), (SAFE, SAFE_BYTES)):
        result = asked(1, pool=pool).result
        assert result.pool is not None
        assert result.pool.bytes == memory


def test_nothing_lies_between_equal_pools() -> None:
    same = budget(low=1300, likely=1300, high=1300)
    assert asked(2, memory=same).verdict is Verdict.YES
    assert asked(3, memory=same).verdict is Verdict.NO


def test_an_engine_that_starts_in_the_likely_pool_alone() -> None:
    found = asked(1, starts_at=1300)
    assert found.verdict is Verdict.LIKELY
    assert found.safe is not None
    assert found.safe.refusal is not None
    assert found.result.capacity == Capacity(2, 0, 2, 0)


def test_an_engine_that_starts_in_the_most_that_there_may_be() -> None:
    found = asked(1, starts_at=1900)
    assert found.verdict is Verdict.UNLIKELY
    assert found.result.refusal is not None
    assert found.holds is False


def test_an_engine_that_starts_in_none() -> None:
    assert asked(1, starts_at=2100).verdict is Verdict.NO


def test_a_refusal_that_no_memory_lifts_is_a_no() -> None:
    assert asked(1, starts_at=1900, code="bad-model").verdict is Verdict.NO


# ----------------------------------------------------------------------------------- without a budget


def test_stated_memory_is_as_safe_as_it_is_likely() -> None:
    for requests, verdict in ((1, Verdict.YES), (2, Verdict.NO)):
        found = answer(
            Question(model(FULL), GENERIC, Settings(tokens=10, requests=requests, kv_cache_memory=700))
        )
        assert found.verdict is verdict
        assert found.likely == found.safe
        assert found.result.capacity == Capacity(1, 1, 1, 1)


def test_no_memory_no_verdict() -> None:
    found = answer(Question(model(FULL), GENERIC, Settings(tokens=10)))
    assert (found.verdict, found.holds, found.result.capacity) == (None, None, None)


def test_a_refusal_without_memory_is_a_no() -> None:
    @dataclass
    class Never(ByHand):
        def size(self, asked_of: Model, asked: Settings, version: str) -> SizeResult:
            return replace(super().size(asked_of, asked, version), refusal=Refusal("x", "y"))

    found = answer(Question(model(FULL), Choice(Never(), "1"), Settings(tokens=10)))
    assert (found.verdict, found.holds, found.likely) == (Verdict.NO, False, None)


# --------------------------------------------------------------------------------------- of real engines


@given(
    card=st.sampled_from(["qwen3-8b", "gemma-3-12b", "gpt-oss-20b"]),
    engine=st.sampled_from(["vllm@0.33", "sglang", "trtllm"]),
    gpu=st.sampled_from(["l4", "l40s", "4xl4"]),
    ranks=st.sampled_from([1, 2]),
    tokens=st.sampled_from([500, 4096, 20_000]),
    requests=st.integers(1, 60),
)
@settings(max_examples=25, deadline=None)
def test_verdicts_and_capacities_agree(
    card: str, engine: str, gpu: str, ranks: int, tokens: int, requests: int
) -> None:
    """yes: the safe pools hold the load; likely: the likely ones do; else no pool that is counted does."""
    try:
        asked = make_settings(gpu=gpu, tensor_parallel_size=ranks, tokens=tokens, requests=requests)
        found = answer(Question(kvplan.load_model(card), choose(engine), asked))
    except kvplan.KvplanError:
        return
    capacity, verdict = found.result.capacity, found.verdict
    if capacity is None:
        return
    share = found.deployment.settings.requests
    assert capacity.safe_requests == capacity.safe_requests_per_pool * found.deployment.pools
    assert capacity.requests == capacity.requests_per_pool * found.deployment.pools
    assert (verdict is Verdict.YES) is (capacity.safe_requests_per_pool >= share)
    assert (verdict in (Verdict.YES, Verdict.LIKELY)) is (capacity.requests_per_pool >= share)


def test_an_unlikely_start_says_what_it_would_take() -> None:
    """Qwen3-8B for 36,000 tokens on an RTX 4090: the likely pool has 2,066 blocks, 2,250 are needed."""
    sized = kvplan.size("qwen3-8b", engine="vllm@0.33", gpu="rtx-4090", tokens=36_000)
    assert sized.verdict is Verdict.UNLIKELY
    assert sized.budget is not None
    block = 16 * 147_456
    assert sized.budget.kv_pool_bytes < 2251 * block <= sized.budget.kv_pool_high_bytes
    assert str(sized).startswith("Unlikely:")
