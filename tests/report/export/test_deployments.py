"""Compose files and Kubernetes manifests: their tools' schemas, and what the plan says."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvplan.api import load_model
from kvplan.api.launching import started_readings
from kvplan.errors import KvplanError
from kvplan.plans.plan import FleetPlan, Plan
from kvplan.report.export import ALIKE, WRITERS, export
from kvplan.report.export.container import slug
from tests.report.export.plans import full, plan
from tests.report.export.test_arguments import golden
from tests.report.schemas import builtin_errors, kubernetes_errors

HOSTILE = "$(HOME) ${HOME:?x} $$ 'a' \"b\" #c: - {d} `e`"
PLANS: dict[str, Plan] = {
    "vllm": replace(full("vllm"), gpus=16),
    "sglang": full("sglang"),
    "trtllm": full("trtllm"),
    "llamacpp": full("llamacpp"),
    "replicas": plan(gpus=7, name="Chat (prod) é", tensor_parallel_size=2, max_model_len=32768),
    "mig": plan(gpu="h100-sxm-80gb-mig-3g.40gb", gpus=2),
    "local": plan(model="/data/My Model/config.json", name="9 lives"),
    "hostile": plan(name=HOSTILE, serve=(("served_model_name", HOSTILE),)),
    "amd": plan(gpu="mi300x", tensor_parallel_size=2, gpus=2),
}


def deployed(name: str, target: str) -> str:
    image = "example.com/vllm:1" if name == "amd" else None
    return export(PLANS[name], target, image=image)


@pytest.mark.parametrize("name", [name for name in PLANS if name not in ("vllm", "mig")])
def test_compose_by_its_schema(name: str, tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(deployed(name, "compose"), encoding="utf-8")
    assert builtin_errors("vendor.compose-spec", path) == ""


def test_the_compose_schema_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(deployed("local", "compose").replace("ipc:", "ipcs:"), encoding="utf-8")
    assert builtin_errors("vendor.compose-spec", path) != ""


@pytest.mark.parametrize("version", ["1.29", "1.37"])
@pytest.mark.parametrize("name", PLANS)
def test_kubernetes_by_its_schemas(name: str, version: str) -> None:
    documents = list(yaml.safe_load_all(deployed(name, "kubernetes")))
    assert [kubernetes_errors(document, version) for document in documents] == [""] * len(documents)


def test_the_kubernetes_schema_can_fail() -> None:
    document = next(yaml.safe_load_all(deployed("local", "kubernetes")))
    document["spec"]["replica"] = 1
    assert kubernetes_errors(document, "1.37") != ""


def manifest(name: str) -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(deployed(name, "kubernetes"))}


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = manifest(name)["Deployment"]["spec"]["template"]["spec"]
    return spec


def compose(name: str) -> dict[str, Any]:
    file: dict[str, Any] = yaml.safe_load(deployed(name, "compose"))
    return file


@pytest.mark.parametrize(("name", "limit"), [
    ("replicas", {"nvidia.com/gpu": "2"}), ("mig", {"nvidia.com/mig-3g.40gb": "1"}),
    ("amd", {"amd.com/gpu": "2"}), ("vllm", {"nvidia.com/gpu": "8"}),
])  # fmt: skip
def test_a_pod_asks_for_the_gpus_of_one_engine(name: str, limit: dict[str, str]) -> None:
    assert pod(name)["containers"][0]["resources"]["limits"] == limit
    assert manifest(name)["Deployment"]["spec"]["replicas"] == PLANS[name].replicas


def test_every_replica_has_gpus_of_its_own() -> None:
    services = compose("replicas")["services"]
    devices = [
        one["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for one in services.values()
    ]
    assert devices == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert [one["ports"] for one in services.values()] == [["8000:8000"], ["8001:8000"], ["8002:8000"]]
    assert "# 1 of 7 GPUs make up no whole engine and stay idle" in deployed("replicas", "compose")


def test_names_are_dns_labels() -> None:
    assert manifest("replicas")["Service"]["metadata"]["name"] == "chat-prod"
    assert manifest("local")["Service"]["metadata"]["name"] == "plan-9-lives"


@given(st.text(max_size=80))
def test_any_name_becomes_a_label(name: str) -> None:
    made = slug(name)
    assert 1 <= len(made) <= 40
    assert made[0].isalpha()
    assert made.isascii()
    assert not made.endswith("-")
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_a_folder_is_mounted_and_no_token_asked_for() -> None:
    container = pod("local")["containers"][0]
    assert container["args"][0] == "/models/My Model"
    assert {"name": "model", "hostPath": {"path": "/data/My Model"}} in pod("local")["volumes"]
    assert all(one["name"] != "HF_TOKEN" for one in container["env"])
    volume = compose("local")["services"]["plan-9-lives"]["volumes"][0]
    assert (volume["type"], volume["source"], volume["target"]) == (
        "bind",
        "/data/My Model",
        "/models/My Model",
    )


def test_the_token_is_named_never_written() -> None:
    env = pod("replicas")["containers"][0]["env"]
    reference = {"name": "huggingface", "key": "token", "optional": True}
    assert env == [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}}]
    assert compose("replicas")["services"]["chat-prod-0"]["environment"] == {"HF_TOKEN": None}


def test_what_the_tools_would_put_in_is_escaped() -> None:
    """Compose interpolates every $, Kubernetes $(NAME); both take two for one."""
    (service,) = compose("hostile")["services"].values()
    words = service["command"]
    assert words[words.index("--served-model-name") + 1].replace("$$", "$") == HOSTILE
    assert "$$$$" in words[words.index("--served-model-name") + 1]
    arguments = pod("hostile")["containers"][0]["args"]
    assert arguments[arguments.index("--served-model-name") + 1].replace("$$(", "$(") == HOSTILE


def test_the_options_file_is_mounted_where_the_command_looks() -> None:
    files = manifest("trtllm")
    container = pod("trtllm")["containers"][0]
    path = container["args"][container["args"].index("--extra_llm_api_options") + 1]
    options = yaml.safe_load(files["ConfigMap"]["data"]["options.yaml"])
    assert path == "/etc/kvplan/options.yaml"
    assert options["kv_cache_config"]["dtype"] == "fp8"
    assert yaml.safe_load(compose("trtllm")["configs"]["options"]["content"]) == options


def test_servers_are_reached_from_outside() -> None:
    for target in ("compose", "kubernetes"):
        assert "--host\n" in export(plan(), target)
        text = export(plan(serve=(("host", "::"), ("port", 9000))), target)
        assert "0.0.0.0" not in text
        assert "9000" in text
        assert "8000" not in text


@pytest.mark.parametrize(("engine", "image"), [
    ("vllm@0.32", "vllm/vllm-openai:v0.32.0"), ("vllm@0.27.1", "vllm/vllm-openai:v0.27.1"),
])  # fmt: skip
def test_image_of_the_version(engine: str, image: str) -> None:
    assert f"image: {image}\n" in export(plan(engine), "kubernetes")


def test_an_amd_gpu_has_the_image_for_it() -> None:
    text = export(plan("vllm@0.33", gpu="mi300x"), "kubernetes")
    assert "image: vllm/vllm-openai-rocm:v0.33.0\n" in text
    assert "amd.com/gpu" in text


def test_a_tag_that_follows_no_version_is_said() -> None:
    assert "pin it by its digest" in deployed("llamacpp", "compose")
    assert "pin it by its digest" not in deployed("replicas", "compose")


@pytest.mark.parametrize(("made", "target", "code"), [
    (plan("vllm@0.11", gpus=16, tensor_parallel_size=16), "kubernetes", "several-nodes"),
    (plan("trtllm@1.2", gpus=16, tensor_parallel_size=16), "command", "several-nodes"),
    (plan(gpus=16, tensor_parallel_size=16), "compose", "several-hosts"),
    (plan(gpus=16, tensor_parallel_size=8), "compose", "several-hosts"),
    (plan(gpus=1, tensor_parallel_size=2), "kubernetes", "too-few-gpus"),
    (plan("sglang@0.5.23", gpu="mi300x"), "kubernetes", "no-image"),
    (plan("vllm@0.13", gpu="mi300x"), "kubernetes", "no-image"),
    (plan(gpu="m4-pro"), "compose", "no-device"),
    (plan(gpu="h100-1g.10gb", gpus=2, tensor_parallel_size=2), "kubernetes", "mig-slices-do-not-join"),
    (plan(gpu="h100-sxm-80gb-mig-3g.40gb"), "compose", "no-device"),
    (plan(model="qwen3-32b"), "kubernetes", "no-checkpoint"),
    (plan(model="./here/config.json"), "kubernetes", "no-checkpoint"),
    (plan("llamacpp@0.5", options={"ctx_size": 4096, "parallel": 1}), "compose", "no-checkpoint"),
    (plan("generic"), "kubernetes", "no-server"),
    (plan("transformers@5.23"), "kubernetes", "no-image"),
    (plan(serve=(("port", 70000),)), "kubernetes", "bad-argument"),
])  # fmt: skip
def test_what_cannot_be_written(made: Plan, target: str, code: str) -> None:
    with pytest.raises(KvplanError) as caught:
        export(made, target)
    assert caught.value.code == code
    assert caught.value.help


OVER_NODES = {
    "vllm@0.32": (
        ("--nnodes", "2", "--node-rank", "0", "--master-addr", "$(LWS_LEADER_ADDRESS)"),
        ("--headless",),
    ),
    "sglang@0.5.23": (
        ("--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000"),
        (),
    ),
}


@pytest.mark.parametrize("engine", OVER_NODES)
def test_an_engine_over_nodes_is_a_group_of_pods(engine: str) -> None:
    """By hand: 16 GPUs an engine, of which a node has 8, are two pods; the leader answers requests."""
    leads, follows = OVER_NODES[engine]
    made = plan(engine, gpus=32, tensor_parallel_size=16)
    (group, service) = yaml.safe_load_all(export(made, "kubernetes"))
    assert (group["kind"], group["spec"]["replicas"]) == ("LeaderWorkerSet", 2)
    template = group["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    (leader,) = template["leaderTemplate"]["spec"]["containers"]
    (worker,) = template["workerTemplate"]["spec"]["containers"]
    assert tuple(leader["args"][-len(leads) :]) == leads
    ranked = tuple("$(LWS_WORKER_INDEX)" if word == "0" else word for word in leads)
    assert tuple(worker["args"][-len(leads + follows) :]) == (*ranked, *follows)
    assert {one["resources"]["limits"]["nvidia.com/gpu"] for one in (leader, worker)} == {"8"}
    assert "readinessProbe" in leader
    assert not {"readinessProbe", "startupProbe", "ports"} & set(worker)
    assert service["spec"]["selector"] == {
        "app.kubernetes.io/name": "chat", "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }  # fmt: skip


@given(
    st.sampled_from(sorted(OVER_NODES)), st.sampled_from([(8, 2), (16, 1), (8, 3), (4, 3), (8, 5)]),
    st.integers(1, 3), st.sampled_from(["kubernetes", "command"]),
)  # fmt: skip
def test_an_engine_over_nodes_is_read_back_as_one(
    engine: str, ranks: tuple[int, int], replicas: int, target: str
) -> None:
    tensor, pipeline = ranks
    gpus = tensor * pipeline * replicas
    made = plan(engine, gpus=gpus, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    if target == "command":
        made = replace(made, gpus=gpus // replicas)
    name = "start.sh" if target == "command" else "start.yaml"
    (reading,) = started_readings(name, "h100", text=export(made, target))
    assert reading.plan is not None, reading.errors
    assert (reading.plan.gpus, reading.plan.replicas) == (made.gpus, made.replicas)
    found = reading.plan.settings
    assert (found.tensor_parallel_size, found.pipeline_parallel_size) == ranks


def test_a_card_stands_for_its_model() -> None:
    card = load_model("qwen3-32b")
    assert "vllm serve Qwen/Qwen3-32B" in export(plan(model="qwen3-32b"), "command", model=card)
    assert "vllm serve a/b \\\n  --revision main" in export(plan(model="hf:a/b@main"), "command")
    folder = replace(card, source="plans/qwen/config.json")
    assert "vllm serve plans/qwen\n" in export(plan(model="plans/qwen"), "command", model=folder)
    own = replace(card, source="cards/own.yaml")
    assert "vllm serve Qwen/Qwen3-32B" in export(plan(model="cards/own.yaml"), "command", model=own)


def test_nodes_are_filled_one_after_another() -> None:
    text = export(plan(gpus=24, tensor_parallel_size=8, gpu_memory_utilization=Fraction(9, 10)), "command")
    assert text.count("CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7") == 3
    assert "# on node 2:" in text
    assert "# on node 3:" in text


def test_a_mig_slice_is_named_by_the_user() -> None:
    text = export(PLANS["mig"], "command")
    done = subprocess.run(
        [str(shutil.which("bash")), "-c", text], capture_output=True, text=True, env={"PATH": "/nowhere"}
    )
    assert "the UUID of a slice" in done.stderr


@pytest.mark.parametrize("name", ["replicas", "trtllm"])
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    golden(request, f"{name}.compose.yaml", deployed(name, "compose"))
    golden(request, f"{name}.kubernetes.yaml", deployed(name, "kubernetes"))


def test_other_vendors_run_one_engine_that_sees_everything() -> None:
    options = {"ctx_size": 4096, "parallel": 1}
    one = plan("llamacpp@0.5", "m4-pro", model="/data/m.gguf", options=options)
    assert "\nllama-server" in export(one, "command")
    assert "VISIBLE" not in export(one, "command")
    with pytest.raises(KvplanError) as caught:
        export(replace(one, gpus=2), "command")
    assert caught.value.code == "no-device"


def test_every_target_is_there() -> None:
    for target in WRITERS:
        image = "example.com/sglang-runtime:own" if target == "dynamo" else None
        assert export(full("sglang"), target, image=image) == export(full("sglang"), target, image=image)


def test_dynamos_image_has_the_plans_release_or_is_asked_for() -> None:
    text = export(plan("vllm@0.28"), "dynamo")
    assert "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.5.1" in text
    assert "vllm-runtime:1.1.1" in export(plan("vllm@0.19"), "dynamo")
    for made, said in ((plan("vllm@0.29"), "1.6.1 has 0.31.0"), (PLANS["amd"], "no image for")):
        with pytest.raises(KvplanError, match=said) as raised:
            export(made, "dynamo")
        assert raised.value.code == "no-image"
    with pytest.raises(KvplanError, match="no worker"):
        export(full("trtllm"), "dynamo")


@pytest.mark.parametrize("target", sorted(WRITERS))
def test_engines_for_prompts_and_for_answers_are_written_as_such_or_not_at_all(target: str) -> None:
    made = replace(plan("vllm@0.28", gpus=4), fleet=FleetPlan(prefill_replicas=1, decode_replicas=3))
    if target in ALIKE:
        with pytest.raises(KvplanError) as raised:
            export(made, target)
        assert raised.value.code == "disaggregated"
        return
    text = export(made, target)
    if target == "dynamo":
        services = yaml.safe_load(text)["spec"]["services"]
        assert [services[name]["replicas"] for name in ("PrefillWorker", "DecodeWorker")] == [1, 3]
    else:
        assert target in ("prometheus", "grafana")


def test_words_of_the_server_are_dynamos_own() -> None:
    asked = (("port", 9000), ("tool_call_parser", "hermes"))
    text = export(plan("vllm@0.28", serve=asked), "dynamo")
    assert "# left out: --port 9000, as Dynamo's frontend listens" in text
    worker = yaml.safe_load(text)["spec"]["services"]["Worker"]["extraPodSpec"]["mainContainer"]["args"]
    assert worker[-2:] == ["--dyn-tool-call-parser", "hermes"]
    assert not {"--port", "--host", "9000"} & {*worker}
