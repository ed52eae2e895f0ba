"""What `plan` writes, `check` passes; its `look:` gives the same counts; what `export` prints is the plan."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import kvplan
from kvplan.api.launching import import_launches, readable_plans
from kvplan.cli import main
from kvplan.cli.plan import look_of
from kvplan.engines.dynamo import release_with, worker_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.planning.results import PlanResult
from kvplan.plans.plan import FleetPlan, Plan
from kvplan.record import field_names
from kvplan.report.export import export
from kvplan.report.plan_file import plan_text
from kvplan.settings import Settings
from tests.laws.sampling import sampled
from tests.laws.scripts import settings_of_script

MODELS = (
    "qwen3-0.6b llama-3.1-8b qwen3-32b gpt-oss-20b deepseek-v2-lite falcon-h1-7b gemma-3-4b qwen3-30b-a3b"
    " deepseek-v3 qwen3-next-80b-a3b glm-4.5-air"
).split()
GPUS = "h100 h200 b200 l40s a100-80gb mi300x rtx-4090 8xh100 8xh200".split()
OWN: dict[str, tuple[dict[str, Any], ...]] = {
    "vllm": (
        {"block_size": 32}, {"enforce_eager": True}, {"enable_prefix_caching": False},
        {"gpu_memory_utilization": "0.85"}, {"quantization": "fp8"}, {"async_scheduling": False},
        {"speculative_method": "mtp", "num_speculative_tokens": 2}, {"max_num_batched_tokens": 4096},
        {"disable_hybrid_kv_cache_manager": True}, {"dtype": "float16"}, {"cpu_offload_gb": "2"},
    ),
    "sglang": (
        {"mem_fraction_static": "0.8"}, {"chunked_prefill_size": 4096}, {"disable_radix_cache": True},
        {"block_size": 32}, {"enforce_eager": True}, {"swa_full_tokens_ratio": "0.5"},
        {"speculative_method": "mtp", "num_speculative_tokens": 2}, {"attn_dp_size": 2},
    ),
    "trtllm": (
        {"free_gpu_memory_fraction": "0.8"}, {"enable_attention_dp": True}, {"block_size": 64},
        {"max_num_batched_tokens": 4096}, {"enable_prefix_caching": False}, {"enforce_eager": True},
        {"speculative_method": "mtp", "num_speculative_tokens": 1},
    ),
    "llamacpp": (
        {"flash_attn": False}, {"swa_full": True}, {"kv_unified": True}, {"ubatch_size": 256},
        {"cache_type_k": "q8_0"}, {"cache_type_v": "q4_0"}, {"n_gpu_layers": 20}, {"n_cpu_moe": 3},
        {"cpu_moe": True}, {"kv_offload": False, "host_memory": "900GiB"}, {"pp": 2},
        {"pp": 2, "tensor_split": "3,1"},
    ),
}  # fmt: skip
ENGINES = ("vllm", "vllm", "vllm@0.19", "sglang", "trtllm", "llamacpp")
FORMATS = {
    "vllm": ("fp8", "auto"),
    "sglang": ("fp8_e4m3", "auto"),
    "trtllm": ("fp8", "auto"),
    "llamacpp": ("q8_0", "q4_0", "auto"),
}


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    engine = draw(st.sampled_from(ENGINES))
    name = engine.partition("@")[0]
    asked: dict[str, Any] = {
        "engine": engine,
        "gpu": draw(st.sampled_from(GPUS)),
        "requests": draw(st.sampled_from((1, 3, 24, 200))),
        "tokens": draw(st.sampled_from((1000, 8192, 30_000))),
        "quality": draw(st.sampled_from(("lossless", "safe", "aggressive"))),
        "pool": draw(st.sampled_from(("safe", "likely"))),
        "objective": draw(st.sampled_from(("fewest-gpus", "requests", "context"))),
        "max_gpus": draw(st.sampled_from((1, 8, 16))),
        **draw(st.sampled_from(({}, *OWN[name]))),
        **draw(st.sampled_from(({}, {"kv_cache_dtype": draw(st.sampled_from(FORMATS[name]))}))),
        **draw(st.sampled_from(({}, {}, {"samples": 2}, {"shared_prefix": 500}, {"headroom": "0.1"}))),
        **draw(st.sampled_from(({}, {}, {"enable_expert_parallel": True}, {"tp": (1, 8)}, {"dcp": 2}))),
    }
    if name == "llamacpp":
        asked["weights"] = "4GiB"
    return draw(st.sampled_from(MODELS)), asked


def planned(question: tuple[str, dict[str, Any]]) -> PlanResult:
    """The answer of a question that has one."""
    try:
        result = kvplan.plan(question[0], depth=False, top=1, **question[1])
    except KvplanError:
        assume(False)
        raise
    assume(result.ok)
    return result


def written(result: PlanResult, folder: str) -> Plan:
    assert result.plan is not None
    path = Path(folder) / "plan.yaml"
    path.write_text(plan_text(result.plan, directory=path.parent), encoding="utf-8")
    (plan,) = kvplan.load_plans(str(path))
    return plan


def _differing(one: Settings, other: Settings) -> dict[str, tuple[object, object]]:
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in field_names(Settings)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@pytest.mark.laws
@sampled(6, 300)
@given(questions())
def test_what_plan_writes_check_passes(question: tuple[str, dict[str, Any]]) -> None:
    result = planned(question)
    best = result.plan
    assert best is not None
    with TemporaryDirectory() as folder:
        plan = written(result, folder)
        report = kvplan.check(str(Path(folder) / "plan.yaml"))
    assert report.exit_code == 0, [finding.message for finding in report.plans[0].findings]
    differing = _differing(plan.settings, best.settings)
    assert not differing, differing
    assert (plan.engine, plan.gpus, plan.workload) == (best.engine, best.gpus, best.workload)
    assert plan.require == best.require


def counts(words: list[str]) -> dict[str, int]:
    """Weights, pool, blocks and requests of one pool, as the command says."""
    out = StringIO()
    with redirect_stdout(out):
        assert main([*words, "--json"]) in (0, 1)
    answer = json.loads(out.getvalue())
    pool = {name: answer["pool"][name] for name in ("bytes", "num_blocks", "max_requests", "max_running")}
    return {**pool, "weights": answer["weights"]["bytes_per_gpu"]}


@pytest.mark.laws
@sampled(4, 300)
@given(questions())
@example(
    (
        "gpt-oss-20b",
        {
            "engine": "llamacpp", "gpu": "h100", "requests": 24, "tokens": 1000, "quality": "lossless",
            "pool": "safe", "objective": "context", "max_gpus": 1, "kv_unified": True, "weights": "4GiB",
        },
    )
)  # fmt: skip
def test_look_gives_the_same_counts(question: tuple[str, dict[str, Any]]) -> None:
    result = planned(question)
    assume(not question[1].get("shared_prefix") and not question[1].get("samples"))
    assume(not question[1].get("headroom"))
    option, words = result.options[0], look_of(result)
    assert words[:2] == ["kvplan", "size"]
    told = counts(words[1:])
    assert told["bytes"] == option.kv_pool_bytes, (words, question)
    pools = result.plan.pools_per_replica * option.replicas  # type: ignore[union-attr]
    assert option.requests in (told["max_requests"] * pools, told["max_running"] * pools), (words, question)
    with TemporaryDirectory() as folder:
        written(result, folder)
        of_plan = counts(["size", str(Path(folder) / "plan.yaml")])
    if result.pool == "safe":  # a plan is counted in the pool that it requires
        assert of_plan["bytes"] in (option.kv_pool_bytes, option.kv_pool_low_bytes)
        assert of_plan["weights"] == told["weights"]
    else:
        assert of_plan == told


@pytest.mark.laws
@sampled(6, 300)
@given(questions())
def test_what_export_prints_is_the_plan(question: tuple[str, dict[str, Any]]) -> None:
    result = planned(question)
    plan = result.plan
    assert plan is not None
    model: Model | None = kvplan.load_model(plan.model)
    if plan.engine.startswith("llamacpp"):  # which loads files of its own format only
        plan, model = replace(plan, model="model.gguf"), None
    try:
        text = export(plan, "command", model=model)
    except KvplanError as error:
        if error.code == "several-nodes":  # its engine has none
            return
        raise
    read = settings_of_script(text, plan)
    differing = _differing(read, plan.settings)
    assert not differing, (differing, text)


DYNAMO = {"kv_transfer_config", "disaggregation_mode"}
"""Options that say an engine's role, beside the plan's own."""


@pytest.mark.laws
@sampled(4, 200)
@given(questions(), st.sampled_from(((0, 0), (1, 1), (3, 2))))
def test_the_graph_for_dynamo_is_read_back_whole(
    question: tuple[str, dict[str, Any]], sides: tuple[int, int]
) -> None:
    result = planned(question)
    plan = result.plan
    assert plan is not None
    engine, _, version = plan.engine.partition("@")
    worker = worker_of(engine)
    fleet = FleetPlan(prefill_replicas=sides[0], decode_replicas=sides[1])
    plan = replace(plan, fleet=fleet, gpus=sum(sides) * plan.gpus_per_replica or plan.gpus)
    image = None
    if worker is not None and release_with(engine, version) is None:
        image = f"example.com/{worker.image}:own"
    try:
        text = export(plan, "dynamo", model=kvplan.load_model(plan.model), image=image)
    except KvplanError as error:
        if error.code not in ("no-worker", "several-nodes") and (error.code, image) != ("no-image", None):
            raise
        return
    assert plan.settings.gpu is not None
    launches = import_launches("graph.yaml", text=text)
    kinds = readable_plans(launches, [], gpu=plan.settings.gpu.slug, shown="graph.yaml", written=text)
    assert [one.replicas for one in kinds] == ([*filter(None, sides)] or [plan.replicas])
    for read in kinds:
        assert read.engine.partition("@")[2].startswith(version)
        assert read.gpus_per_replica == plan.gpus_per_replica
        assert all("--disaggregation-mode" in one for one in read.unread)
        own = read.settings.own.without(*DYNAMO) if sides[0] else read.settings.own
        differing = _differing(replace(read.settings, own=own), plan.settings)
        assert not differing, (differing, text)
