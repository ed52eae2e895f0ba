"""Workloads that no engine could serve are refused with the request's number, never waited for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine, Group
from tests.laws.sampling import for_each

NOT_A_NUMBER: Any = float("nan")
TINY: dict[str, Any] = {"blocks": 10, "batch": 64, "sequences": 4}


@pytest.mark.parametrize("jump", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("reserve", [True, False])
@pytest.mark.parametrize(("prompt", "answer"), [(1000, 5), (100, 500)])
def test_what_outgrows_the_pool(prompt: int, answer: int, reserve: bool, overlap: bool, jump: bool) -> None:
    engine = Engine(blocks=10, batch=64, sequences=4, reserve=reserve, overlap=overlap)
    for rows in (
        [Arrival(0, prompt, answer)],
        [Arrival(0, 20, 2), Arrival(5, prompt, answer), Arrival(9, 20, 2)],
    ):
        with pytest.raises(KvplanError, match=f"request {len(rows) // 2} .*never fits into 10 blocks"):
            simulate(Trace(rows, 16), engine, StepTime(), jump=jump)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([Arrival(0, 0, 5)], "request 0 has a prompt of 0"),
        ([Arrival(0, 5, 0)], "answer of 0"),
        ([Arrival(0, -10, 3)], "prompt of -10"),
        ([Arrival(9, 5, 5), Arrival(8, 5, 5)], "request 1 arrives at 8 ns, before 9"),
        ([Arrival(-1, 5, 5)], "before 0"),
        ([Arrival(NOT_A_NUMBER, 5, 5)], "not whole"),
        ([Arrival(0, NOT_A_NUMBER, 5)], "not whole"),
    ],
)
def test_rows_that_are_no_requests(rows: list[Arrival], message: str) -> None:
    with pytest.raises(KvplanError, match=message):
        simulate(Trace(rows, 16), Engine(**TINY), StepTime())


def test_engines_that_do_not_start() -> None:
    text: Any = "1"
    states = (Group("state", 64), Group("full", 16))
    for more, said in (
        ({"watermark": NOT_A_NUMBER}, "watermark"),
        ({"watermark": 1.0}, "watermark"),
        ({"threshold": -1}, "threshold is -1"),
        ({"retention": -16}, "interval is -16"),
        ({"batch": text}, "batched_tokens is 1"),
        ({"threshold": None}, "threshold is None"),
        ({"release": 5}, "vLLM 5 "),
        ({"groups": states}, "known in units of 64 tokens"),
    ):
        with pytest.raises(KvplanError, match=said):
            simulate(Trace([Arrival(0, 5, 5)], 16), Engine(**{**TINY, **more}), StepTime())
    with pytest.raises(KvplanError, match="0 tokens"):
        simulate(Trace([Arrival(0, 5, 5, [1])], 0), Engine(**TINY), StepTime())


@for_each("seed", range(150))
def test_any_trace_ends_or_is_refused(seed: int) -> None:
    chance = random.Random(seed)
    rows = []
    at = 0
    for _ in range(chance.randint(0, 12)):
        at += chance.choice([0, 0, 10**6, 10**9, -1 if chance.random() < 0.02 else 1])
        prompt, answer = (
            chance.choice([1, 15, 16, 17, 60, 200, 0 if chance.random() < 0.05 else 5]) for _ in "ab"
        )
        ids = [chance.randint(1, 4) for _ in range(chance.randint(0, 20))]  # mostly no chain at all
        rows.append(Arrival(at, prompt, answer, ids, chance.randrange(3)))
    groups = chance.choice([(Group(),), (Group("window", 16, 40), Group()), (Group("window", 16, 20),)])
    engine = Engine(
        blocks=chance.choice([1, 5, 10, 20, 60]), batch=64, sequences=4, groups=groups,
        reserve=chance.random() < 0.5, overlap=chance.random() < 0.5, length=chance.choice([50, 1000]),
        policy=chance.choice(["fcfs", "priority"]), caching=chance.random() < 0.8,
    )  # fmt: skip
    wide = chance.choice([16, 16, 7])
    assert outcome(rows, wide, engine, True) == outcome(rows, wide, engine, False)


def outcome(rows: list[Arrival], wide: int, engine: Engine, jump: bool) -> int | str:
    try:
        return simulate(Trace(rows, wide), engine, StepTime(), jump=jump).end_ns
    except KvplanError as error:
        return error.code
