"""The whole answer: options confirmed by the engine, reasons, ways out that hold, a plan that passes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api.runs_on import runs_on
from kvplan.cli import main
from kvplan.engines.budget import divides
from kvplan.engines.budget.law import Rejection
from kvplan.errors import KvplanError
from kvplan.files.gpus.listed import list_gpus
from kvplan.gpu import Gpu
from kvplan.planning.confirm import holds
from kvplan.planning.planner import make_plan
from kvplan.planning.reasons import suggested_fixes
from kvplan.planning.results import Option, PlanResult
from kvplan.planning.search import search
from kvplan.plans.fleet import Fleet, Offer
from kvplan.plans.workload import Shape, Workload
from kvplan.report.plan_file import plan_text
from tests.laws.sampling import some
from tests.planning.asks import a_gpu, an_ask, priced


def written(result: PlanResult, path: Path) -> str:
    assert result.plan is not None
    path.write_text(plan_text(result.plan, directory=path.parent), encoding="utf-8")
    return str(path)


CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama-3.1-8b", {"tokens": "8k", "requests": 4, "gpu": "rtx-3090"}),
    ("qwen3-32b", {"tokens": "8k", "requests": 3, "gpu": "2xrtx-3090", "pool": "likely"}),
    ("llama-3.1-70b", {"tokens": "16k", "requests": 32, "gpu": "8xh100"}),
    ("deepseek-v3", {"tokens": "16k", "requests": 64, "gpu": "8xh200", "pool": "safe"}),
    ("gpt-oss-120b", {"tokens": "8k", "requests": 100, "gpu": "b200", "headroom": "0.1"}),
    ("qwen3-next-80b-a3b-instruct", {"tokens": "32k", "requests": 64, "gpu": "mi300x"}),
    ("llama-3.1-8b", {"tokens": "8k", "requests": 50, "gpu": "l40s", "engine": "sglang"}),
    ("gpt-oss-20b", {"tokens": "8k", "requests": 50, "gpu": "h100", "engine": "trtllm"}),
]


@pytest.mark.parametrize(("model", "asked"), CASES)
def test_the_plan_passes_its_own_check(model: str, asked: dict[str, Any], tmp_path: Path) -> None:
    result = kvplan.plan(model, depth=False, **asked)
    assert result.ok
    report = kvplan.check(written(result, tmp_path / "plan.yaml"))
    assert report.exit_code == 0, [finding.message for finding in report.plans[0].findings]
    best = result.options[0]
    assert best.requests >= asked["requests"]
    assert best.gpus == best.replicas * result.plan.gpus_per_replica  # type: ignore[union-attr]
    written_values = dict(best.serve)
    assert asked.get("engine") or {"max_model_len", "max_num_seqs", "max_num_batched_tokens"} <= set(
        written_values
    )


def test_a_plan_one_gpu_smaller_fails_its_check(tmp_path: Path) -> None:
    from dataclasses import replace

    result = kvplan.plan("llama-3.1-8b", tokens="8k", requests=40, gpu="rtx-3090", tp=1, pp=1, depth=False)
    assert result.plan is not None
    assert result.plan.gpus > 1
    less = replace(result, plan=replace(result.plan, gpus=result.plan.gpus - 1))
    assert kvplan.check(written(less, tmp_path / "plan.yaml")).exit_code == 1


def test_a_mix_is_planned_and_checked(tmp_path: Path) -> None:
    load = Workload((Shape(500, 300, 5), Shape(6000, 300, 1)), requests_in_flight=40)
    result = kvplan.plan("llama-3.1-8b", workload=load, gpu="rtx-3090", depth=False)
    assert kvplan.check(written(result, tmp_path / "plan.yaml")).exit_code == 0
    longest = kvplan.plan("llama-3.1-8b", tokens=6300, requests=40, gpu="rtx-3090", depth=False)
    assert result.options[0].gpus < longest.options[0].gpus


def test_arrivals_become_requests_in_flight() -> None:
    """As many as the estimated times keep under way, not as the limits would."""
    load = Workload(
        (Shape(1000, 200),),
        requests_per_second=Fraction(3),
        ttft_seconds=Fraction(2),
        tpot_seconds=Fraction(1, 20),
    )
    result = kvplan.plan("llama-3.1-8b", workload=load, gpu="h100", depth=False)
    (best,) = [one for one in result.options if one.speed is not None][:1]
    assert best.speed is not None
    lasts = best.speed.ttft[1] + 200 * best.speed.tpot[1]
    assert result.requests - 1 <= 3 * lasts <= result.requests
    assert result.plan is not None
    assert result.plan.workload is not None
    assert result.plan.workload.requests_in_flight is None


@pytest.mark.parametrize("asked", [{"requests": 33}, {"requests": 80}, {"requests": 60, "max_gpus": 1}])
def test_what_is_suggested_holds(asked: dict[str, Any]) -> None:
    ask = an_ask("qwen3-32b", a_gpu(48, (8, 9)), tokens=8192, **asked)
    found = search(ask, wanted=1).found
    best = found[0] if found else None
    ways = suggested_fixes(ask, best)
    assert ways
    for way in ways:
        words = way.flags.split()
        changes: dict[str, Any] = {"requests": ask.requests, "tokens": 8192, "quality": "safe"}
        options: dict[str, Any] = {}
        for flag, value in zip(words[::2], words[1::2], strict=True):
            name = flag.removeprefix("--").replace("-", "_")
            if name == "gpu_memory_utilization":
                options[name] = value
            elif name != "gpu":
                changes[name] = int(value) if value.isdigit() else value
        again = kvplan.plan(
            "qwen3-32b", gpu=ask.offers[0].gpu, pool="likely", depth=False, **changes, **options
        )
        assert again.options[0].gpus == way.gpus
        assert best is None or way.gpus < best.gpus


def test_one_request_short_is_named() -> None:
    ask = an_ask("llama-3.1-8b", a_gpu(40), tokens=8192, quality="lossless", max_gpus=1)
    most = search(an_ask("llama-3.1-8b", a_gpu(40), tokens=8192, quality="lossless", max_gpus=1,
                         objective="requests"), wanted=1).found[0].requests  # fmt: skip
    from dataclasses import replace

    ways = suggested_fixes(replace(ask, requests=most + 1), None)
    assert any(way.change == "one request short" and way.flags == f"--requests {most}" for way in ways)


def test_reasons_name_the_nearest() -> None:
    result = make_plan(
        [an_ask("qwen3-32b", a_gpu(24, (8, 6)), a_gpu(16, (7, 5)), max_gpus=2, quality="lossless")],
        named="qwen3-32b",
    )
    assert not result.ok
    codes = {reason.code for reason in result.reasons}
    assert {"weights", "quality", "max-gpus"} <= codes
    weights = next(reason for reason in result.reasons if reason.code == "weights")
    assert "30.51 GiB a GPU" in weights.message
    assert "2" in weights.example
    assert sum(reason.candidates for reason in result.reasons) <= result.considered


def test_steps_and_sensitivity() -> None:
    result = kvplan.plan("llama-3.1-70b", tokens="16k", requests=32, gpu="h100")
    gpus = [step for step in result.steps if step.what == "gpus"]
    held = [step.requests for step in gpus]
    assert held == sorted(held)
    assert len(gpus) >= 3
    formats = {step.label: step for step in result.steps if step.what == "format"}
    assert formats["bfloat16 weights, fp8 cache"].requests > formats["bfloat16 weights, auto cache"].requests
    lengths = {effect.change: effect for effect in result.sensitivity if effect.name == "length"}
    assert lengths["half as long"].requests > lengths["twice as long"].requests
    assert {effect.name for effect in result.sensitivity} >= {
        "length",
        "requests",
        "utilisation",
        "KV format",
    }


def test_mistakes_are_named_in_the_plan_that_makes_them() -> None:
    latent = kvplan.plan("deepseek-v3", tokens="4k", requests=8, gpu="b200", tp=8, pp=1, dp=1, dcp=1,
                         depth=False, enable_expert_parallel=False)  # fmt: skip
    assert any("whole latent" in note for note in latent.options[0].notes)
    copies = kvplan.plan("qwen3-30b-a3b", tokens="4k", requests=8, gpu="h100", tp=8, depth=False)
    assert any("each head is kept 2 times" in note for note in copies.options[0].notes)
    windows = kvplan.plan("gpt-oss-20b", tokens="4k", requests=8, gpu="h100", depth=False)
    assert any("tokens in flight" in note for note in windows.options[0].notes)
    states = kvplan.plan("falcon-h1-7b", tokens="4k", requests=8, gpu="h100", depth=False)
    assert any("states" in note for note in states.options[0].notes)


def _tpot(option: Option) -> int:
    assert option.speed is not None
    return round(option.speed.tpot[1] * 10**6)


def test_the_front_has_nothing_that_another_beats() -> None:
    result = kvplan.plan("llama-3.1-8b", tokens="8k", requests=400, gpu=["l40s", "h100"], pareto=True,
                         depth=False)  # fmt: skip
    front = result.pareto
    assert len(front) > 2
    for one in front:
        assert not any(
            other is not one
            and other.gpus <= one.gpus
            and other.safe_requests >= one.safe_requests
            and other.max_model_len >= one.max_model_len
            and _tpot(other) <= _tpot(one)
            for other in front
        )


def test_a_fleet_has_numbers_and_prices() -> None:
    fleet = Fleet((priced(a_gpu(24, (8, 9)), 40, 2), priced(a_gpu(80), 250, 8)), currency="EUR")
    result = kvplan.plan("llama-3.1-8b", tokens="8k", requests=64, fleet=fleet, objective="cost", depth=False)
    best = result.options[0]
    assert best.cost_per_hour is not None
    assert result.currency == "EUR"
    assert all(
        other.cost_per_hour is None or other.cost_per_hour >= best.cost_per_hour for other in result.options
    )
    assert result.plan is not None
    assert float(result.plan.price_per_gpu_hour or 0) == best.cost_per_hour / best.gpus


def test_targets_of_speed_filter() -> None:
    slow = kvplan.plan("llama-3.1-70b", tokens="16k", requests=32, gpu="h100", depth=False)
    fast = kvplan.plan("llama-3.1-70b", tokens="16k", requests=32, gpu="h100", tpot="0.02", depth=False)
    assert slow.options[0].speed is not None
    assert fast.options[0].speed is not None
    assert slow.options[0].speed.tpot[1] > 0.02 >= fast.options[0].speed.tpot[1]
    assert fast.options[0].gpus > slow.options[0].gpus
    none = kvplan.plan("llama-3.1-70b", tokens="16k", requests=1, gpu="h100", tpot="0.0001", depth=False)
    assert not none.ok
    assert "tpot" in {reason.code for reason in none.reasons}


def test_what_the_speed_estimate_does_not_know_falls_only_where_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*_: object) -> Rejection:
        return Rejection("no-speed", "nobody knows")

    monkeypatch.setattr("kvplan.api.planning.speed_of", lambda *_: unknown)
    plain = kvplan.plan("llama-3.1-8b", tokens="8k", gpu="h100", depth=False)
    assert plain.ok
    assert plain.options[0].speed is None
    asked = kvplan.plan("llama-3.1-8b", tokens="8k", gpu="h100", tpot="1", depth=False)
    assert not asked.ok
    assert "no-speed" in {reason.code for reason in asked.reasons}


def test_the_engine_confirms_what_is_shown() -> None:
    ask = an_ask("gemma-3-27b", a_gpu(48, (8, 9)), a_gpu(80), requests=30, tokens=16384)
    for found in search(ask, wanted=0).found:
        assert holds(ask, found)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"objective": "requests"}, "bad-usage"),
        ({"tokens": "8k", "workload": Workload((Shape(1, 1),))}, "bad-usage"),
        ({"tokens": 0}, "bad-setting"),
        ({"tokens": "8k", "max_model_len": "4k"}, "bad-setting"),
        ({"tp": 0}, "bad-setting"),
        ({"pool": "sure"}, "bad-setting"),
        ({"gpu": "h10000"}, "unknown-gpu"),
        ({"tensor_parallel_size": 2}, "bad-usage"),
        ({"gpu": "h100", "fleet": Fleet((Offer(a_gpu(80)),))}, "unknown-gpu"),
    ],
)
def test_wrong_questions(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.plan("llama-3.1-8b", **{"gpu": "h100", **asked})
    assert caught.value.code == code


def test_stated_weights_are_the_only_ones() -> None:
    result = kvplan.plan("llama-3.1-8b", tokens="8k", engine="llamacpp", gpu="rtx-4090", requests=10,
                         settings={"weights": "6GiB"})  # fmt: skip
    assert {option.weights for option in result.options} == {"stated"}
    assert dict(result.options[0].serve)["parallel"] == 10


def test_the_cli_writes_what_check_accepts(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    arguments = ["plan", "llama-3.1-8b", "-n", "4", "-t", "8k", "--gpu", "l40s", "--write", str(path)]
    assert main(arguments) == 0
    assert main(["check", str(path)]) == 0
    assert main(arguments) == 2  # it is not overwritten
    assert main(["plan", "llama-3.1-70b", "--gpu", "1xrtx-3090", "--write", str(tmp_path / "no")]) == 1
    assert not (tmp_path / "no").exists()


def test_a_count_is_how_many_there_are() -> None:
    assert not kvplan.plan("llama-3.1-70b", tokens="8k", gpu="1xrtx-3090", depth=False).ok
    assert kvplan.plan("llama-3.1-70b", tokens="8k", gpu="rtx-3090", depth=False).ok
    both = kvplan.plan("llama-3.1-70b", tokens="8k", gpu=["1xrtx-3090", "mi300x"], depth=False)
    assert {option.gpu for option in both.options} == {"mi300x-192gb"}


@pytest.mark.parametrize(
    ("engine", "flag", "value"), [("sglang", "attn_dp_size", 4), ("trtllm", "enable_attention_dp", True)]
)
def test_attention_ranks_are_tried_and_checked(engine: str, flag: str, value: object, tmp_path: Path) -> None:
    """Latents under tensor parallelism: groups of their own hold more, each with its pool."""
    asked: dict[str, Any] = {
        "tokens": "8k",
        "gpu": "8xh200",
        "engine": engine,
        "pp": 1,
        "dcp": 1,
        "depth": False,
    }
    few = kvplan.plan("deepseek-v3", requests=16, **asked)
    many = kvplan.plan("deepseek-v3", requests=200, **asked)
    assert flag not in dict(few.options[0].serve)  # the plainer layout does
    assert dict(many.options[0].serve)[flag] == value
    assert many.plan is not None
    assert many.plan.replicas * many.plan.pools_per_replica * many.options[0].requests_per_engine >= 200
    assert kvplan.check(written(many, tmp_path / "plan.yaml")).exit_code == 0
    assert many.options[0].speed is None
    given = kvplan.plan("deepseek-v3", requests=16, **{**asked, flag: value})
    assert dict(given.options[0].serve)[flag] == value


def test_speed_across_nodes_takes_the_fleets_network() -> None:
    """Two nodes: without a rate nobody knows; the faster the network, the faster the tokens."""
    h100 = kvplan.load_gpu("h100")

    def tpot(rate: int | None) -> float | None:
        fleet = Fleet((Offer(h100, available=16, node_bytes_per_second=rate),))
        result = kvplan.plan(
            "llama-3.1-405b", tokens="8k", fleet=fleet, tp=16, pp=1, quality="lossless", depth=False
        )
        assert result.options[0].nodes == 2
        speed = result.options[0].speed
        return None if speed is None else speed.tpot[1]

    slow, fast = tpot(5 * 10**9), tpot(50 * 10**9)
    assert tpot(None) is None
    assert slow is not None
    assert fast is not None
    assert slow > fast


ASKS: list[tuple[str, dict[str, Any]]] = [
    ("qwen3-32b", {"requests": 200, "tokens": "8k", "gpu": "4xh100"}),
    ("gpt-oss-120b", {"requests": 900, "tokens": "16k", "gpu": "2xh100", "pool": "safe"}),
    (
        "llama-3.1-8b",
        {"requests": 90, "tokens": "16k", "shared_prefix": "4k", "gpu": "2xl40s", "headroom": "0.1"},
    ),
    ("deepseek-v3", {"requests": 500, "tokens": "32k", "gpu": "8xh200", "engine": "sglang"}),
    ("qwen3-next-80b-a3b-instruct", {"requests": 100, "tokens": "64k", "gpu": "4xh100", "max_num_seqs": 16}),
    ("gemma-3-27b", {"requests": 60, "tokens": "32k", "gpu": "2xh100", "max_model_len": "128k"}),
    (
        "llama-3.1-70b",
        {"requests": 8, "tokens": "32k", "gpu": "2xh100", "engine": "trtllm", "pool": "likely"},
    ),
    ("qwen3-8b", {"requests": 4, "tokens": "4k", "gpu": "gtx-1080-ti"}),
    ("qwen3-8b", {"requests": 4, "tokens": "4k", "gpu": "mi300x", "engine": "trtllm"}),
]


@pytest.mark.laws
@pytest.mark.parametrize(("model", "asked"), some(ASKS, 3, by=len))
def test_every_way_out_is_one(model: str, asked: dict[str, Any], tmp_path: Path) -> None:
    """What a suggestion names is planned again as it was typed: it serves the load, with as many GPUs."""
    result = kvplan.plan(model, **asked)
    limit = result.options[0].gpus - 1 if result.ok else None
    assert result.ways_out, "a case without a suggestion shows nothing"
    for way in result.ways_out:
        flag, value = way.flags.split(" ", 1)
        name = flag.removeprefix("--").replace("-", "_")
        changed: dict[str, Any] = {**asked, name: int(value) if value.isdigit() else value, "depth": False}
        if limit is not None:
            changed["max_gpus"] = limit
        again = kvplan.plan(model, **changed)
        assert again.ok, way
        assert again.options[0].gpus == way.gpus
        assert kvplan.check(written(again, tmp_path / "plan.yaml")).exit_code == 0, way


@pytest.mark.parametrize("pool", ["safe", "likely"])
@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("Qwen/Qwen3-30B-A3B", {"gpu": "1xmi300x"}),
        ("mixtral-8x7b-instruct-v0.1", {"gpu": "2xmi300x", "pp": (2,), "tp": (1,)}),
    ],
)
def test_what_loading_leaves_counts_in_the_search_too(model: str, asked: dict[str, Any], pool: str) -> None:
    """As many as the engine holds, else the planner stops: padded experts have a high end of their own."""
    result = kvplan.plan(
        model, engine="vllm@0.30", tokens="8k", max_num_seqs=4096, objective="requests", pool=pool,
        depth=False, **asked,
    )  # fmt: skip
    best = result.options[0]
    assert (best.requests if pool == "likely" else best.safe_requests) > 0


def _kinds() -> list[Gpu]:
    """One GPU of each vendor and compute capability."""
    return list({(gpu.vendor, gpu.compute_capability): gpu for gpu in list_gpus()}.values())


@pytest.mark.laws
@pytest.mark.parametrize("gpu", some(_kinds(), 3, by=lambda gpu: gpu.vendor), ids=lambda gpu: gpu.slug)
def test_a_gpu_that_an_engine_does_not_run_on_has_other_engines(gpu: Gpu) -> None:
    """Each engine is told the others that serve a small model there, and those alone."""
    asked: dict[str, Any] = {"requests": 1, "tokens": 1024, "gpu": gpu, "max_gpus": 1}
    serve = {
        one.engine
        for one in runs_on(gpu)
        if one.why_not is None
        and divides(one.engine)
        and kvplan.plan("qwen3-0.6b", engine=one.engine, depth=False, **asked).ok
    }
    for one in runs_on(gpu):
        if one.why_not is not None and divides(one.engine):
            result = kvplan.plan("qwen3-0.6b", engine=one.engine, **asked)
            assert not result.ok
            assert {way.flags.removeprefix("--engine ") for way in result.ways_out} == serve


@pytest.mark.parametrize("pool", ["safe", "likely"])
def test_a_context_of_slots_is_planned_with_headroom(pool: str) -> None:
    """llama.cpp's pool is as large as its slots: what stays free is beside it."""
    result = kvplan.plan(
        "qwen3-0.6b", engine="llamacpp", gpu="h100", requests=4, tokens="8k", settings={"weights": "4GiB"},
        headroom="0.1", pool=pool, depth=False,
    )  # fmt: skip
    assert result.options[0].requests >= 4


def test_a_length_that_is_served_is_the_requests_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody says how long requests are: as long as what the engine is started for, the least of several."""
    for given, tokens in ((500, 500), ("4k", 4096), ((500, 4096), 500)):
        found = kvplan.plan("qwen3-8b", gpu="h100", max_model_len=given, depth=False)
        assert found.plan is not None
        assert found.plan.workload is not None
        (shape,) = found.plan.workload.shapes
        assert shape.input_tokens + shape.output_tokens == tokens
    with pytest.raises(KvplanError, match="shorter than the longest request"):
        kvplan.plan("qwen3-8b", gpu="h100", max_model_len=500, tokens=4096)
    assert main(["size", "qwen3-8b", "-g", "h100", "--max-model-len", "500"]) == 0
    words = capsys.readouterr().out.partition("next:")[2].partition("more:")[0].split()
    assert main(words[1:]) == 0
    assert "500 tokens" in capsys.readouterr().out
