"""Targets of TTFT and TPOT: what `plan` writes, `check` holds by the same estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.plans.findings import Severity
from kvplan.plans.workload import Shape, Workload
from kvplan.report.plan_file import plan_text
from tests.laws.sampling import sampled

MODELS = ("llama-3.1-8b", "llama-3.3-70b", "qwen3-30b-a3b", "gpt-oss-20b")


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    shape = Shape(draw(st.integers(50, 6000)), draw(st.integers(1, 800)))
    asked: dict[str, Any] = {
        "workload": Workload((shape,)),
        "gpu": draw(st.sampled_from(("h100", "l40s", "h200"))),
        "engine": draw(st.sampled_from(("vllm", "sglang"))),
        "tpot": draw(st.sampled_from((0.015, 0.03, 0.06))),
    }
    if draw(st.booleans()):
        asked |= {
            "arrival": draw(st.sampled_from((1, 5, 20))),
            "ttft": draw(st.sampled_from((0.3, 1.0, 3.0))),
        }
    else:
        asked |= {"requests": draw(st.integers(1, 200))}
    return asked


@pytest.mark.laws
@sampled(3, 200)
@given(model=st.sampled_from(MODELS), asked=questions())
def test_what_a_plan_writes_for_targets_passes_its_check(
    model: str, asked: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = kvplan.plan(model, depth=False, **asked)
    if found.plan is None:
        return
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    path.write_text(plan_text(found.plan), encoding="utf-8")
    (checked,) = kvplan.check(path).plans
    assert [finding.message for finding in checked.findings if finding.severity is Severity.ERROR] == []


PLAN = """
kvplan: plan/v1
name: targets
model: llama-3.3-70b
engine: vllm@0.33
gpu: h100
gpus: 4
serve: {{tensor_parallel_size: 4, max_model_len: 8192}}
workload: {{input_tokens: 4000, output_tokens: 500, {load}}}
require: {{requests: 8, tokens: 4500}}
"""


def _codes(folder: Path, load: str) -> list[str]:
    path = folder / "plan.yaml"
    path.write_text(PLAN.format(load=load), encoding="utf-8")
    (checked,) = kvplan.check(path).plans
    return [finding.code for finding in checked.findings]


@pytest.mark.parametrize(
    ("load", "missed"),
    [
        ("requests_in_flight: 8, tpot: 1ms", 1),
        ("requests_in_flight: 8, tpot: 10s", 0),
        ("requests_in_flight: 8, ttft: 1ms, tpot: 1ms", 2),
        ("requests_per_second: 0.1, ttft: 2s, tpot: 50ms", 0),
        ("requests_per_second: 50, ttft: 2s, tpot: 50ms", 1),
    ],
)
def test_a_target_that_the_estimate_misses_fails_the_check(tmp_path: Path, load: str, missed: int) -> None:
    codes = _codes(tmp_path, load)
    assert codes.count("target-missed") + codes.count("goodput-too-low") == missed


def test_a_rate_alone_is_said_not_to_be_checked(tmp_path: Path) -> None:
    assert "arrivals-not-checked" in _codes(tmp_path, "requests_per_second: 5")
    assert "arrivals-not-checked" not in _codes(tmp_path, "requests_per_second: 0.1, tpot: 1s")
