"""Routers of a fleet: what each request's replica is, and what a router that looks at loads is shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.simulation.fleet.routers import router
from kvplan.simulation.fleet.run import LOOKING, ROUTERS, Dealt, deal, sessions
from kvplan.simulation.fleet.together import Joined, side_by_side
from kvplan.simulation.load.generate import Asked, generated
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Outcome, Target
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine
from scripts.check_scheduler import trace_of, vllm_engine
from scripts.scheduler_scenarios import scenario

CLOCK = StepTime(6_000_000, 25_000, 25)
CHATS = generated(
    Asked(requests=160, rate=8.0, input=300, output=60, prefix=400, turns=4, think=4.0, input_cv=0.8)
)


def _asked(seed: int) -> tuple[Trace, Engine, StepTime]:
    asked = scenario(seed)
    return trace_of(asked["trace"], Path()), vllm_engine(asked["engine"]), StepTime(**asked["step"])


def _in_turn(place: int, at_ns: int, served: Sequence[Joined]) -> int:
    return place % len(served)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 4))
def test_side_by_side_without_looking_is_each_alone(seed: int, replicas: int) -> None:
    """Whatever the groups, asynchronous or not: stopping at each arrival changes nothing."""
    trace, engine, clock = _asked(seed)
    mine = [trace.arrivals[first::replicas] for first in range(replicas)]
    try:
        alone = [simulate(Trace(rows, trace.wide), engine, clock) for rows in mine]
    except KvplanError:
        with pytest.raises(KvplanError):
            side_by_side(trace, replicas, engine, clock, _in_turn)
        return
    together = side_by_side(trace, replicas, engine, clock, _in_turn)
    assert together is not None
    for answer, one in zip(alone, together):
        assert one.answer.columns == answer.columns
        assert one.answer.end_ns == answer.end_ns


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 4))
def test_a_router_is_shown_what_is_under_way(seed: int, replicas: int) -> None:
    """Requests that were sent to a replica before and end after this one comes, by the answer itself."""
    trace, engine, clock = _asked(seed)
    least, shown, sent = router("least-loaded", replicas), [], []

    def pick(place: int, at_ns: int, served: Sequence[Joined]) -> int:
        loads = [one.load(at_ns) for one in served]
        shown.append(loads)
        sent.append(least.pick([], loads))
        return sent[-1]

    try:
        fleet = side_by_side(trace, replicas, engine, clock, pick)
    except KvplanError:
        return
    ends = [0] * len(trace.arrivals)
    assert fleet is not None
    for one in fleet:
        for number, place in enumerate(one.places):
            ends[place] = one.answer.columns["finished_ns"][number]
    for place, row in enumerate(trace.arrivals):
        under_way = [0] * replicas
        for before in range(place):
            under_way[sent[before]] += ends[before] > row.at_ns
        assert shown[place] == under_way


def _run(policy: str, load: Load = CHATS, pools: int = 3, blocks: int = 400) -> Outcome:
    engine = Engine(blocks=blocks, sequences=16)
    return Dealt(load, pools, policy).run(engine, CLOCK, Target())


@pytest.mark.parametrize("policy", ROUTERS)
def test_every_router_serves_everything(policy: str) -> None:
    run = _run(policy)
    assert len(run.latency) == len(CHATS.arrivals)
    assert run.latency == _run(policy).latency


def test_conversations_that_stay_together_find_their_prefix() -> None:
    hits = {policy: _run(policy, blocks=4000).hit_rate for policy in ROUTERS}
    assert min(hits["session"], hits["cache-aware"]) > hits["round-robin"] + 0.1


def test_a_looking_router_waits_less_than_turns_do() -> None:
    """Long prompts every third time: turns send them all to one replica."""
    rows = CHATS.arrivals
    uneven = [type(one)(one.at_ns, 6000 if place % 3 == 0 else 60, 40) for place, one in enumerate(rows)]
    load = Load(tuple(uneven))
    waits = {policy: sum(_run(policy, load, blocks=2000).ttft) for policy in ROUTERS}
    assert all(waits[policy] < waits["round-robin"] for policy in LOOKING)


def test_sessions_are_turns_of_one_conversation() -> None:
    found = sessions(CHATS.arrivals, CHATS.wide)
    counts = {one: found.count(one) for one in found}
    assert set(counts.values()) == {4}
    for place, session in enumerate(found):
        first, one = CHATS.arrivals[session], CHATS.arrivals[place]
        whole = first.prompt // CHATS.wide
        assert list(one.ids[:whole]) == list(first.ids[:whole])
    dealt = deal(CHATS.arrivals, 5, "session", CHATS.wide)
    where = {place: number for number, places in enumerate(dealt) for place in places}
    assert all(where[place] == where[session] for place, session in enumerate(found))


@pytest.mark.parametrize("policy", ["prefix-hash", "longest-match"])
def test_prompts_without_identities_are_taken_to_differ(policy: str) -> None:
    plain = [type(one)(one.at_ns, one.prompt, one.answer) for one in CHATS.arrivals[:9]]
    assert deal(plain, 3, policy) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
