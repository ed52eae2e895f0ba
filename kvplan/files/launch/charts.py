"""Manifests that name a model and its parallelism in keys of their own, as words of the server they start.

Here llm-d's modelservice values (llm-d-incubation/llm-d-modelservice charts/llm-d-modelservice/values.yaml),
KAITO ``Workspace`` and ``InferenceSet`` with their ConfigMap (kaito-project/kaito
api/v1beta1/workspace_types.go, examples/inference), and the engines' own options files; KServe in a
file of its own.

vLLM's production stack and its operator's ``VLLMRuntime`` pass the same few keys on to ``vllm serve``
(vllm-project/production-stack helm/templates/deployment-vllm-multi.yaml and ray-cluster.yaml,
operator/internal/controller/vllmruntime_controller.go): a switch that is absent is said to be off, LMCache
becomes ``--kv-transfer-config`` and variables. A key that the template does not read is named as one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvplan.engines.folders import FOLDERS
from kvplan.engines.launch import Server, flags_of_server, server_in_charts, servers
from kvplan.files.launch import kserve
from kvplan.files.launch.entries import (
    Extra,
    Found,
    container_of,
    count_of,
    gpus_of,
    mapping,
    pairs,
    started,
    words_of,
    words_of_keys,
)
from kvplan.files.launch.starts import starts_in

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


def server_in(value: dict[str, object]) -> Found | None:
    """The servers that a mapping names in keys of its own; None where it is no such mapping."""
    for reader in (*kserve.READERS, _model_service, production_stack, vllm_runtime, _kaito, _sky):
        found = reader(value)
        if found:
            return found
    return None


def _sky(value: dict[str, object]) -> Found | None:
    """SkyPilot: ``resources.accelerators``, ``envs`` and a shell text ``run`` (skypilot-org/skypilot
    docs/source/reference/yaml-spec.rst). Of several kinds of GPUs that it may take the first counts."""
    resources, text = mapping(value.get("resources")), value.get("run")
    asked = resources.get("accelerators")
    if asked is None or not isinstance(text, str):
        return None
    kinds = [str(one) for one in asked] if isinstance(asked, list) else [str(asked)]
    if isinstance(asked, dict):
        kinds = [str(name) if count is None else f"{name}:{count}" for name, count in asked.items()]
    kind, _, number = kinds[0].strip("{}").partition(":") if kinds else ("", "", "")
    count = count_of(number) or 1
    known = {
        **dict(pairs(value.get("envs"))),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(count),
        "SKYPILOT_NUM_NODES": "1",
    }
    notes = (f"of its GPUs {', '.join(kinds)} the first counts",) if len(kinds) > 1 else ()
    replicas = count_of(mapping(mapping(value.get("service")).get("replica_policy")).get("min_replicas"))
    return [(start, Extra(None, replicas, kind, count, notes)) for start in starts_in(text, known)] or None


def _model_service(value: dict[str, object]) -> Found | None:
    """llm-d: ``modelArtifacts.uri``, ``decode`` and ``prefill``."""
    artifacts = mapping(value.get("modelArtifacts"))
    if "uri" not in artifacts or not ("decode" in value or "prefill" in value):
        return None
    found: Found = []
    for role in ("decode", "prefill"):
        part = mapping(value.get(role))
        if not part or part.get("create") is False or part.get("replicas") == 0:
            continue
        container = container_of(part, server_in_charts().engine)
        start = started(
            artifacts["uri"],
            part.get("parallelism"),
            container.get("args"),
            container.get("env"),
            container.get("image"),
        )
        if start is not None:
            name = str(artifacts.get("name") or "model").rpartition("/")[2]
            found.append(
                (start, Extra(f"{name}-{role}", count_of(part.get("replicas")), None, gpus_of(container)))
            )
    return found


KAITO_FILE = "inference_config.yaml"
_SETTINGS = "kvplan.settings"


def with_configs(documents: Sequence[object], load: Callable[[str], object]) -> None:
    """Puts what KAITO's ConfigMaps say (``inference_config.yaml``) beside the workspaces that name them."""
    maps = {
        mapping(one.get("metadata")).get("name"): mapping(one.get("data")).get(KAITO_FILE)
        for one in documents
        if isinstance(one, dict) and one.get("kind") == "ConfigMap"
    }
    for one in documents:
        inference = _inference_of(one) if isinstance(one, dict) else {}
        text = maps.get(inference.get("config"))
        if isinstance(text, str):
            inference[_SETTINGS] = load(text)


def files_of_config_maps(documents: Sequence[object]) -> dict[str, str]:
    """Name → text of the files that ConfigMaps bring, where only one has a file of that name."""
    found: dict[str, list[str]] = {}
    for one in documents:
        if isinstance(one, dict) and one.get("kind") == "ConfigMap":
            for name, text in mapping(one.get("data")).items():
                if isinstance(text, str):
                    found.setdefault(str(name), []).append(text)
    return {name: texts[0] for name, texts in found.items() if len(texts) == 1}


def _inference_of(value: dict[str, object]) -> dict[str, object]:
    """The inference of a workspace, or of an InferenceSet's template."""
    if value.get("kind") == "Workspace":
        return mapping(value.get("inference"))
    if value.get("kind") == "InferenceSet":
        return mapping(mapping(mapping(value.get("spec")).get("template")).get("inference"))
    return {}


def _kaito(value: dict[str, Any]) -> Found | None:
    """A KAITO workspace: its preset, and the server's options that its ConfigMap has under ``vllm``; what
    else stands there, or a ConfigMap that is not here, is a word that nothing knows, so that it is named."""
    inference = _inference_of(value)
    if not inference:
        return None
    preset = mapping(inference.get("preset")).get("name")
    template = mapping(mapping(value.get("spec")).get("template"))
    resource = mapping(value.get("resource") or template.get("resource"))
    settings = mapping(inference.get(_SETTINGS))
    words = words_of_keys({key: one for key, one in settings.items() if key not in FOLDERS})
    for engine in FOLDERS:
        words += words_of_keys(mapping(settings.get(engine)))
    if "config" in inference and not settings:
        words += ("--kaito-config", str(inference["config"]))
    start = started(preset, None, list(words), None)
    name = mapping(value.get("metadata")).get("name")
    kind, replicas = resource.get("instanceType"), count_of(mapping(value.get("spec")).get("replicas"))
    gpu = kind if isinstance(kind, str) else None
    return None if start is None else [(start, Extra(name, replicas, gpu, None))]


def own_config(document: Mapping[str, Any]) -> Server | None:
    """The engine whose options file a mapping is: it names a model, and most keys are options of its
    server (``vllm serve --config``, ``python -m sglang.launch_server --config``)."""
    keys = ["--" + str(key).replace("_", "-") for key in document]
    for server in servers().values():
        table = flags_of_server(server.engine)
        named = any(one in keys for one in server.model)
        if (
            len(keys) > 1
            and named
            and server.options_file is not None
            and sum(key in table for key in keys) * 2 > len(keys)
        ):
            return server
    return None


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


def production_stack(value: dict[str, object]) -> Found | None:
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
