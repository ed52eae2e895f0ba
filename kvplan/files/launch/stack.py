"""vLLM's production stack: the values of its chart, and its operator's ``VLLMRuntime``.

Both pass the same few keys on to ``vllm serve`` (vllm-project/production-stack
helm/templates/deployment-vllm-multi.yaml and ray-cluster.yaml,
operator/internal/controller/vllmruntime_controller.go): a switch that is absent is said to be off, LMCache
becomes ``--kv-transfer-config`` and variables. A key that the template does not read is named as one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvplan.files.launch.entries import Extra, Found, count_of, mapping, pairs, started, words_of

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
    ("extraArgs", "enablePrefixCaching", "enableChunkedPrefill", "env", "port", "v0", "v1")
)
"""Keys of ``vllmConfig`` that are read by name, or say nothing about memory."""
_OF_CRD = ("maxModelLen", "dtype", "maxNumSeqs")
"""Options that a VLLMRuntime has under ``model``."""
_PREFIX, _CHUNKED = "enablePrefixCaching", "enableChunkedPrefill"


def _words(config: Mapping[str, Any]) -> list[str]:
    """The words that the template writes of ``vllmConfig``; of a key that it does not read, a word that no
    server knows."""
    words = ["--enable-prefix-caching" if config.get(_PREFIX) is True else "--no-enable-prefix-caching"]
    if _CHUNKED in config:
        words.append("--enable-chunked-prefill" if config[_CHUNKED] else "--no-enable-chunked-prefill")
    for key, flag in _OPTIONS.items():
        if config.get(key) not in (None, "", 0):
            words += [flag, str(config[key])]
    words += words_of(config.get("extraArgs"))
    for key in sorted(config.keys() - _OPTIONS.keys() - _ELSEWHERE):
        words += [f"--vllmConfig-{key}", str(config[key])]
    return words


def _cache(given: object) -> list[str]:
    """LMCache: its connector, as the template writes it, and its buffers, which are memory of the host."""
    config = mapping(given)
    if config.get("enabled") is not True:
        return []
    role = str(config.get("kvRole") or "kv_both")
    connector = json.dumps({"kv_connector": "LMCacheConnectorV1", "kv_role": role})
    words = ["--kv-transfer-config", connector]
    for key in ("cpuOffloadingBufferSize", "diskOffloadingBufferSize"):
        if str(config.get(key, "0")) not in ("0", ""):
            words += [f"--lmcacheConfig-{key}", str(config[key])]
    return words


def production_stack(value: dict[str, Any]) -> Found | None:
    """``servingEngineSpec.modelSpec`` of the chart."""
    specs = mapping(value.get("servingEngineSpec")).get("modelSpec")
    if not isinstance(specs, list):
        return None
    found: Found = []
    for spec in (one for one in specs if isinstance(one, dict)):
        config = dict(mapping(spec.get("vllmConfig")))
        words = ["--enable-lora"] if spec.get("enableLoRA") is True else []
        if mapping(spec.get("raySpec")).get("enabled") is True and "pipelineParallelSize" in config:
            words += ["--pipeline-parallel-size", str(config.pop("pipelineParallelSize"))]
        words += (_words(config) if config else []) + _cache(spec.get("lmcacheConfig"))
        image = f"{spec.get('repository', '')}:{spec.get('tag', '')}" if spec.get("repository") else None
        start = started(spec.get("modelURL"), None, words, spec.get("env"), image)
        if start is not None:
            gpu = spec.get("requestGPUType")
            labels = [one for one in mapping(spec.get("nodeSelectorTerms")).values() if isinstance(one, str)]
            found.append((start, Extra(spec.get("name"), count_of(spec.get("replicaCount")),
                                       gpu if isinstance(gpu, str) else next(iter(labels), None),
                                       count_of(spec.get("requestGPU")))))  # fmt: skip
    return found


def vllm_runtime(value: dict[str, Any]) -> Found | None:
    """A ``VLLMRuntime``; an older form of it has the parts of ``vllmConfig`` and ``deploymentConfig`` under
    ``spec`` itself."""
    if value.get("kind") != "VLLMRuntime":
        return None
    spec = mapping(value.get("spec"))
    model, pods = mapping(spec.get("model")), mapping(spec.get("deploymentConfig")) or spec
    own = {"maxLoras", "tensorParallelSize", "gpuMemoryUtilization", "extraArgs", _PREFIX, _CHUNKED}
    config = mapping(spec.get("vllmConfig")) or {key: spec[key] for key in own & spec.keys()}
    chosen = {_CHUNKED: False, **config, **{key: model[key] for key in _OF_CRD if key in model}}
    words = ["--enable-lora"] if model.get("enableLoRA") is True else []
    words += _words(chosen) + _cache(spec.get("lmCacheConfig"))
    image = mapping(pods.get("image")).get("name")
    env = [*pairs(config.get("env")), *pairs(spec.get("env"))]
    start = started(model.get("modelURL"), None, words, dict(env), image)
    if start is None:
        return None
    name = mapping(value.get("metadata")).get("name")
    gpus = count_of(mapping(pods.get("resources")).get("gpu"))
    return [(start, Extra(name, count_of(pods.get("replicas")), None, gpus))]


READERS = (production_stack, vllm_runtime)
