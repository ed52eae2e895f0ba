"""kvplan's SGLang against SGLang's own scheduler: every step and every request equal to the digit."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.schedulers import simulate_any
from kvplan.simulation.sglang import SglangEngine
from kvplan.simulation.sglang.replica import SglangReplica
from kvplan.simulation.sglang.settings import POLICIES
from kvplan.simulation.sglang.tree import ORDERS, Node, Tree
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import Trace
from scripts.check_scheduler import difference, engine_of, trace_of
from scripts.sglang_scenarios import scenario, stated, windowed

RECORD = Path(__file__).with_name("sglang_scheduler.json.gz")
SCENARIOS: dict[str, Any] = json.loads(gzip.decompress(RECORD.read_bytes()))["scenarios"]
LIVE = (900, 912)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_recorded_scenarios(name: str) -> None:
    assert difference(SCENARIOS[name], Path()) is None


def test_everything_that_can_be_set_is_recorded() -> None:
    engines = [one["engine"] for one in SCENARIOS.values()]
    assert len(engines) >= 40
    for name in ("overlap", "mixed", "radix", "ignore_eos"):
        assert {engine[name] for engine in engines} == {False, True}
    assert {engine["schedule_policy"] for engine in engines} == set(POLICIES)
    assert {engine["radix_eviction_policy"] for engine in engines} == set(ORDERS)
    assert {engine["page_size"] for engine in engines} > {1, 16}
    assert any(engine["chunked_prefill_size"] < 0 for engine in engines)
    requests = [one["requests"] for one in SCENARIOS.values()]
    assert sum(sum(one["preemptions"]) for one in requests) > 50
    assert sum(sum(one["cached_again_tokens"]) for one in requests) > 1000
    assert sum(sum(one["refused"]) for one in requests) > 5


@pytest.mark.sglang
def test_sglang_answers_the_same_today(tmp_path: Path) -> None:
    pytest.importorskip("sglang")
    file = tmp_path / "answers.json"
    words = [sys.executable, "-m", "scripts.record_sglang_scheduler", *map(str, LIVE), "-o", str(file)]
    subprocess.run(words, check=True, capture_output=True)
    found = json.loads(file.read_text())["scenarios"]
    assert len(found) == LIVE[1] - LIVE[0]
    assert [difference(one, Path()) for one in found.values()] == [None] * len(found)


@pytest.mark.parametrize("kind", [scenario, windowed, stated])
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_steps_taken_together_are_single_steps(seed: int, kind: Callable[[int], Any]) -> None:
    one = kind(seed)
    trace, engine, time = trace_of(one["trace"], Path()), engine_of(one["engine"]), StepTime(**one["step"])

    def served(*, jump: bool) -> Answer | str:
        try:
            return simulate_any(trace, engine, time, jump=jump)
        except KvplanError as error:
            return error.code

    leaps, single = served(jump=True), served(jump=False)
    if isinstance(leaps, str) or isinstance(single, str):
        assert leaps == single
        return
    assert leaps.columns == single.columns
    for name in ("steps", "tokens", "busy_ns", "end_ns", "preemptions"):
        assert getattr(leaps, name) == getattr(single, name)


@pytest.mark.parametrize("seed", range(1100, 1120))
def test_nothing_is_lost(seed: int) -> None:
    """Once all is served every page is free or in the tree, nobody holds any, and every row is back."""
    one = scenario(seed)
    trace, engine = trace_of(one["trace"], Path()), engine_of(one["engine"])
    assert isinstance(engine, SglangEngine)
    replica = SglangReplica(trace, engine, StepTime(**one["step"]), jump=True, rows=False)
    answer = replica.run()
    memory = replica.scheduler.memory
    assert memory.free + memory.tree.size == engine.blocks
    assert memory.tree.idle == memory.tree.size == sum(node.stop - node.start for node in _nodes(memory.tree))
    assert memory.rows == engine.sequences
    columns = answer.columns
    for number, row in enumerate(trace.arrivals):
        if not columns["refused"][number]:
            assert row.at_ns <= columns["admitted_ns"][number] < columns["first_token_ns"][number]
            assert columns["first_token_ns"][number] <= columns["finished_ns"][number]
            assert columns["cached_tokens"][number] < row.prompt
    assert not engine.caching or all(not node.held for node in _nodes(memory.tree))


def _nodes(tree: Tree) -> list[Node]:
    found = [tree.root]
    for node in found:
        found += node.children.values()
    return found[1:]


def _small(**more: Any) -> SglangEngine:
    return replace(SglangEngine(blocks=200, chunk=64, batch=128, sequences=4, length=300), **more)


@given(st.lists(st.tuples(st.integers(1, 280), st.integers(1, 60)), min_size=1, max_size=8), st.booleans())
def test_time_in_proportion_changes_no_decision(rows: list[tuple[int, int]], overlap: bool) -> None:
    engine = _small(overlap=overlap)
    trace = Trace([Arrival(0, prompt, answer) for prompt, answer in rows], 16)
    slow, fast = (simulate_any(trace, engine, StepTime(fixed, 0, 0)) for fixed in (3000, 1000))
    assert [3 * at for at in fast.columns["finished_ns"]] == [
        at if at >= 0 else -3 for at in slow.columns["finished_ns"]
    ]
    assert fast.steps == slow.steps


def test_a_request_alone_by_hand() -> None:
    """A prompt of 100 in chunks of 64, ten tokens: two steps of it, nine of one token each."""
    trace = Trace([Arrival(0, 100, 10)], 16)
    answer = simulate_any(trace, _small(overlap=False), StepTime(1000, 0, 0), rows=True)
    assert answer.rows is not None
    assert [row[1] for row in answer.rows] == [64, 36, *[1] * 9]
    assert answer.columns["first_token_ns"] == [2000]
    assert answer.columns["finished_ns"] == [11_000]
    assert [row[6] for row in answer.rows] == [136, 100, *range(99, 90, -1)]


def test_what_a_request_may_ask_for_is_cut_as_sglang_cuts_it() -> None:
    engine = _small(blocks=40, block=4)
    assert engine.most == 159  # the pool's 160 tokens, less one
    assert [engine.takes(prompt) for prompt in (153, 154)] == [True, False]
    assert engine.answered(100, 10) == 10
    assert engine.answered(100, 1000) == 160 - 100 - 4 - 1
    assert engine.answered(153, 1000) == 1


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"policy": "random"}, "not-simulated"),
        ({"policy": "priority"}, "not-simulated"),
        ({"policy": "hrrn"}, "not-simulated"),
        ({"policy": "lmp"}, "bad-policy"),
        ({"order": "belady"}, "bad-eviction"),
        ({"release": "0.5.12"}, "not-simulated"),
        ({"blocks": 0}, "bad-simulation"),
        ({"blocks": 15}, "bad-simulation"),
        ({"chunk": 0}, "bad-simulation"),
        ({"block": 16, "chunk": 24}, "bad-simulation"),
        ({"conservativeness": -1.0}, "bad-simulation"),
        ({"conservativeness": float("nan")}, "bad-simulation"),
        ({"sequences": True}, "bad-simulation"),
    ],
)
def test_what_is_not_described_is_refused(more: dict[str, Any], code: str) -> None:
    with pytest.raises(KvplanError) as caught:
        simulate_any(Trace([], 1), _small(**more), StepTime())
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert caught.value.help


def test_tiers_are_refused_with_a_way_out() -> None:
    with pytest.raises(KvplanError, match="hierarchical cache") as caught:
        _small().with_offload(object())
    assert caught.value.exit_code == 2


def test_the_tree_loses_the_answer_before_the_prompt() -> None:
    """Storing splits at the prompt's end, and an answer is a leaf of its own."""
    tree, chain = Tree(), Chain((), 7)
    tree.insert(chain, 10, 0)
    tree.insert(chain, 6, 6, 1)
    assert tree.evict(1) == 4
    assert tree.match(chain, 10) == (6, tree.root.children[-8])
    tree.hold(tree.root.children[-8])
    assert (tree.evict(1), tree.idle, tree.size) == (0, 0, 6)


def test_chains_part_where_one_leaves_a_run() -> None:
    first, second, third = Chain(((0, 4, 0), (4, 8, 1)), 0), Chain(((0, 4, 0), (4, 6, 1)), 1), Chain((), 2)
    assert first.alike(second, 0, 100) == 6
    assert first.alike(second, 0, 5) == 5
    assert first.alike(third, 0, 100) == 0
    assert second.alike(second, 3, 50) == 50
