"""kvplan's scheduler against vLLM's own: every step and every request equal to the digit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.plans.arrival import Arrival
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine, Group
from scripts.check_scheduler import difference, main, trace_of
from scripts.scheduler_scenarios import scenario

RECORD = Path(__file__).with_name("vllm_scheduler.json.gz")
SCENARIOS: dict[str, Any] = json.loads(gzip.decompress(RECORD.read_bytes()))["scenarios"]
BROAD: dict[str, Any] = json.loads(
    gzip.decompress(RECORD.with_name("vllm_scheduler_broad.json.gz").read_bytes())
)["scenarios"]
"""Of 508 broader ones asked of 0.32 and 0.33 (up to six groups, tiny pools, one system prompt, priorities
below 0), all equal, the 40 that preempt most or have most groups."""
SHARED = Path("../shared/data/vllm_scheduler_answers.json")
TRACES = Path("../shared/traces")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_recorded_scenarios(name: str) -> None:
    assert difference(SCENARIOS[name], TRACES) is None


@pytest.mark.parametrize("name", sorted(BROAD))
def test_broader_scenarios(name: str) -> None:
    assert difference(BROAD[name], TRACES) is None


def test_the_broader_ones_are_of_two_releases_and_of_many_groups() -> None:
    engines = [one["engine"] for one in BROAD.values()]
    assert {engine.get("release", "0.32") for engine in engines} == {"0.32", "0.33"}
    assert max(len(engine["groups"]) for engine in engines) >= 5
    assert {engine["async_scheduling"] for engine in engines} == {False, True}
    assert sum(sum(one["requests"]["preemptions"]) for one in BROAD.values()) > 400


def test_everything_that_can_be_set_is_recorded() -> None:
    engines = [one["engine"] for one in SCENARIOS.values()]
    kinds = {group["kind"] for engine in engines for group in engine["groups"]}
    assert kinds == {"full", "window", "chunk", "state"}
    for name in (
        "async_scheduling",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "scheduler_reserve_full_isl",
    ):
        assert {engine[name] for engine in engines} == {False, True}
    for name in ("watermark", "long_prefill_token_threshold", "retention", "policy", "mamba_cache_mode"):
        assert len({engine[name] for engine in engines}) > 1
    preempted = sum(sum(one["requests"]["preemptions"]) for one in SCENARIOS.values())
    again = sum(sum(one["requests"]["cached_again_tokens"]) for one in SCENARIOS.values())
    assert preempted > 100
    assert again > 1000


@pytest.mark.skipif(not SHARED.exists(), reason="../shared is not here")
@pytest.mark.parametrize(
    "name", ["sessions-tight-async", "sessions-states-align", "sessions-priority", "code-budget-2048"]
)
def test_large_scenarios(name: str) -> None:
    assert difference(json.loads(SHARED.read_text())["scenarios"][name], TRACES) is None


def test_the_command_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (json.loads(json.dumps(SCENARIOS[name])) for name in sorted(SCENARIOS)[:2])
    second["requests"]["finished_ns"][-1] += 1
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"scenarios": {"same": first, "other": second}}))
    assert main([str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("same")
    assert "equal" in lines[0]
    assert "finished_ns of request" in lines[1]
    assert lines[-1] == "1 of 2 scenarios equal"
    file.write_text(json.dumps({"scenarios": {"same": first}}))
    assert main([str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 scenarios equal"


@pytest.mark.vllm
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_live(seed: int) -> None:
    pytest.importorskip("vllm")
    from scripts.record_vllm_scheduler import answer

    recorded = answer(scenario(seed), TRACES)
    if "error" in recorded:
        pytest.skip(recorded["error"])
    assert difference(recorded, TRACES) is None


@pytest.mark.skipif(not TRACES.exists(), reason="../shared is not here")
def test_prompts_one_after_another_find_what_a_pool_keeps() -> None:
    """Published marks of the Mooncake conversation trace: the share of its ids that a pool still has."""
    trace = trace_of(
        {"kind": "mooncake", "file": "mooncake_fast25_conversation.jsonl", "block_tokens": 512}, TRACES
    )
    alone = [Arrival(row.at_ns, len(row.ids) * 512 + 1, 1, row.ids) for row in trace.arrivals]
    whole = sum(len(row.ids) for row in alone)
    for blocks, mark in ((1000, 4.45), (10_000, 21.16), (50_000, 35.46), (10**6, 36.64)):
        engine = Engine(
            blocks=blocks + 1, block=512, groups=(Group("full", 512),), sequences=1, length=1 << 20
        )
        answer = simulate(Trace(alone, 512), engine, StepTime(1, 0, 0))
        assert round(100 * sum(answer.columns["cached_tokens"]) / 512 / whole, 2) == mark
