"""One deployment, one count: every door gives the same weights, pool, blocks and requests.

The doors: `kvplan size PLAN`, `explain PLAN`, `check`, `validate --dry-run` (as on a GPU) and the library.
The worked plans are walked whole; `make laws` walks more random ones.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api import make_settings, planned
from kvplan.checking import facts_of
from kvplan.checking.case import Case
from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.plans.plan import LIKELY, SAFE, Plan, Requirements
from kvplan.plans.question import pools_of
from kvplan.proof.validate.dry import dry_run
from kvplan.proof.validate.target import target_of
from kvplan.report.export import export
from tests.laws.sampling import WHOLE
from tests.laws.scripts import settings_of_script

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "plans"
FILES = sorted(FOLDER.glob("*.yaml"))
Figures = dict[str, Any]


def by_size(plan: Plan) -> Figures:
    """What `kvplan.size(plan)` says of one pool."""
    told = _of_answer(kvplan.size(plan).model_dump())
    stated = plan.settings.kv_cache_memory
    return {**told, "pool": stated or told["safe pool" if plan.require.pool == SAFE else "likely pool"]}


def _of_answer(answer: dict[str, Any]) -> Figures:
    pool, budget, weights = answer["pool"], answer["budget"], answer["weights"]
    return {
        "weights": weights and weights["bytes_per_gpu"],
        "likely pool": budget and budget["kv_pool_bytes"],
        "safe pool": budget and budget["kv_pool_low_bytes"],
        "blocks": pool and pool["num_blocks"],
        "requests": pool and pool["max_running"],
        "all requests": pool and answer["capacity"] and answer["capacity"]["requests"],
        "all safe requests": pool and answer["capacity"] and answer["capacity"]["safe_requests"],
        "bytes": answer["per_gpu"]["kv_bytes_per_request"],
    }


def by_check(plan: Plan) -> Figures:
    """The facts of `kvplan check`, requests over all pools brought to one."""
    case = Case(plan, kvplan.load_model(plan.model))
    facts = {fact.name: fact.value for fact in facts_of(case)}
    most = facts.get("max_requests")
    return {
        "weights": facts.get("weights_bytes_per_gpu"),
        "likely pool": facts.get("kv_pool_bytes"),
        "safe pool": facts.get("kv_pool_low_bytes"),
        "blocks": facts.get("num_blocks"),
        "requests": None if most is None else most // pools_of(plan),
        "all requests": most if plan.require.pool == LIKELY else None,
        "all safe requests": facts.get("safe_max_requests"),
        "bytes": facts.get("kv_bytes_per_request"),
    }


def by_validate(plan: Plan) -> Figures:
    """What `kvplan validate --dry-run` says a validation on the plan's GPU would allocate and admit."""
    question = planned(plan)
    target = target_of(plan, question.model, question.choice, asks_proof=True, on_gpu=True)
    try:
        ranks = dry_run(target, on_gpu=True).ranks
    except KvplanError as error:
        if error.code != "unsupported-setting":
            raise
        return {}
    return {
        "weights": max(one.weights_bytes for one in ranks),
        "pool": target.pool_bytes,
        "blocks": target.result.pool and target.result.pool.num_blocks,
        "requests": min(one.requests for one in ranks),
        "bytes": target.result.per_gpu.kv_bytes_per_request,
    }


def by_export(plan: Plan) -> Figures:
    """What `kvplan.size` says of the plan as what starts it reads."""
    name = plan.engine.partition("@")[0]
    model = kvplan.load_model(plan.model)
    where = replace(plan, model="model.gguf") if name == "llamacpp" else plan  # it loads no other files
    try:
        text = export(where, "command", model=None if name == "llamacpp" else model)
    except KvplanError as error:
        if error.code not in ("several-nodes", "bad-argument"):  # bad-argument: a MIG slice has no number
            raise
        return {}
    return by_size(replace(plan, settings=settings_of_script(text, plan)))


def assert_one_count(plan: Plan) -> None:
    told = by_size(plan)
    doors = (("check", by_check(plan)), ("validate", by_validate(plan)), ("export", by_export(plan)))
    for name, other in doors:
        for figure, value in other.items():
            if value is not None and told[figure] is not None:
                assert value == told[figure], (
                    f"{plan.name}: {figure}: {name} {value:,}, size {told[figure]:,}"
                )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_worked_plans(path: Path) -> None:
    for plan in kvplan.load_plans(path, environment="all"):
        assert_one_count(plan)


MODELS = (
    "llama-3.1-8b qwen3-32b gemma-3-12b gpt-oss-20b deepseek-v2-lite qwen3-next-80b-a3b nemotron-nano-9b-v2 "
    "qwen3-30b-a3b mistral-7b-v0.1 falcon-h1-7b-instruct deepseek-v3 llama-3.3-70b"
).split()
GPUS = (
    "h100-sxm-80gb h200-sxm-141gb a100-sxm-80gb l40s-48gb b200-sxm-180gb mi300x-192gb rtx-4090-24gb".split()
)
SETTINGS: dict[str, tuple[tuple[str, tuple[object, ...]], ...]] = {
    "vllm": (
        ("tensor_parallel_size", (1, 2, 4, 8)),
        ("pipeline_parallel_size", (1, 1, 2)),
        ("kv_cache_dtype", ("auto", "fp8")),
        ("max_num_seqs", (None, 7, 64, 300)),
        ("max_model_len", (8192, 32768)),
        ("max_num_batched_tokens", (None, 2048, 16384)),
        ("enable_expert_parallel", (None, None, True)),
        ("gpu_memory_utilization", (None, 0.85)),
    ),
    "sglang": (
        ("tp_size", (1, 2, 4, 8)),
        ("kv_cache_dtype", ("auto", "fp8_e4m3")),
        ("max_running_requests", (None, 16, 256)),
        ("context_length", (8192, 32768)),
        ("mem_fraction_static", (None, 0.8)),
    ),
    "trtllm": (
        ("tensor_parallel_size", (1, 2, 4, 8)),
        ("kv_cache_dtype", ("auto", "fp8")),
        ("max_batch_size", (None, 16, 300)),
        ("max_seq_len", (8192, 32768)),
        ("enable_attention_dp", (None, None, True)),
    ),
}
COUNT = 2000 if WHOLE else 40
"""Random plans: all in ``make laws``."""
pytestmark = pytest.mark.laws


def random_text(chance: random.Random) -> str:
    """A plan file as somebody might write it: most start, some are refused."""
    engine = chance.choice(list(SETTINGS))
    serve = {name: chance.choice(values) for name, values in SETTINGS[engine]}
    shown = {name: value for name, value in serve.items() if value is not None}
    ways = 1
    for name in ("tensor_parallel_size", "tp_size", "pipeline_parallel_size"):
        value = shown.get(name, 1)
        assert isinstance(value, int)
        ways *= value
    gpus = ways * chance.choice((1, 1, 2, 3))
    lines = [
        f"  {name}: {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in shown.items()
    ]
    answer = chance.choice((64, 1024))
    return "\n".join(
        [
            "kvplan: plan/v1",
            f"model: {chance.choice(MODELS)}",
            f"engine: {engine}",
            f"gpu: {chance.choice(GPUS)}",
            f"gpus: {gpus}",
            "serve:",
            *lines,
            *chance.choice(
                (
                    ["require:", f"  requests: {chance.choice((1, 8, 40))}", "  tokens: 4096"],
                    [
                        "workload:", f"  input_tokens: {chance.choice((500, 4000, 7000))}",
                        f"  output_tokens: {answer}", f"  requests_in_flight: {chance.choice((1, 9, 64))}",
                    ],
                )
            ),
        ]
    )  # fmt: skip


def random_plans(seed: int, count: int, folder: Path) -> Iterator[Plan]:
    chance = random.Random(seed)
    for number in range(count):
        path = folder / f"plan-{number}.yaml"
        path.write_text(random_text(chance), encoding="utf-8")
        yield from kvplan.load_plans(path)


def test_the_answer_is_the_workloads(tmp_path: Path) -> None:
    """4,000 + 64 tokens, not the eighth that is taken where nobody says it."""
    path = tmp_path / "plan.yaml"
    path.write_text(
        "kvplan: plan/v1\nmodel: deepseek-v2-lite\nengine: vllm\ngpu: h100-sxm-80gb\n"
        "serve: {max_model_len: 8192}\n"
        "workload: {input_tokens: 4000, output_tokens: 64, requests_in_flight: 1}\n"
    )
    (plan,) = kvplan.load_plans(path)
    assert kvplan.size(plan).request.answer_tokens == 64
    assert_one_count(plan)


def test_random_plans(tmp_path: Path) -> None:
    started = 0
    for plan in random_plans(20261122, COUNT, tmp_path):
        try:
            told = kvplan.size(plan)
        except KvplanError:
            continue
        if told.refusal is None and told.pool is not None:
            started += 1
            assert_one_count(plan)
    assert started > COUNT / 4


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b", "gpt-oss-20b", "deepseek-v3"])
def test_what_plan_chooses_is_counted_alike(engine: str, model: str) -> None:
    found = kvplan.plan(model, engine=engine, requests=24, tokens=6000, gpu=["h100", "h200"], depth=False)
    if found.plan is None:
        assert not found.options, "an engine that serves no such model on these GPUs"
        return
    option, told = found.options[0], by_size(found.plan)
    assert (option.kv_pool_bytes, option.kv_pool_low_bytes) == (told["likely pool"], told["safe pool"])
    assert_one_count(found.plan)


@pytest.mark.parametrize("pool", [LIKELY, SAFE])
@pytest.mark.parametrize("gpu", ["rtx-4090", "rtx-3090", "l40s"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-12b", "qwen3-8b", "falcon-h1-7b-instruct"])
def test_a_length_that_is_left_to_the_engine_is_counted_alike(model: str, gpu: str, pool: str) -> None:
    """The longest that fits the pool that is required: `check` and `size PLAN` start with the same."""
    settings = make_settings(gpu=gpu, max_model_len="auto")
    plan = Plan(
        "auto", model, "vllm@0.33", 1, settings, require=Requirements(requests=1, tokens=512, pool=pool)
    )
    case, told = Case(plan, kvplan.load_model(model)), kvplan.size(plan)
    if case.refusal is not None:
        assert told.refusal is not None
        assert case.refusal.code == told.refusal.code
        return
    assert case.result is not None
    assert case.max_model_len == told.settings["max_model_len"]
    assert_one_count(plan)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) in (0, 1)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_commands_take_plans(capsys: pytest.CaptureFixture[str]) -> None:
    path = FOLDER / "chat-llama-3.3-70b-fp8-2xh100.yaml"
    (plan,) = kvplan.load_plans(path)
    told = by_size(plan)
    assert _of_answer(shown(capsys, "size", str(path))).items() <= told.items()
    assert shown(capsys, "explain", str(path))["per_gpu"]["kv_bytes_per_request"] == told["bytes"]
    longer = shown(capsys, "size", str(path), "--tokens", "1k")
    assert longer["request"]["tokens"] == 1024
    assert longer["pool"]["num_blocks"] == told["blocks"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tp", "4"], "--tensor-parallel-size belongs to a model: a plan says its own"),
        (["--engine", "sglang"], "--engine belongs to a model"),
        (["llama-3.1-8b"], "one plan is sized at a time"),
        (["--env", "prod"], "prod"),
    ],
)
def test_what_a_plan_says_itself(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = FOLDER / "chat-llama-3.3-70b-fp8-2xh100.yaml"
    assert main(["size", str(path), *words]) == 2
    assert said in capsys.readouterr().err


def test_the_defaults_of_this_machine_do_not_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = FOLDER / "chat-llama-3.3-70b-fp8-2xh100.yaml"
    plain = shown(capsys, "size", str(path))
    monkeypatch.setenv("KVPLAN_ENGINE", "sglang")
    monkeypatch.setenv("KVPLAN_TOKENS", "2k")
    assert shown(capsys, "size", str(path)) == plain


def test_the_library_takes_a_plan() -> None:
    (plan,) = kvplan.load_plans(FOLDER / "chat-qwen3-8b-day.yaml")
    assert kvplan.size(plan, tokens="2k").request.tokens == 2048
    with pytest.raises(KvplanError, match="a plan says its own"):
        kvplan.size(plan, tp=2)  # type: ignore[call-overload]
    with pytest.raises(KvplanError, match="a plan says its own"):
        kvplan.size(plan, engine="sglang")  # type: ignore[call-overload]
