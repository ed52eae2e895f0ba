"""vLLM with pipeline stages: equal to its own scheduler step by step, and properties of its times."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.api import load_gpu, load_model
from kvplan.errors import KvplanError
from kvplan.files.speed import speed_inputs
from kvplan.planning.speed import speed_profile
from kvplan.planning.speed.profile import Deployment
from kvplan.planning.speed.steps import step_seconds
from kvplan.plans.arrival import Arrival
from kvplan.record import replace
from kvplan.simulation.schedulers import simulate_any
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.time.results import COLUMNS
from kvplan.simulation.time.speed_clock import SpeedClock
from kvplan.simulation.time.timeline import Trace
from kvplan.simulation.vllm.drafts import Drafts
from kvplan.simulation.vllm.pipeline import Pipelined
from kvplan.simulation.vllm.settings import Engine
from kvplan.simulation.vllm.step import Step
from kvplan.units import SECOND
from scripts.check_scheduler import difference, trace_of, vllm_engine
from scripts.scheduler_scenarios import pipelined, scenario
from tests.simulation.outcomes import simulated

RECORD = Path(__file__).with_name("vllm_pipelines.json.gz")
SCENARIOS: dict[str, Any] = json.loads(gzip.decompress(RECORD.read_bytes()))["scenarios"]
"""Of 150 random ones asked of 0.32, all equal, those that preempt most and some others; a few of other
releases (scripts.record_vllm_scheduler, STAGES=1)."""
NOWHERE = Path()


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_equal_to_vllms_own_scheduler(name: str) -> None:
    assert difference(SCENARIOS[name], NOWHERE) is None


def test_what_can_be_set_is_recorded() -> None:
    engines = [one["engine"] for one in SCENARIOS.values()]
    assert {engine["stages"] for engine in engines} == {2, 3, 4}
    assert {engine["async_scheduling"] for engine in engines} == {False, True}
    assert {engine["policy"] for engine in engines} == {"fcfs", "priority"}
    assert sum(sum(one["requests"]["preemptions"]) for one in SCENARIOS.values()) > 100


@pytest.mark.parametrize("seed", range(12))
def test_one_stage_is_no_pipeline(seed: int) -> None:
    said = scenario(seed)
    engine, trace = vllm_engine(said["engine"]), trace_of(said["trace"], NOWHERE)
    plain = simulate_any(trace, engine, StepTime(**said["step"]))
    staged = Pipelined(trace, engine, StepTime(**said["step"]), jump=True, rows=False).run()
    assert {name: staged.columns[name] for name in COLUMNS} == plain.columns


@pytest.mark.parametrize("seed", range(40, 56))
def test_every_request_makes_its_tokens_and_times_are_in_order(seed: int) -> None:
    said = pipelined(seed)
    engine, trace = vllm_engine(said["engine"]), trace_of(said["trace"], NOWHERE)
    answer = simulate_any(trace, engine, StepTime(**said["step"]))
    for number, row in enumerate(trace.arrivals):
        column = {name: values[number] for name, values in answer.columns.items()}
        if column["refused"]:
            continue
        assert row.at_ns <= column["admitted_ns"] < column["first_token_ns"] <= column["finished_ns"]


def _profile(stages: int) -> SpeedClock:
    model, gpu = load_model("llama-3.1-8b"), load_gpu("h100")
    inventory, per_token, table = speed_inputs(model)
    deployment = Deployment(pipeline_parallel_size=stages)
    return SpeedClock(speed_profile(model, gpu, inventory, per_token, deployment, table))


@pytest.mark.parametrize("count", [1, 7, 64])
def test_stages_together_are_the_estimates_step(count: int) -> None:
    """The stages of a batch take what the speed estimate says of a pipeline with a batch for each stage."""
    clock = _profile(2)
    step = Step()
    step.count = step.tokens = count
    step.context = 1024 * count
    whole = step_seconds(clock.profile, 2 * count, ((1024, 1.0),)) * SECOND
    assert sum(clock.stages(step, 2)) == pytest.approx(whole, abs=4)
    assert clock.lasts(step) == pytest.approx(whole, rel=1e-3)


def test_a_pipeline_serves_more_at_once_than_one_batch_after_another() -> None:
    """Sixteen requests that come at once: two stages are at work at a time, so they end sooner than with
    stages that wait for each other, and no sooner than with both halves of every step at once."""
    rows = [Arrival(0, 64, 50, ()) for _ in range(16)]
    time = StepTime(2_000_000, 0, 0)
    one = Engine(blocks=4000, sequences=8, release="0.32")
    ends = [
        simulate_any(Trace(rows, 1), replace(one, stages=stages, sequences=8 * stages), time).end_ns
        for stages in (1, 2)
    ]
    assert ends[0] / 2 <= ends[1] < 0.6 * ends[0]


@pytest.mark.parametrize("overlap", [False, True])
def test_drafts_in_a_pipeline_are_refused(overlap: bool) -> None:
    engine = Engine(
        blocks=100, stages=2, overlap=overlap, release="0.32", drafts=Drafts(1, (1 << 31,), 1, 0, False)
    )
    with pytest.raises(KvplanError, match="pipeline with drafts"):
        engine.check()


def test_releases_that_resume_requests_at_once_are_refused() -> None:
    """Up to 0.30 a preempted request went on before its tokens of other batches were known."""
    with pytest.raises(KvplanError, match=r"vLLM 0\.30 is not simulated"):
        Engine(blocks=100, stages=2, release="0.30").check()


def test_the_first_runner_with_async_scheduling_is_refused() -> None:
    """vLLM up to 0.28 serves experts with its first runner."""
    with pytest.raises(KvplanError, match="first model runner"):
        simulated(
            "qwen3-30b-a3b", trace="examples/traces/chat-sessions.jsonl.gz", gpu="h100",
            engine="vllm@0.28", pipeline_parallel_size=2,
        )  # fmt: skip
