"""Manifests that name a model and its parallelism in keys of their own, as words of the server they start.

Here llm-d's modelservice values (llm-d-incubation/llm-d-modelservice charts/llm-d-modelservice/values.yaml),
KAITO ``Workspace`` and ``InferenceSet`` with their ConfigMap (kaito-project/kaito
api/v1beta1/workspace_types.go, examples/inference), and the engines' own options files; KServe and vLLM's
production stack in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvplan.engines.folders import FOLDERS
from kvplan.engines.launch import Server, flags_of_server, server_in_charts, servers
from kvplan.files.launch import kserve, stack
from kvplan.files.launch.entries import (
    Extra,
    Found,
    container_of,
    count_of,
    gpus_of,
    mapping,
    pairs,
    started,
    words_of_keys,
)
from kvplan.files.launch.starts import starts_in


def server_in(value: dict[str, Any]) -> Found | None:
    """The servers that a mapping names in keys of its own; None where it is no such mapping."""
    for reader in (*kserve.READERS, _model_service, *stack.READERS, _kaito, _sky):
        found = reader(value)
        if found:
            return found
    return None


def _sky(value: dict[str, Any]) -> Found | None:
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


def _model_service(value: dict[str, Any]) -> Found | None:
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


KAITO_KINDS, KAITO_FILE = ("Workspace", "InferenceSet"), "inference_config.yaml"
_SETTINGS = "kvplan.settings"


def with_configs(documents: Sequence[Any], load: Callable[[str], Any]) -> None:
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


def files_of_config_maps(documents: Sequence[Any]) -> dict[str, str]:
    """Name → text of the files that ConfigMaps bring, where only one has a file of that name."""
    found: dict[str, list[str]] = {}
    for one in documents:
        if isinstance(one, dict) and one.get("kind") == "ConfigMap":
            for name, text in mapping(one.get("data")).items():
                if isinstance(text, str):
                    found.setdefault(str(name), []).append(text)
    return {name: texts[0] for name, texts in found.items() if len(texts) == 1}


def _inference_of(value: dict[str, Any]) -> dict[str, Any]:
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
