"""Speculative decoding: vLLM's own scheduler, the words of an acceptance, what drafting takes of a step."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.acceptance import Acceptance, acceptance_of
from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.record import replace
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.drafts import Drafts, scaled
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine, Group
from scripts.check_scheduler import difference
from scripts.scheduler_scenarios import drafting
from tests.simulation.outcomes import simulated

RECORD = Path(__file__).with_name("vllm_drafts.json.gz")
SCENARIOS: dict[str, Any] = json.loads(gzip.decompress(RECORD.read_bytes()))["scenarios"]
"""Of 569 workloads asked of 0.32 (389) and 0.33 (180), all equal, the 48 that preempt or hit most."""
TRACE = [Arrival(at * 40_000_000, 600, 200, ()) for at in range(60)]


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_recorded_scenarios(name: str) -> None:
    assert difference(SCENARIOS[name], RECORD) is None


def test_every_method_release_and_way_of_scheduling_is_recorded() -> None:
    engines = [one["engine"] for one in SCENARIOS.values()]
    assert {engine["drafts"]["method"] for engine in engines} == {"ngram", "eagle", "mtp", "draft_model"}
    assert {engine.get("release", "0.32") for engine in engines} == {"0.32", "0.33"}
    assert {engine["async_scheduling"] for engine in engines} == {False, True}
    assert {engine["policy"] for engine in engines} == {"fcfs", "priority"}
    assert sum(sum(one["requests"]["preemptions"]) for one in SCENARIOS.values()) > 100
    assert sum(sum(one["requests"]["cached_tokens"]) for one in SCENARIOS.values()) > 1000


@pytest.mark.vllm
@pytest.mark.parametrize("seed", range(5000, 5012))
def test_live(seed: int) -> None:
    pytest.importorskip("vllm")
    from scripts.record_vllm_scheduler import answer

    recorded = answer(drafting(seed), RECORD)
    if "error" in recorded:
        pytest.skip(recorded["error"])
    assert difference(recorded, RECORD) is None


def engine(share: float, tokens: int = 3) -> Engine:
    return Engine(
        blocks=4000, groups=(Group(),), length=4096,
        drafts=Drafts(tokens, scaled((share,) * tokens), ahead=tokens, drops=True),
    )  # fmt: skip


def test_steps_are_as_many_as_tokens_need() -> None:
    """All right: an answer of 200 takes its first step and 199 / 4 more; none right: as without drafts."""
    one, clock = Trace(TRACE[:1], 1), StepTime(1000, 0, 0)
    assert simulate(one, engine(1.0), clock).steps == 1 + 50
    assert simulate(one, engine(0.0), clock).steps == 200
    assert simulate(one, replace(engine(0.0), drafts=None), clock).steps == 200


def test_the_share_that_is_asked_for_is_the_share_that_is_made() -> None:
    steps = 0
    for seed in range(1, 9):
        drafts = Drafts(3, scaled((0.7,) * 3), seed=seed)
        alone = replace(engine(0.7), drafts=drafts, sequences=1)
        steps += simulate(Trace(TRACE, 1), alone, StepTime(1000, 0, 0)).steps - len(TRACE)
    # of the last step of a request what lies beyond its end is cut off: less than one token in 199
    assert 8 * len(TRACE) * 199 / steps == pytest.approx(Acceptance((0.7,) * 3).length, rel=0.01)


def test_a_request_takes_the_same_steps_whoever_runs_beside_it() -> None:
    alone = simulate(Trace(TRACE, 1), replace(engine(0.6), sequences=1), StepTime(1000, 0, 0), rows=True)
    beside = simulate(Trace(TRACE, 1), engine(0.6), StepTime(1000, 0, 0), rows=True)
    assert alone.rows is not None
    assert beside.rows is not None
    assert sum(row[3] for row in alone.rows) == sum(row[3] for row in beside.rows)


@pytest.mark.parametrize(
    ("text", "drafted", "length"),
    [("0.5", 1, 1.5), ("70%", 3, 3.1), ("2.4", 3, 2.4), ("0.8,0.6,0.4", 3, 2.8), ("100%", 4, 5), ("0%", 2, 1),
     ("0", 2, 1), ("4", 3, 4)],
)  # fmt: skip
def test_words_of_an_acceptance(text: str, drafted: int, length: float) -> None:
    assert acceptance_of(text, drafted).length == pytest.approx(length)


@pytest.mark.parametrize("text", ["1", "", "x", "-0.5", "nan", "5", "140%", "0.8,0.6", "0.4,0.6,0.2", "1e-1"])
def test_what_is_no_acceptance(text: str) -> None:
    with pytest.raises(KvplanError) as caught:
        acceptance_of(text, 3)
    assert caught.value.code == "bad-acceptance"
    assert caught.value.help


def asked(**more: Any) -> Any:
    options: dict[str, Any] = {
        "trace": TRACE, "gpu": "h200", "tensor_parallel_size": 8, "max_model_len": 8192, "replicas": 1,
        "search": False, "helps": False, "pool": "likely", "speculative_method": "mtp",
        "num_speculative_tokens": 1,
    } | more  # fmt: skip
    return simulated("glm-4.6", **options)


def test_more_that_is_right_is_faster_and_drafting_takes_time() -> None:
    tpots = [asked(acceptance=word).tpot(0.5).value for word in ("0%", "50%", "100%")]
    plain = asked(speculative_method=None, num_speculative_tokens=0).tpot(0.5).value
    assert tpots == sorted(tpots, reverse=True)
    assert plain < tpots[0] < 1.5 * plain
    assert tpots[2] > plain / 2


def test_without_an_acceptance_the_ways_are_named() -> None:
    with pytest.raises(KvplanError) as caught:
        asked()
    assert caught.value.code == "no-acceptance"
    assert any("--acceptance" in way for way in caught.value.help)
    with pytest.raises(KvplanError, match="none are drafted"):
        asked(speculative_method=None, num_speculative_tokens=0, acceptance=0.5)
    with pytest.raises(KvplanError, match="nor how long it takes"):
        asked(speculative_method="eagle3", acceptance=0.5)


def test_drafts_beside_windows_are_refused() -> None:
    windowed = replace(engine(0.5), groups=(Group("window", 16, 64),))
    with pytest.raises(KvplanError, match="beside windows"):
        windowed.check()
    with pytest.raises(KvplanError, match=r"under vLLM 0\.31"):
        replace(engine(0.5), release="0.31").check()
