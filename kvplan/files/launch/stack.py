"""vLLM's production stack: its chart's ``servingEngineSpec.modelSpec`` and its operator's ``VLLMRuntime``.

Both pass a few keys on to ``vllm serve`` (vllm-project/production-stack
helm/templates/deployment-vllm-multi.yaml and ray-cluster.yaml,
operator/internal/controller/vllmruntime_controller.go): a switch that is absent is said to be off, LMCache
becomes ``--kv-transfer-config`` and variables. A key that the template does not read is named as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from kvplan.files.launch.entries import Served, started, words_of
from kvplan.files.launch.found import Broken
from kvplan.files.launch.machines import fractions_in, given_by, gpu_below, gpu_of, gpu_of_label
from kvplan.files.launch.pods import Text
from kvplan.files.launch.scalers import least_of
from kvplan.files.launch.trees import (
    Tree,
    count_of,
    entries_of,
    image_of,
    mapping,
    name_of,
    pairs,
    unknown_keys,
)

_OPTIONS = {
    "tensorParallelSize": "--tensor-parallel-size",
    "maxModelLen": "--max-model-len",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "dtype": "--dtype",
    "maxLoras": "--max-loras",
    "runner": "--runner",
    "convert": "--convert",
}
_ELSEWHERE = frozenset(
    """extraArgs enablePrefixCaching enableChunkedPrefill env port v0 v1 prometheusMultiprocDir
    """.split()
)
"""Keys of ``vllmConfig`` that are read by name, or say nothing about memory."""
_OF_CRD = ("maxModelLen", "dtype", "maxNumSeqs")
"""Options that a VLLMRuntime has under ``model``."""
_PREFIX, _CHUNKED = "enablePrefixCaching", "enableChunkedPrefill"
_BUFFERS = {
    "cpuOffloadingBufferSize": "LMCACHE_MAX_LOCAL_CPU_SIZE",
    "diskOffloadingBufferSize": "LMCACHE_MAX_LOCAL_DISK_SIZE",
    "enableNixl": "LMCACHE_ENABLE_NIXL",
    "nixlBufferSize": "LMCACHE_NIXL_BUFFER_SIZE",
    "nixlBufferDevice": "LMCACHE_NIXL_BUFFER_DEVICE",
}
"""Key of ``lmcacheConfig`` → the variable that it becomes."""
_QUIET_CACHE = """enabled kvRole nixlRole nixlProxyHost nixlProxyPort nixlPeerHost nixlPeerPort
nixlPeerInitPort nixlPeerAllocPort nixlEnableGc enablePD logLevel rpcPort enableController instanceId
controllerPort controllerReplyPort controllerMonitorPort workerPorts p2pHost p2pInitPorts
workerHeartbeatTime pythonHashSeed cudaVisibleDevices skipLastNTokens remoteUrl remoteSerde
enableXpyd lmcacheInstanceId distributedUrl lookupUrl workerPort"""
_QUIET = """name annotations podAnnotations labels podLabels repository tag imagePullPolicy imagePullSecret
modelURL replicaCount requestCPU requestMemory requestGPU requestGPUType limitCPU limitMemory limitGPU
pvcStorage pvcAccessMode storageClass pvcMatchLabels pvcLabels pvcExistingClaimName vllmConfig lmcacheConfig
hf_token vllmApiKey env envFromSecret nodeSelectorTerms nodeSelector nodeName affinity tolerations
runtimeClassName schedulerName priorityClassName shmSize raySpec chatTemplate chatTemplateConfigMap
enableTool toolCallParser enableLoRA extraVolumes extraVolumeMounts initContainer sidecar extraContainers
serviceAccountName enabled keda strategy securityContext containerSecurityContext podSecurityContext
resources modelRevision startupProbe livenessProbe readinessProbe lifecycle hpa autoscaling enableReasoning
pdb reasoningParser routingStrategy service topologySpreadConstraints terminationGracePeriodSeconds extraPorts
startupProbeConfig livenessProbeConfig resourceClaims command"""


def _words(config: Tree) -> list[str]:
    """The words that the template writes of ``vllmConfig``; of a key that it does not read, a word that no
    server knows."""
    words = ["--enable-prefix-caching" if config.get(_PREFIX) is True else "--no-enable-prefix-caching"]
    if _CHUNKED in config:
        words.append("--enable-chunked-prefill" if config[_CHUNKED] else "--no-enable-chunked-prefill")
    for key, flag in _OPTIONS.items():
        if config.get(key) not in (None, "", 0):
            words += [flag, str(config[key])]
    words += words_of(config.get("extraArgs"))
    for key in sorted(map(str, config.keys() - _OPTIONS.keys() - _ELSEWHERE)):
        words += [f"--vllmConfig-{key}", str(config[key])]
    return words


def _cache(given: object) -> tuple[list[str], dict[str, str]]:
    """LMCache: its connector and the variables of its buffers, as the template writes them."""
    config = mapping(given)
    if config.get("enabled") is not True:
        return [], {}
    role = str(config.get("kvRole") or "kv_both")
    connector = json.dumps({"kv_connector": "LMCacheConnectorV1", "kv_role": role})
    said = {key: str(config[key]) for key in _BUFFERS if str(config.get(key, "0")) not in ("0", "", "None")}
    return ["--kv-transfer-config", connector], {_BUFFERS[key]: value for key, value in said.items()}


def _buffer(given: object) -> list[str]:
    """The buffer of LMCache that lies on the GPU."""
    config = mapping(given)
    size, device = config.get("nixlBufferSize"), config.get("nixlBufferDevice", "cuda")
    if config.get("enabled") is not True or not size or device != "cuda":
        return []
    return [f"lmcacheConfig.nixlBufferSize {size}: bytes of each GPU beside the pool"]


def production_stack(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """``servingEngineSpec.modelSpec`` of the chart."""
    del text
    for spec in entries_of(mapping(document.get("servingEngineSpec")).get("modelSpec")):
        if spec.get("enabled") is False:
            continue
        config, cache, ray = (
            dict(mapping(spec.get(key))) for key in ("vllmConfig", "lmcacheConfig", "raySpec")
        )
        words = ["--enable-lora"] if spec.get("enableLoRA") is True else []
        over_nodes = ray.get("enabled") is True
        if over_nodes and "pipelineParallelSize" in config:
            words += ["--pipeline-parallel-size", str(config.pop("pipelineParallelSize"))]
        connected, variables = _cache(cache)
        words += (_words(config) if config else []) + connected
        image = image_of({"repository": spec.get("repository"), "tag": spec.get("tag")})
        env = {**variables, **dict(pairs(spec.get("env")))}
        start = started(spec.get("modelURL"), None, words, env, image)
        if start is None:
            continue
        given = given_by(spec.get("resources"))
        gpu = gpu_of_label(str(spec.get("requestGPUType", ""))) or gpu_of(mapping(spec.get("nodeSelector")))
        gpu = gpu or gpu_below(spec.get("nodeSelectorTerms")) or _labels(spec.get("nodeSelectorTerms"))
        keda = mapping(spec.get("keda")) if mapping(spec.get("keda")).get("enabled") is True else {}
        least, notes = least_of(
            keda.get("minReplicaCount"), spec.get("replicaCount"), keda.get("maxReplicaCount")
        )
        unread = [*given.parts, *fractions_in({"annotations": spec.get("podAnnotations")})]
        unread += unknown_keys(spec, _QUIET, "modelSpec")
        unread += unknown_keys(cache, f"{_QUIET_CACHE} {' '.join(_BUFFERS)}", "lmcacheConfig")
        yield Served(
            start, str(spec.get("name") or "model"), least, 1, gpu or given.gpu,
            None if over_nodes else count_of(spec.get("requestGPU")) or given.gpus, given.slice,
            notes=(*notes, *_buffer(cache)), one=over_nodes,
            unread=tuple(unread),
        )  # fmt: skip


def _labels(terms: object) -> str | None:
    return next((gpu for one in mapping(terms).values() if (gpu := gpu_of_label(str(one)))), None)


def vllm_runtime(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """A ``VLLMRuntime``; an older form of it has the parts of ``vllmConfig`` and ``deploymentConfig`` under
    ``spec`` itself."""
    spec = mapping(document.get("spec"))
    model, pods = mapping(spec.get("model")), mapping(spec.get("deploymentConfig")) or spec
    own = {"maxLoras", "tensorParallelSize", "gpuMemoryUtilization", "extraArgs", _PREFIX, _CHUNKED}
    config = mapping(spec.get("vllmConfig")) or {key: spec[key] for key in own & spec.keys()}
    chosen = {_CHUNKED: False, **config, **{key: model[key] for key in _OF_CRD if key in model}}
    words = ["--enable-lora"] if model.get("enableLoRA") is True else []
    connected, variables = _cache(spec.get("lmCacheConfig"))
    words += _words(chosen) + connected
    env = [*variables.items(), *pairs(config.get("env")), *pairs(spec.get("env"))]
    start = started(model.get("modelURL"), None, words, dict(env), mapping(pods.get("image")).get("name"))
    if start is not None:
        gpus = count_of(mapping(pods.get("resources")).get("gpu"))
        replicas = count_of(pods.get("replicas")) or 1
        gpu = gpu_of(mapping(pods.get("nodeSelector"))) or gpu_of(mapping(pods.get("resources")))
        yield Served(start, name_of(document) or text.beside.name, replicas, gpu=gpu, gpus=gpus)
