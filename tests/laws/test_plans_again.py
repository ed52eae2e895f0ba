"""A plan planned anew: what `plan PLAN` finds is held to everything that the plan required."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import kvplan
from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.plans.plan import SAFE, Plan
from kvplan.plans.workload import Shape, Workload
from kvplan.record import field_names
from kvplan.report.plan_file import plan_text
from kvplan.units import GIB
from tests.laws.sampling import WHOLE

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "plans"
SOME = (
    "chat-environments chat-qwen3-8b-night deepseek-v3-sglang-8xh200 llama-3.3-70b-fp8-trtllm-2xh200"
    " rtx-4090-llama.cpp-qwen3-8b mig-llama-3.2-3b-h100 agents-qwen3-32b-h200 llama-3.1-405b-fp8-8xh100"
).split()
"""Every engine, a mix with prompts kept for reuse, and one that needs more GPUs in the safe pool."""
FILES = sorted(path for path in FOLDER.glob("*.yaml") if WHOLE or path.stem in SOME)
pytestmark = pytest.mark.laws


def kept(old: Plan, new: Plan) -> dict[str, tuple[object, object]]:
    """What was required, and is not."""
    pairs = {
        name: (getattr(old.require, name), getattr(new.require, name))
        for name in field_names(type(old.require))
    }
    pairs.pop("pool")
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_found_passes(path: Path, tmp_path: Path) -> None:
    for plan in kvplan.load_plans(path, environment="all"):
        if plan.require.simulated:
            continue  # below
        result = kvplan.plan(plan, depth=False, top=1)
        best = result.plan
        assert best is not None, result.reasons
        assert (best.model, best.engine) == (plan.model, plan.engine)
        assert best.settings.gpu == plan.settings.gpu
        assert not kept(plan, best)
        written = tmp_path / "plan.yaml"
        written.write_text(plan_text(best, directory=tmp_path), encoding="utf-8")
        report = kvplan.check(written)
        assert report.exit_code == 0, [finding.message for finding in report.plans[0].findings]
        (read,) = kvplan.load_plans(written)
        assert (read.require, read.workload, read.settings) == (best.require, best.workload, best.settings)


def test_a_trace_is_simulated_or_a_number_is_given() -> None:
    (plan,) = kvplan.load_plans(FOLDER / "chat-llama-3.1-8b-trace-h100.yaml")
    with pytest.raises(KvplanError, match="only a simulation says") as caught:
        kvplan.plan(plan)
    assert "kvplan simulate PLAN --replicas auto" in caught.value.help
    result = kvplan.plan(plan, requests=24, depth=False, top=1)
    assert result.plan is not None
    assert not kept(plan, result.plan)
    assert any("kvplan check simulates" in warning for warning in result.warnings)


def a_plan(**changes: object) -> Plan:
    (plan,) = kvplan.load_plans(FOLDER / "chat-qwen3-8b-night.yaml")
    return replace(plan, **changes)  # type: ignore[arg-type]


def few(plan: Plan, **asked: object) -> Plan:
    result = kvplan.plan(plan, depth=False, top=1, **asked)  # type: ignore[arg-type]
    assert result.plan is not None
    return result.plan


def test_the_workload_and_the_requests_that_are_required_both_count() -> None:
    light = Workload((Shape(100, 100),), requests_in_flight=2)
    small = a_plan(workload=light)
    alone = few(replace(small, require=replace(small.require, requests=None, tokens=None)))
    both = few(replace(small, require=replace(small.require, requests=400, tokens=4096)))
    assert alone.gpus == 1 < both.gpus
    assert both.workload is not None
    assert both.workload.shapes == light.shapes
    assert (both.require.requests, both.require.tokens) == (400, 4096)


def test_what_is_kept_free_and_what_it_may_cost_count() -> None:
    plan = a_plan()
    require = replace(plan.require, requests=60)
    free, full = (replace(plan, require=replace(require, prefix_cache_bytes=size)) for size in (0, 18 * GIB))
    assert few(free).gpus < few(full).gpus
    priced = replace(full, price_per_gpu_hour=Fraction(2))
    dear = kvplan.plan(replace(priced, require=replace(full.require, max_cost_per_hour=Fraction(2))))
    assert dear.plan is None
    assert few(replace(priced, require=replace(full.require, max_cost_per_hour=Fraction(20)))).gpus > 1
    nowhere = replace(plan, require=replace(require, max_cost_per_hour=Fraction(2)))
    assert next(reason.code for reason in kvplan.plan(nowhere, depth=False).reasons) == "price"


def test_what_is_typed_counts_first() -> None:
    plan = a_plan()
    assert few(plan, gpu=["h100", "h200"]).settings.gpu != plan.settings.gpu
    more = few(plan, requests=500)
    assert more.require.requests == 500
    assert more.gpus > few(plan).gpus
    longer = few(plan, tokens=16000)
    assert (longer.require.requests, longer.require.tokens) == (24, 16000)
    assert few(plan, kv_cache_dtype="fp8").settings.kv_cache_dtype == "fp8"
    assert few(plan, gpu_memory_utilization="0.8").settings.gpu_memory_utilization == Fraction(8, 10)
    assert few(plan, pool="likely").require.pool == "likely"
    assert few(plan).require.pool == SAFE
    with pytest.raises(KvplanError, match="max_model_len 16,384 is shorter"):
        kvplan.plan(plan, tokens=20000)


def test_the_checkpoint_stays_unless_a_quality_is_asked_for() -> None:
    (plan,) = kvplan.load_plans(FOLDER / "chat-llama-3.3-70b-4xh100.yaml")
    plan = replace(plan, workload=None)
    own, others = (kvplan.plan(plan, depth=False, quality=quality) for quality in (None, "safe"))
    assert not any(option.other_checkpoint for option in own.options)
    assert any(option.other_checkpoint for option in others.options)


def test_another_engine_takes_no_flags_of_the_first() -> None:
    (plan,) = kvplan.load_plans(FOLDER / "rtx-4090-qwen3-8b-fp8.yaml")
    result = kvplan.plan(plan, engine="sglang", depth=False)
    assert result.plan is not None
    assert result.plan.engine.startswith("sglang@")
    assert "of the flags of vllm@0.33 none is taken to sglang" in result.warnings
    assert not kept(plan, result.plan)


def test_a_pool_that_is_stated_is_left_out_with_a_word() -> None:
    plan = a_plan()
    stated = replace(plan, settings=replace(plan.settings, kv_cache_memory=8 * GIB))
    result = kvplan.plan(stated, depth=False)
    assert result.warnings[0] == "kv_cache_memory_bytes is left out: the pool follows from the GPU"
    assert few(stated).serve == few(plan).serve


def test_flags_that_change_no_memory_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    text = (FOLDER / "rtx-4090-qwen3-8b-fp8.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("serve:\n", "serve:\n  served_model_name: chat\n"), encoding="utf-8")
    (plan,) = kvplan.load_plans(path)
    assert dict(few(plan).serve)["served_model_name"] == "chat"


def test_a_plan_without_a_load_is_planned_as_it_is_served() -> None:
    plan = a_plan()
    bare = replace(plan, require=replace(plan.require, requests=None, tokens=None))
    result = kvplan.plan(bare, depth=False)
    assert result.shapes[0].tokens == 16384
    assert result.requests == 1


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(list(words))
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_the_command_takes_a_plan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, out = str(FOLDER / "chat-environments.yaml"), str(tmp_path / "new.yaml")
    monkeypatch.setenv("KVPLAN_ENGINE", "sglang")  # a plan is the same on every machine
    code, text = shown(capsys, "plan", path, "--env", "prod", "--write", out, "--json")
    assert code == 0
    answer = json.loads(text)
    assert answer["engine"]["name"] == "vllm"
    assert answer["requests"] == 120
    (plan,) = kvplan.load_plans(out)
    assert plan.settings.gpu is not None
    assert plan.settings.gpu.slug == "h100-sxm-80gb"
    assert plan.require.requests == 120
    assert plan.require.headroom == Fraction(1, 10)
    assert shown(capsys, "check", out)[0] == 0
    code, text = shown(capsys, "plan", path, "--env", "prod", "--gpu", "h200", "-n", "3")
    assert "1 × h200-sxm-141gb serves 3 requests of 8,192 tokens" in text
    assert "--env prod --write" in " ".join(text.split())
    code, text = shown(capsys, "plan", path, "--env", "nowhere")
    assert code == 2
    assert "nowhere" in text


def test_a_trace_is_found_from_the_new_plan(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    (old / "trace.csv").write_text("input_tokens,output_tokens\n500,100\n900,50\n", encoding="utf-8")
    (old / "plan.yaml").write_text(
        "kvplan: plan/v1\nmodel: qwen3-8b\nengine: vllm@0.33\ngpu: l40s\ngpus: 1\n"
        "workload:\n  trace: trace.csv\n  trace_columns: {input: input_tokens, output: output_tokens}\n"
        "  requests_in_flight: 4\n",
        encoding="utf-8",
    )
    assert main(["plan", str(old / "plan.yaml"), "--write", str(new / "plan.yaml")]) == 0
    (plan,) = kvplan.load_plans(new / "plan.yaml")
    assert plan.workload is not None
    assert plan.workload.trace == "../old/trace.csv"


def test_the_path_of_a_plan_is_no_model_and_is_told_so() -> None:
    for asked in (kvplan.size, kvplan.plan):
        with pytest.raises(KvplanError) as caught:
            asked(str(FOLDER / "chat-qwen3-8b-day.yaml"))
        assert caught.value.help == ("this is a plan: kvplan.load_plans(path) reads it",)
