"""Rules by release: what is known, what is refused, and where they differ."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import main
from kvplan.errors import KvplanError, RefusedError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.served import release_of
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.releases import KNOWN, rules_of
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine, Group
from scripts.check_scheduler import difference

RECORD = Path(__file__).with_name("vllm_scheduler_releases.json.gz")
SCENARIOS: dict[str, Any] = json.loads(gzip.decompress(RECORD.read_bytes()))["scenarios"]


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_recorded_releases(name: str) -> None:
    assert difference(SCENARIOS[name], Path()) is None


def test_every_release_before_the_newest_is_recorded() -> None:
    asked = {".".join(one["engine"]["release"].split(".")[:2]) for one in SCENARIOS.values()}
    assert asked == set(KNOWN) - {"0.32"}  # that one has a file of its own


def test_a_prompt_alone_is_held_back_until_0_30() -> None:
    def steps(release: str) -> int:
        engine = Engine(blocks=100, threshold=64, release=release)
        return simulate(Trace([Arrival(0, 640, 1)], 16), engine, StepTime()).steps

    assert steps("0.30.1") == 10
    assert steps("0.31.0") == 1


def test_since_0_33_others_go_on_after_a_request_that_preempts_itself() -> None:
    """The one that matters least stands first and lacks a block: what it gives back served nobody in that
    step until 0.32."""

    def served(release: str, policy: str) -> tuple[list[tuple[int, int]], int]:
        arrivals = [Arrival(0, 31, 10, priority=2), Arrival(1, 8, 4, priority=1), Arrival(1, 8, 4)]
        engine = Engine(blocks=4, caching=False, reserve=False, policy=policy, release=release)
        answer = simulate(Trace(arrivals, 16), engine, StepTime(10, 0, 0), rows=True)
        single = simulate(Trace(arrivals, 16), engine, StepTime(10, 0, 0), rows=True, jump=False)
        assert answer.digest() == single.digest()
        assert answer.rows is not None
        assert answer.preemptions == 1
        return [(row[3], row[7]) for row in answer.rows if row[7]], answer.empty

    assert served("0.32", "priority") == ([], 2)  # the last step of all is empty too
    assert served("0.33", "priority") == ([(2, 1)], 1)
    assert served("0.32", "fcfs") == served("0.33", "fcfs")


def test_states_beside_a_prefix_cache_are_aligned_since_0_33() -> None:
    def serves(states: str, caching: bool) -> int:
        engine = Engine(
            blocks=100, groups=(Group("state"), Group()), states=states, caching=caching, release="0.33"
        )
        return simulate(Trace([Arrival(0, 64, 2)], 16), engine, StepTime()).steps

    assert (serves("align", True), serves("none", False)) == (3, 2)  # aligned: cut once at the last boundary
    with pytest.raises(KvplanError, match="mode none"):
        serves("none", True)


@pytest.mark.parametrize(("version", "taken", "noted"), [
    ("0.32", "0.32", False), ("0.33", "0.33", False), ("0.33.1", "0.33.1", False), ("0.99", KNOWN[-1], True),
])  # fmt: skip
def test_only_a_release_newer_than_is_known_is_taken_for_another(
    version: str, taken: str, noted: bool
) -> None:
    notes: list[str] = []
    assert release_of(version, KNOWN, "vLLM", notes) == taken
    assert bool(notes) is noted
    rules_of(taken)


def test_unknown_releases_are_refused() -> None:
    for release in ("0.19", "1.0", "main", ""):
        with pytest.raises(RefusedError, match="not known"):
            rules_of(release)
    with pytest.raises(KvplanError, match="retention"):
        simulate(Trace([], 16), Engine(blocks=100, retention=0, release="0.28"), StepTime())


def test_a_model_with_states_is_served_without_prefix_caching(capsys: pytest.CaptureFixture[str]) -> None:
    trace = Path(__file__).parents[2] / "examples" / "traces" / "chat-sessions.jsonl.gz"
    words = [
        "jamba-1.5-mini",
        "--engine",
        "vllm@0.33",
        "--gpu",
        "h100",
        "--tp",
        "4",
        "--first",
        "40",
        "--trace",
        str(trace),
    ]
    assert main(["simulate", *words, "--no-enable-prefix-caching"]) == 0
    assert "vLLM 0.33's scheduler" in capsys.readouterr().out


def test_before_0_26_windows_give_back_what_is_under_way() -> None:
    """With steps in flight a window's block is free a step sooner."""

    def free(release: str) -> list[int]:
        engine = Engine(
            blocks=100,
            groups=(Group("window", 16, 17), Group()),
            overlap=True,
            caching=False,
            release=release,
        )
        found = simulate(Trace([Arrival(0, 20, 40)], 16), engine, StepTime(), rows=True)
        single = simulate(Trace([Arrival(0, 20, 40)], 16), engine, StepTime(), rows=True, jump=False)
        assert found.rows is not None
        assert found.rows == single.rows
        return [row[6] for row in found.rows]

    sooner, later = free("0.24"), free("0.26")
    assert sooner != later
    assert all(one >= other for one, other in zip(sooner, later))
