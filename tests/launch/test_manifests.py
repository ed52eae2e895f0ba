"""Compose files, Kubernetes objects and charts as plans: written here, in the forms of the tools' schemas."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.api import load_model
from kvplan.api.checking.load import Loader, files_of
from kvplan.api.launching import launched_plans
from kvplan.deployment.counts import ask
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.machines import gpu_of_label
from kvplan.files.launch.manifest import launches_in
from kvplan.files.launch.read import launches_of_text
from kvplan.plans.plan import Plan
from kvplan.plans.question import start_of
from kvplan.report.export import export

EXAMPLES = Path(__file__).parents[2] / "examples/plans"


def read(text: str) -> list[Launch]:
    return launches_in(textwrap.dedent(text), shown="deploy.yaml")


DEPLOYMENT = """
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: chat}
    spec:
      replicas: 2
      template:
        spec:
          nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
          containers:
          - name: side
            image: nginx:1.29
            args: ["-g", "daemon off;"]
          - name: vllm
            image: vllm/vllm-openai:v0.19.1
            command: ["/bin/sh", "-c"]
            args: ["vllm serve $(MODEL) --tensor-parallel-size 2 --max-model-len 32768"]
            env:
            - {name: MODEL, value: Qwen/Qwen3-32B}
            - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}
            resources: {limits: {nvidia.com/gpu: "2"}}
    ---
    apiVersion: v1
    kind: Service
    metadata: {name: chat}
    """


def test_a_deployment() -> None:
    (launch,) = read(DEPLOYMENT)
    assert launch.name == "chat"
    assert launch.engine == "vllm@0.19.1"
    assert launch.model == "Qwen/Qwen3-32B"
    assert launch.serve == {"tensor_parallel_size": 2, "max_model_len": 32768}
    assert (launch.replicas, launch.gpu, launch.gpus) == (2, "h100-sxm-80gb", 2)
    (plan,) = launched_plans([launch])
    assert (plan.gpus, plan.replicas) == (4, 2)


def test_a_leader_worker_set_and_an_affinity() -> None:
    (launch,) = read(
        """
        kind: LeaderWorkerSet
        metadata: {name: r1}
        spec:
          replicas: 1
          leaderWorkerTemplate:
            size: 2
            leaderTemplate:
              spec:
                affinity:
                  nodeAffinity:
                    requiredDuringSchedulingIgnoredDuringExecution:
                      nodeSelectorTerms:
                      - matchExpressions:
                        - {key: cloud.google.com/gke-accelerator, operator: In, values: [nvidia-h200-141gb]}
                containers:
                - name: leader
                  image: lmsysorg/sglang:v0.5.3-cu129
                  command: [python3, -m, sglang.launch_server, --model-path, deepseek-ai/DeepSeek-R1]
                  args: [--tp, "16", --nnodes, "2", --node-rank, "0", --mem-fraction-static, "0.9"]
        """
    )
    assert launch.gpu == "h200-sxm-141gb"
    assert launch.serve == {"tp_size": 16, "mem_fraction_static": 0.9}


def test_compose_with_anchors() -> None:
    first, second = read(
        """
        x-gpu: &gpu
          deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ["0", "1"]}]}}}
        services:
          chat:
            <<: *gpu
            image: vllm/vllm-openai:v0.31.0
            command: --model Qwen/Qwen3-32B -tp 2
            environment: [HF_TOKEN=x]
            restart: on-failure
          small:
            image: ghcr.io/ggml-org/llama.cpp:server-cuda
            environment:
              LLAMA_ARG_MODEL: /models/qwen3-8b.gguf
              LLAMA_ARG_CTX_SIZE: 8192
              LLAMA_ARG_N_GPU_LAYERS: 99
        """
    )
    assert (first.name, first.engine, first.gpus) == ("chat", "vllm@0.31.0", 2)
    assert (second.name, second.model) == ("small", "qwen3-8b.gguf")
    assert second.serve == {"ctx_size": 8192, "n_gpu_layers": 99, "parallel": 4, "kv_unified": True}


def test_kserve() -> None:
    decode, prefill = read(
        """
        apiVersion: serving.kserve.io/v1alpha1
        kind: LLMInferenceService
        metadata: {name: qwen}
        spec:
          model: {uri: "hf://Qwen/Qwen3-32B", name: Qwen/Qwen3-32B}
          replicas: 3
          parallelism: {tensor: 2, expert: true}
          template:
            containers:
            - name: main
              env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-model-len 8192"}]
              resources: {limits: {nvidia.com/gpu: "2"}}
          prefill: {replicas: 1, parallelism: {tensor: 4}}
        """
    )
    assert decode.serve == {"tensor_parallel_size": 2, "enable_expert_parallel": True, "max_model_len": 8192}
    assert (decode.replicas, decode.model, decode.gpus) == (3, "Qwen/Qwen3-32B", 2)
    assert (prefill.name, prefill.serve) == ("qwen-prefill", {"tensor_parallel_size": 4})
    (classic,) = read(
        """
        kind: InferenceService
        metadata: {name: llama}
        spec:
          predictor:
            minReplicas: 2
            model:
              modelFormat: {name: huggingface}
              args: ["--model_name=l", "--model_id=meta-llama/Llama-3.1-8B-Instruct", --max-model-len, "4096"]
              resources: {limits: {nvidia.com/gpu: "1"}}
        """
    )
    assert (classic.model, classic.replicas) == ("meta-llama/Llama-3.1-8B-Instruct", 2)
    assert classic.serve == {"max_model_len": 4096}


def test_charts() -> None:
    decode, prefill = read(
        """
        modelArtifacts: {uri: "hf://Qwen/Qwen3-32B", name: Qwen/Qwen3-32B}
        decode:
          replicas: 1
          parallelism: {tensor: 4, data: 1}
          containers: [{name: vllm, image: "ghcr.io/llm-d/llm-d-cuda:v0.3.0", args: [--max-model-len, "32k"]}]
        prefill:
          replicas: 4
          parallelism: {tensor: 1}
          containers: [{name: vllm, args: ["--block-size", "128"]}]
        """
    )
    assert (decode.name, decode.serve) == (
        "Qwen3-32B-decode",
        {"tensor_parallel_size": 4, "max_model_len": 32000},
    )
    assert (prefill.replicas, prefill.serve) == (4, {"block_size": 128})
    (stack,) = read(
        """
        servingEngineSpec:
          modelSpec:
          - name: mistral
            repository: vllm/vllm-openai
            tag: v0.31.0
            modelURL: mistralai/Mistral-7B-Instruct-v0.3
            replicaCount: 3
            requestGPU: 1
            requestGPUType: NVIDIA-L40S
            vllmConfig:
              tensorParallelSize: 1
              maxModelLen: 8192
              enablePrefixCaching: true
              extraArgs: ["--disable-log-stats"]
        """
    )
    assert (stack.name, stack.engine, stack.replicas, stack.gpu) == ("mistral", "vllm@0.31.0", 3, "l40s-48gb")
    assert stack.serve == {"tensor_parallel_size": 1, "max_model_len": 8192, "enable_prefix_caching": True}
    (kaito,) = read(
        """
        kind: Workspace
        metadata: {name: w}
        resource: {instanceType: Standard_NC24ads_A100_v4}
        inference: {preset: {name: meta-llama/Llama-3.1-8B-Instruct}}
        """
    )
    assert (kaito.model, kaito.gpu) == ("meta-llama/Llama-3.1-8B-Instruct", "a100-pcie-80gb")
    dynamo, other = read(
        """
        apiVersion: nvidia.com/v1alpha1
        kind: DynamoGraphDeployment
        metadata: {name: disagg}
        spec:
          services:
            Frontend: {replicas: 1}
            VllmDecodeWorker:
              replicas: 2
              resources: {limits: {gpu: "1"}}
              extraPodSpec:
                mainContainer:
                  image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.6.0
                  command: [python3, -m, dynamo.vllm]
                  args: [--model, Qwen/Qwen3-0.6B]
            VllmPrefillWorker:
              replicas: 1
              extraPodSpec:
                mainContainer:
                  command: [/bin/sh, -c]
                  args: ["python3 -m dynamo.vllm --model Qwen/Qwen3-0.6B --is-prefill-worker"]
        """
    )
    assert (dynamo.name, dynamo.replicas, dynamo.model) == ("disagg-VllmDecodeWorker", 2, "Qwen/Qwen3-0.6B")
    assert other.unread == ("--is-prefill-worker",)


def test_a_command_replaces_an_images_server_in_kubernetes_and_not_in_compose() -> None:
    """An init container that only fetches a model has the server's image, and starts none."""
    (launch,) = read(
        """
        kind: Deployment
        metadata: {name: chat}
        spec:
          template:
            spec:
              initContainers:
              - {name: fetch, image: "vllm/vllm-openai:v0.31.0", command: [hf, download, Qwen/Qwen3-8B]}
              containers:
              - {name: vllm, image: "vllm/vllm-openai:v0.31.0", args: [--model, Qwen/Qwen3-8B]}
        """
    )
    assert (launch.name, launch.model, launch.engine) == ("chat", "Qwen/Qwen3-8B", "vllm@0.31.0")
    (service,) = read(
        """
        services:
          chat:
            image: vllm/vllm-openai:v0.31.0
            command: >-
              --model Qwen/Qwen3-8B
              --speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'
          shell: {image: "vllm/vllm-openai:v0.31.0", entrypoint: sleep, command: infinity}
        """
    )
    assert service.serve == {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}


def test_a_config_file_of_vllm() -> None:
    (launch,) = read("model: x/y\ntensor-parallel-size: 2\nport: 8000\ncompilation-config: {mode: 1}\n")
    assert launch.serve == {"tensor_parallel_size": 2, "port": 8000}
    assert launch.unread == ("--compilation-config.mode 1",)


LABELS = {
    "NVIDIA-H100-80GB-HBM3": "h100-sxm-80gb",
    "NVIDIA-A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA-L40S": "l40s-48gb",
    "Tesla-T4": "t4-16gb",
    "nvidia-tesla-a100": "a100-sxm-40gb",
    "nvidia-l4": "l4-24gb",
    "p5.48xlarge": "h100-sxm-80gb",
    "p5en.48xlarge": "h200-sxm-141gb",
    "p4d.24xlarge": "a100-sxm-40gb",
    "g6e.12xlarge": "l40s-48gb",
    "g6.xlarge": "l4-24gb",
    "Standard_ND96isr_H100_v5": "h100-sxm-80gb",
    "Standard_NC96ads_A100_v4": "a100-pcie-80gb",
    "a3-highgpu-8g": "h100-sxm-80gb",
    "m5.large": None,
    "e2-standard-8": None,
    "": None,
}


@pytest.mark.parametrize(("label", "slug"), LABELS.items())
def test_labels_of_clouds(label: str, slug: str | None) -> None:
    assert gpu_of_label(label) == slug


def test_nodes_of_two_kinds_say_no_kind() -> None:
    (launch,) = read(DEPLOYMENT.replace("NVIDIA-H100-80GB-HBM3", "x"))
    assert launch.gpu is None


def test_nothing_that_starts_a_server_is_an_error() -> None:
    for text in (
        "a: 1",
        "- 1",
        "",
        "kind: Service",
        "services: {db: {image: pg, command: vllm}}",
        "model: x",
    ):
        with pytest.raises(KvplanError) as caught:
            read(text)
        assert caught.value.code == "no-server"
    for text in ("a: [", "a: !!python/object:os.system {}\nb: ]"):
        with pytest.raises(KvplanError) as caught:
            read(text)
        assert caught.value.code == "bad-yaml"


def test_aliases_that_multiply_are_refused() -> None:
    rows = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    rows += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(KvplanError) as caught:
        read("\n".join(rows))
    assert caught.value.code == "yaml-too-large"


KEYS = """
    kind metadata name spec containers image command args env value replicas resources limits
    nvidia.com/gpu model uri parallelism tensor predictor services modelArtifacts decode prefill
    servingEngineSpec modelSpec modelURL vllmConfig inference preset modelFormat nodeSelector
    gpu.product values key devices count
    """.split()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | st.text(max_size=20)
    | st.sampled_from(["vllm serve x/y", "vllm/vllm-openai:v0.19.1", "hf://x/y", "--model", "2"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=25,
)  # fmt: skip


@given(VALUES, st.sampled_from(["LLMInferenceService", "InferenceService", "Workspace", "Deployment", None]))
@settings(max_examples=150, deadline=None)
def test_any_manifest_is_read_or_refused(value: object, kind: str | None) -> None:
    import yaml

    document = {**value, "kind": kind} if isinstance(value, dict) and kind else value
    try:
        for launch in launches_in(yaml.safe_dump(document), shown="x.yaml"):
            launched_plans([launch], gpu="h100")
    except KvplanError as error:
        refused = error.exit_code
    else:
        return
    assert refused == 2


PLANS = sorted(path.name for path in EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("target", ["command", "compose", "kubernetes"])
@pytest.mark.parametrize("name", PLANS)
def test_what_kvplan_writes_it_reads_back(name: str, target: str) -> None:
    """The law of both directions: each worked plan, by way of its command and of both manifests."""
    (found,) = files_of([EXAMPLES / name])
    for reading in Loader().readings([found], None):
        plan = reading.plan
        assert plan is not None
        try:
            written = export(plan, target, model=load_model(plan.model))
        except KvplanError as error:
            refused = error.code
        else:
            refused, text = "", written
        if refused:
            assert refused in ("no-image", "no-device", "no-checkpoint")  # export's own tests hold these
            continue
        launches = launches_of_text(text, engine=plan.engine)
        assert plan.settings.gpu is not None
        read_back = launched_plans(launches[:1], gpu=plan.settings.gpu.slug)[0]
        assert _counts(read_back) == _counts(replace(plan, settings=replace(plan.settings, weights=None)))
        unread = [one for launch in launches for one in launch.unread]
        assert not unread, unread


def _counts(plan: Plan) -> object:
    """What the plan's engine comes to with its flags (attention ranks may be said in two ways)."""
    try:
        result = ask(load_model(plan.model), choose(plan.engine), start_of(plan))
    except KvplanError as error:
        return error.code
    pool = None if result.budget is None else result.budget.kv_pool_bytes
    return result.ok, pool, result.per_gpu.kv_bytes, plan.gpus_per_replica


KAITO = """
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: workspace-deepseek-r1-distill-qwen-14b}
resource: {instanceType: "Standard_NC24ads_A100_v4"}
inference:
  preset: {name: "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"}
  config: "ds-inference-params"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ds-inference-params}
data:
  inference_config.yaml: |
    max_probe_steps: 6
    vllm:
      cpu-offload-gb: 0
      gpu-memory-utilization: 0.95
      swap-space: 4
      max-model-len: 131072
      tensor-parallel-size: 2
"""


def test_a_kaito_workspace_is_read_with_its_config() -> None:
    """The keys of kaito-project/kaito examples/inference (deepseek-r1-distill-qwen-14b)."""
    (launch,) = read(KAITO)
    assert launch.gpu == "a100-pcie-80gb"
    assert launch.serve == {
        "cpu_offload_gb": 0, "gpu_memory_utilization": 0.95, "max_model_len": 131072,
        "tensor_parallel_size": 2,
    }  # fmt: skip
    assert "--max-probe-steps 6" in launch.unread


def test_a_kaito_config_that_is_not_here_is_named() -> None:
    (launch,) = read(KAITO.partition("---")[0])
    assert launch.unread == ("--kaito-config ds-inference-params",)


def test_a_kaito_inference_set() -> None:
    (launch,) = read(
        """
        kind: InferenceSet
        metadata: {name: s}
        spec:
          replicas: 3
          template:
            resource: {instanceType: Standard_NC24ads_A100_v4}
            inference: {preset: {name: Qwen/Qwen3-0.6B}}
        """
    )
    assert (launch.model, launch.gpu, launch.replicas) == ("Qwen/Qwen3-0.6B", "a100-pcie-80gb", 3)


@pytest.mark.parametrize("command", ["check", "size", "import"])
def test_a_manifest_that_starts_no_server_is_called_none(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not in the words of the readers of plans and cards."""
    from kvplan.cli import main

    for text in (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: 5\n",
        "services: {web: {image: nginx}}\n",
    ):
        path = tmp_path / "web.yaml"
        path.write_text(text)
        assert main([command, str(path), "--gpu", "h100"]) == 2
        shown = " ".join("".join(capsys.readouterr()).split())
        assert "starts a server of" in shown
        assert "kvplan: plan/v1" not in shown
        assert "card" not in shown
