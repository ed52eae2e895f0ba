"""What manifests of public repositories say: the keys and values that decide, written here in their forms.

Facts from vllm-project/production-stack (tutorials/assets, operator/config/samples), kserve/kserve
(docs/samples/llmisvc), llm-d/llm-d (guides), GoogleCloudPlatform/kubernetes-engine-samples (ai-ml).
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from kvplan.errors import KvplanError
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.manifest import launches_in
from kvplan.files.launch.read import is_launch, launches_of, launches_of_text
from kvplan.files.launch.starts import server_of_image, starts_in


def read(text: str) -> list[Launch]:
    return launches_in(textwrap.dedent(text), shown="deploy.yaml")


@pytest.mark.parametrize(("image", "engine", "noted"), [
    ("vllm/vllm-openai:v0.19.1", "vllm@0.19.1", False),
    ("registry.example.com/mirror/vllm-openai:v0.19.1", "vllm@0.19.1", False),
    ("vllm/vllm-openai:latest", "vllm", False),
    ("ghcr.io/llm-d/llm-d-cuda:v0.9.0", "vllm", True),
    ("lmcache/vllm-openai:v0.3.9post2", "vllm", True),
    ("nvcr.io/nvidia/vllm:26.02-py3", "vllm", True),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.8.0", "vllm@0.12.0", False),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.5.0-efa", "vllm@0.28.0", False),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:9.0.0", "vllm", True),
])  # fmt: skip
def test_only_an_engines_own_image_says_its_release(image: str, engine: str, noted: bool) -> None:
    """llm-d's 0.9.0 and LMCache's 0.3.9 are no releases of vLLM, one of which exists; Dynamo says which of
    its own has which."""
    [one] = read(f"services: {{a: {{image: '{image}', command: [--model, Qwen/Qwen3-8B]}}}}")
    assert one.engine == engine
    assert any("says no release" in note for note in one.notes) is noted


@pytest.mark.parametrize("image", [
    "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0", "ghcr.io/llm-d/llm-d-routing-sidecar:v0.3.0",
    "ghcr.io/llm-d/llm-d-inference-scheduler:v0.3.0", "ghcr.io/llm-d/llm-d-inference-sim:v0.10.0",
    "ghcr.io/vllm-project/production-stack/router:latest", "lmcache/lmstack-router:latest",
    "ghcr.io/sgl-project/sglang-router:0.2",
])  # fmt: skip
def test_what_stands_beside_a_server_starts_none(image: str) -> None:
    assert server_of_image(image) is None


def test_a_sidecars_options_are_not_the_servers() -> None:
    [one] = read("""
        kind: LeaderWorkerSet
        spec:
          leaderWorkerTemplate:
            size: 2
            workerTemplate:
              spec:
                initContainers:
                - name: routing-proxy
                  image: ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0
                  args: [--port=8000, --data-parallel-size=8]
                containers:
                - name: vllm
                  image: ghcr.io/llm-d/llm-d-cuda-dev:sha-a1bcf21
                  command: [/bin/bash, -c]
                  args:
                  - |-
                    START_RANK=$(( ${LWS_WORKER_INDEX:-0} * DP_SIZE_LOCAL ))
                    exec vllm serve \\
                      deepseek-ai/DeepSeek-R1-0528 \\
                      --data-parallel-size $((LWS_GROUP_SIZE * DP_SIZE_LOCAL)) \\
                      --data-parallel-start-rank $START_RANK --max-num-seqs ${MAX_TOKENS}
                  env: [{name: DP_SIZE_LOCAL, value: "8"}, {name: MAX_TOKENS, value: "256"}]
                  resources: {limits: {nvidia.com/gpu: 8}}
    """)
    assert (one.model, one.gpus, one.replicas) == ("deepseek-ai/DeepSeek-R1-0528", 16, 1)
    assert one.serve == {"data_parallel_size": 16, "max_num_seqs": 256}


@pytest.mark.parametrize(("text", "total"), [("2*8", 16), ("2 * 4 + 1", 9), ("9-2*3", 3), ("A*B", 6)])
def test_sums_of_a_shell(text: str, total: int) -> None:
    [start] = starts_in(f"A=2 B=3\nvllm serve x/y -tp $(({text}))")
    assert start.words == ("x/y", "-tp", str(total))


def test_a_sum_that_nothing_says_is_refused() -> None:
    with pytest.raises(KvplanError, match="nothing says") as caught:
        launches_of_text("vllm serve x/y --data-parallel-size $((GROUP * 2))")
    assert caught.value.code == "unresolved-variable"


def test_a_placeholder_elsewhere_does_not_hide_the_server() -> None:
    """Tutorials leave ``{{HF_TOKEN}}`` in a Secret behind the Deployment: YAML's mapping as a key."""
    [one] = read("""
        kind: Deployment
        spec:
          template:
            spec:
              containers:
              - image: docker.io/vllm/vllm-openai:v0.10.0
                command: [python3, -m, vllm.entrypoints.openai.api_server]
                args: [--model=meta-llama/Llama-4-Scout-17B-16E, --tensor-parallel-size=8, --swap-space=16]
                resources: {limits: {nvidia.com/gpu : 8}}
              nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}
        ---
        kind: Secret
        stringData:
          hf_api_token: {{HF_TOKEN}}
    """)
    assert (one.engine, one.gpu, one.gpus) == ("vllm@0.10.0", "h100-sxm-80gb", 8)
    assert one.unread == ()  # of the host, and until 0.17


@pytest.mark.parametrize(("label", "gpu"), [("tpu-v6e-slice", "tpu-v6e-32gb"), ("tpu7x", "tpu-v7x-192gb")])
def test_tpus(label: str, gpu: str) -> None:
    [one] = read(f"""
        spec:
          nodeSelector: {{cloud.google.com/gke-tpu-accelerator: {label}}}
          containers:
          - image: vllm/vllm-tpu:latest
            command: [vllm, serve, Qwen/Qwen3-32B, --tensor-parallel-size=8]
            resources: {{limits: {{google.com/tpu: 8}}}}
    """)
    assert (one.gpu, one.gpus) == (gpu, 8)


def stack(entries: str) -> Launch:
    [one] = read(f"""
        servingEngineSpec:
          modelSpec:
          - name: chat
            modelURL: Qwen/Qwen3-8B
            replicaCount: 2
            requestGPU: 1
            {textwrap.indent(textwrap.dedent(entries), " " * 12).strip()}
    """)
    return one


def test_a_stacks_switches_are_off_where_they_are_absent() -> None:
    assert stack("").serve == {}  # without vllmConfig the template says nothing
    one = stack("vllmConfig: {maxModelLen: 4096, gpuMemoryUtilization: 0.8}")
    assert one.serve == {"enable_prefix_caching": False, "max_model_len": 4096, "gpu_memory_utilization": 0.8}
    one = stack("vllmConfig: {enablePrefixCaching: true, enableChunkedPrefill: false}")
    assert one.serve == {"enable_prefix_caching": True, "enable_chunked_prefill": False}
    assert one.unread == ()


def test_a_stacks_cache_and_unknown_keys_are_named() -> None:
    one = stack("""
        enableLoRA: true
        vllmConfig: {maxLoras: 4, pipelineParallelSize: 2}
        lmcacheConfig: {enabled: true, cpuOffloadingBufferSize: "20", kvRole: kv_producer}
    """)
    assert one.serve == {
        "enable_lora": True, "max_loras": 4, "enable_prefix_caching": False,
        "kv_transfer_config": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_producer"},
    }  # fmt: skip
    assert one.unread == ("--vllmConfig-pipelineParallelSize 2",)
    assert one.notes == ("LMCACHE_MAX_LOCAL_CPU_SIZE=20: memory of the host, none of the GPU",)
    one = stack("""
        raySpec: {enabled: true}
        vllmConfig: {pipelineParallelSize: 2, tensorParallelSize: 4}
    """)
    assert (one.serve["pipeline_parallel_size"], one.serve["tensor_parallel_size"]) == (2, 4)
    assert not one.unread


OPERATOR = """
    kind: VLLMRuntime
    metadata: {name: sample}
    spec:
      model: {modelURL: meta-llama/Llama-3.1-8B, enableLoRA: true, maxModelLen: 4096, maxNumSeqs: 32}
      vllmConfig: {enablePrefixCaching: false, tensorParallelSize: 1, gpuMemoryUtilization: "0.8",
                   maxLoras: 4, v1: true, port: 8000, env: [{name: HF_HOME, value: /data}]}
      lmCacheConfig: {enabled: true, cpuOffloadingBufferSize: "15", diskOffloadingBufferSize: "0"}
      deploymentConfig:
        resources: {cpu: "5", gpu: "1"}
        image: {registry: docker.io, name: "lmcache/vllm-openai:2025-05-27-v1"}
        replicas: 2
"""


def test_the_operators_runtime() -> None:
    [one] = read(OPERATOR)
    assert (one.name, one.model, one.replicas, one.gpus) == (
        "sample",
        "meta-llama/Llama-3.1-8B",
        2,
        1,
    )
    assert one.serve == {
        "enable_lora": True, "enable_prefix_caching": False, "tensor_parallel_size": 1, "max_loras": 4,
        "gpu_memory_utilization": 0.8, "max_model_len": 4096, "max_num_seqs": 32,
        "enable_chunked_prefill": False,
        "kv_transfer_config": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
    }  # fmt: skip
    assert any("LMCACHE_MAX_LOCAL_CPU_SIZE=15" in note for note in one.notes)


def test_an_older_runtime_without_parts() -> None:
    [one] = read("""
        kind: VLLMRuntime
        metadata: {name: old}
        spec:
          tensorParallelSize: 2
          extraArgs: [--max-num-seqs, "64"]
          model: {modelURL: Qwen/Qwen3-8B, maxModelLen: 4096}
          resources: {gpu: "2"}
          replicas: 3
    """)
    assert (one.replicas, one.gpus) == (3, 2)
    assert one.serve["tensor_parallel_size"] == 2
    assert one.serve["max_num_seqs"] == 64


def service(model: str, rest: str = "", container: str = "{name: main}") -> Launch:
    [one] = read(f"""
        kind: LLMInferenceService
        metadata: {{name: chat}}
        spec:
          model: {model}
          {rest}
          template: {{containers: [{container}]}}
    """)
    return one


def test_a_service_on_a_volume_is_its_models_name() -> None:
    one = service("{uri: 'pvc://weights', name: deepseek-ai/DeepSeek-R1-0528}")
    assert one.model == "deepseek-ai/DeepSeek-R1-0528"
    assert "pvc://weights" in one.notes[0]
    assert service("{uri: 'hf://Qwen/Qwen3-8B', name: mine/chat}").model == "Qwen/Qwen3-8B"


def test_adapters_switch_lora_on() -> None:
    one = service("{uri: 'hf://Qwen/Qwen3-8B', lora: {adapters: [{name: a}, {name: b}], maxRank: 64}}")
    assert one.serve == {"enable_lora": True, "max_lora_rank": 64}
    assert service("{uri: 'hf://Qwen/Qwen3-8B', lora: {}}").serve == {}


@pytest.mark.parametrize(("amount", "counted"), [("10Gi", 10 * 2**30), ("5G", 5 * 10**9), ("4096", 4096)])
def test_a_services_offloading_is_its_connector(amount: str, counted: int) -> None:
    one = service("{uri: 'hf://Qwen/Qwen3-8B'}", f"kvCacheOffloading: {{cpu: {amount}}}")
    assert one.unread == ()
    config = one.serve["kv_transfer_config"]
    assert isinstance(config, dict)
    assert config["kv_connector"] == "OffloadingConnector"
    assert config["kv_connector_extra_config"]["cpu_bytes_to_use"] == counted


def test_an_amount_that_is_none_is_named() -> None:
    one = service("{uri: 'hf://Qwen/Qwen3-8B'}", "kvCacheOffloading: {cpu: much}")
    assert one.unread == ("--kvCacheOffloading-cpu much",)


def test_a_services_own_command() -> None:
    hub = "{uri: 'hf://Qwen/Qwen3-8B'}"
    words = "command: [python3, -m, sglang.launch_server], args: [--model-path, /mnt/models, --tp-size, 2]"
    one = service(hub, container=f"{{image: 'lmsysorg/sglang:v0.5.9', {words}}}")
    assert (one.engine, one.model, one.serve) == ("sglang@0.5.9", "Qwen/Qwen3-8B", {"tp_size": 2})
    one = service(hub, container="{command: [vllm, serve, /mnt/models, -tp, 2]}")
    assert (one.model, one.serve, one.unread) == ("Qwen/Qwen3-8B", {"tensor_parallel_size": 2}, ())
    one = service(hub, container="{command: [/app/simulator]}")
    assert one.notes == ("its command /app/simulator is not one that kvplan knows",)


@pytest.mark.parametrize("words", [
    "ssh gpu1 'vllm serve Qwen/Qwen3-8B -tp 2'",
    "tmux new -d 'vllm serve Qwen/Qwen3-8B -tp 2'",
    "vllm.exe serve Qwen/Qwen3-8B -tp 2",
    "apptainer run --nv docker://vllm/vllm-openai --model Qwen/Qwen3-8B -tp 2",
    "kubectl run chat --image=vllm/vllm-openai -- --model Qwen/Qwen3-8B -tp 2",
    f"docker run vllm/vllm-openai@sha256:{'a1' * 32} --model Qwen/Qwen3-8B -tp 2",
])  # fmt: skip
def test_words_around_a_server(words: str) -> None:
    [one] = launches_of_text(words)
    assert (one.engine, one.model, one.serve) == ("vllm", "Qwen/Qwen3-8B", {"tensor_parallel_size": 2})


def test_visible_devices_are_counted() -> None:
    assert launches_of_text("CUDA_VISIBLE_DEVICES=0,1 vllm serve x/y")[0].gpus == 2
    assert launches_of_text("CUDA_VISIBLE_DEVICES=all vllm serve x/y")[0].gpus is None


SCRIPTS = {
    "chat.service": (
        '[Service]\nEnvironment="CUDA_VISIBLE_DEVICES=0,1"\nEnvironment=TP=2\n'
        "ExecStart=-/opt/venv/bin/vllm serve Qwen/Qwen3-8B \\\n  -tp ${TP} --max-model-len 4096\n"
    ),
    "chat.bat": (
        "@echo off\r\nset TP=2\r\n"
        "C:\\bin\\vllm.exe serve Qwen/Qwen3-8B ^\r\n -tp %TP% --max-model-len 4096\r\n"
    ),
    "chat.ps1": "$env:TP=2\nvllm serve Qwen/Qwen3-8B `\n -tp $TP --max-model-len 4096\n",
    "chat.sh": "#!/bin/bash\nTP=2\nvllm serve Qwen/Qwen3-8B -tp $TP --max-model-len 4096\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_and_units(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(SCRIPTS[name], encoding="utf-8")
    assert is_launch(str(path))
    [one] = launches_of(str(path))
    assert one.model == "Qwen/Qwen3-8B"
    assert one.serve == {"tensor_parallel_size": 2, "max_model_len": 4096}


WORKER = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: settings}
    data:
      config.yaml: |
        tensor_parallel_size: 8
        moe_expert_parallel_size: 8
        enable_attention_dp: true
        max_batch_size: 512
        kv_cache_config: {dtype: fp8, free_gpu_memory_fraction: 0.8}
    ---
    kind: DynamoGraphDeployment
    metadata: {name: r1}
    spec:
      services:
        Frontend:
          componentType: frontend
          extraPodSpec:
            mainContainer:
              image: nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.1.1
              env: [{name: A, value: b}]
        Worker:
          componentType: worker
          replicas: 2
          resources: {limits: {gpu: "8"}}
          extraPodSpec:
            mainContainer:
              image: nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.1.1
              command: [/bin/sh, -c]
              args:
              - python3 -m dynamo.trtllm --model-path deepseek-ai/DeepSeek-R1
                --extra-engine-args /config/config.yaml
"""


def test_a_dynamo_worker_reads_the_config_map_beside_it() -> None:
    [one] = read(WORKER)
    assert (one.engine, one.model) == ("trtllm@1.3.0rc11", "deepseek-ai/DeepSeek-R1")
    assert (one.replicas, one.gpus) == (2, 8)
    assert one.serve == {
        "tensor_parallel_size": 8, "moe_expert_parallel_size": 8, "enable_attention_dp": True,
        "max_batch_size": 512, "kv_cache_dtype": "fp8", "free_gpu_memory_fraction": 0.8,
    }  # fmt: skip
    assert one.unread == ()


def test_a_config_map_of_somebody_else_is_not_read() -> None:
    [one] = read(WORKER.replace("config.yaml: |", "other.yaml: |"))
    assert one.unread == ("--config /config/config.yaml (no such file here)",)


def test_dynamos_components() -> None:
    [one] = read("""
        kind: DynamoGraphDeployment
        metadata: {name: flash}
        spec:
          components:
          - name: Frontend
            type: frontend
            podTemplate:
              spec: {containers: [{image: nvcr.io/nvidia/ai-dynamo/vllm-runtime, env: [{name: A, value: b}]}]}
          - name: Worker
            type: worker
            replicas: 2
            podTemplate:
              spec:
                nodeSelector: {nvidia.com/gpu.product: NVIDIA-B200}
                containers:
                - command: [python3, -m, dynamo.vllm]
                  args: [--model, deepseek-ai/DeepSeek-V4.1-Flash, -tp, "4", --dyn-reasoning-parser, x]
                  resources: {limits: {nvidia.com/gpu: "4"}}
    """)
    assert (one.replicas, one.gpus, one.gpu) == (2, 4, "b200-sxm-180gb")
    assert one.unread == ()


def test_an_inference_service_of_a_vllm_runtime_has_its_models_arguments() -> None:
    """redhat-ai-services/helm-charts: a format called vLLM, an image of models by its tag."""
    [one] = read("""
        kind: InferenceService
        metadata: {name: llm}
        spec:
          predictor:
            minReplicas: 2
            model:
              args: [--tensor-parallel-size, "4", --max-model-len=2048]
              modelFormat: {name: vLLM}
              runtime: vllm-cuda
              storageUri: oci://quay.io/redhat-ai-services/modelcar-catalog:granite-3.3-2b-instruct
              resources: {limits: {nvidia.com/gpu: "4"}}
    """)
    assert (one.engine, one.model, one.replicas, one.gpus) == ("vllm", "granite-3.3-2b-instruct", 2, 4)
    assert one.serve["tensor_parallel_size"] == 4
    assert one.serve["max_model_len"] == 2048
    assert any("vllm-cuda" in note for note in one.notes)
    assert any("modelcar-catalog" in note for note in one.notes)


@pytest.mark.parametrize(("asked", "gpu", "gpus"), [
    ("A100-80GB:8", "a100-sxm-80gb", 8), ("{L4: 2}", "l4-24gb", 2), ("{L4:1, A10G:1}", "l4-24gb", 1),
    ("[H100:4, H200:4]", "h100-sxm-80gb", 4),
])  # fmt: skip
def test_a_sky_task_says_its_gpus(asked: str, gpu: str, gpus: int) -> None:
    """skypilot-org/skypilot llm/vllm and llm/qwen: the command takes its GPUs and model from variables."""
    [one] = read(f"""
        resources:
          accelerators: {asked}
          ports: 8081
        envs:
          MODEL_NAME: Qwen/Qwen3-8B
        run: |
          vllm serve $MODEL_NAME --port 8081 --max-model-len 8192 \\
            --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE 2>&1 | tee api.log
    """)
    assert (one.engine, one.model, one.gpu, one.gpus) == ("vllm", "Qwen/Qwen3-8B", gpu, gpus)
    assert one.serve["tensor_parallel_size"] == gpus
    assert any("the first counts" in note for note in one.notes) is (asked.count(",") == 1)
