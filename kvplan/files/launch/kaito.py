"""KAITO: ``Workspace``, ``InferenceSet`` and ``MultiRoleInference`` with their ConfigMap.

kaito-project/kaito api/v1beta1/workspace_types.go and pkg/model/interface.go, buildVLLMInferenceCommand and
configureParallelism: what its operator tells vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.engines.folders import FOLDERS
from kvplan.errors import KvplanError
from kvplan.files.gpus.listed import load_listed
from kvplan.files.launch.entries import Served, started
from kvplan.files.launch.found import Broken
from kvplan.files.launch.loose import load_loose
from kvplan.files.launch.machines import gpu_of_label, gpus_of_machine
from kvplan.files.launch.pods import Text, servers_of_pod
from kvplan.files.launch.trees import (
    Tree,
    count_of,
    entries_of,
    mapping,
    name_of,
    unknown_keys,
    words_of_keys,
)
from kvplan.record import replace

KAITO_FILE = "inference_config.yaml"
_UTILIZATION = {"a10-24gb": "0.82"}
"""gpuMemoryUtilizationByGPUModel; 0.84 for the others."""
_PRESETS = {
    "mistral-7b": "mistralai/Mistral-7B-v0.3",
    "mistral-7b-instruct": "mistralai/Mistral-7B-Instruct-v0.3",
    "ministral-3-3b-instruct": "mistralai/Ministral-3-3B-Instruct-2512",
    "ministral-3-8b-instruct": "mistralai/Ministral-3-8B-Instruct-2512",
    "ministral-3-14b-instruct": "mistralai/Ministral-3-14B-Instruct-2512",
    "mistral-large-3-675b-instruct": "mistralai/Mistral-Large-3-675B-Instruct-2512",
}
"""Presets whose names are only how their models' begin (presets/workspace/models/supported_models.yaml)."""
_QUIET = "preset config adapters template"
_OF_SERVER = "kaito-config"


def workspace(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """A workspace: its preset, what its operator adds, and the options of its ConfigMap under ``vllm``."""
    spec = mapping(document.get("spec"))
    whole = mapping(spec.get("template")) if document.get("kind") == "InferenceSet" else document
    name = name_of(document) or text.beside.name
    replicas = count_of(spec.get("replicas")) or 1
    yield from _of(mapping(whole.get("inference")), mapping(whole.get("resource")), name, replicas, text)


def roles(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """A ``MultiRoleInference``: one model, prefill and decode on machines of their own."""
    spec = mapping(document.get("spec"))
    name = name_of(document) or text.beside.name
    preset = mapping(mapping(spec.get("model")).get("preset") or spec.get("preset")) or mapping(
        spec.get("model")
    )
    for role in entries_of(spec.get("roles")):
        inference = {"preset": preset, **mapping(role.get("inference"))}
        if "config" in role or "config" in spec:
            inference["config"] = role.get("config") or spec.get("config")
        called = str(role.get("name") or role.get("type") or role.get("role") or "role")
        resource = mapping(role.get("resource")) or role
        yield from _of(inference, resource, f"{name}-{called}", count_of(role.get("replicas")) or 1, text)


def _of(inference: Tree, resource: Tree, name: str, replicas: int, text: Text) -> Iterator[Served | Broken]:
    kind = resource.get("instanceType")
    kind = kind if isinstance(kind, str) else ""
    gpu = gpu_of_label(kind) or next(
        (one for label in mapping(mapping(resource.get("labelSelector")).get("matchLabels")).values()
         if (one := gpu_of_label(str(label)))), None)  # fmt: skip
    partition = mapping(resource.get("partition"))
    profile = partition.get("profile")
    nodes = count_of(resource.get("count")) or 1
    if "template" in inference:
        template = mapping(inference.get("template"))
        for part in servers_of_pod(template, name, text):
            yield part if isinstance(part, Broken) else replace(part, gpu=part.gpu or gpu, replicas=replicas)
        return
    preset = mapping(inference.get("preset"))
    model = preset.get("name")
    model = _PRESETS.get(str(model), model)
    own = (1 if profile else gpus_of_machine(kind)) or count_of(partition.get("count")) or 1
    words, unread = _operators(model, gpu, own, nodes, inference)
    settings, absent = _settings(inference, text)
    words += settings
    start = started(model, None, words, None)
    if start is None:
        return
    known = gpu is None or own > 1 or gpus_of_machine(kind) is not None
    notes = () if known or not kind else (f"how many GPUs a {kind} has is not known: 1 counted",)
    told = ("KAITO's operator sets parallelism and gpu-memory-utilization itself",)
    yield Served(
        start, name, replicas, nodes, gpu, own, profile if isinstance(profile, str) else None,
        notes=(*told, *notes),
        unread=(*unread, *absent, *unknown_keys(inference, _QUIET, "inference")), one=True,
    )  # fmt: skip


def _operators(
    model: object, gpu: str | None, own: int, nodes: int, inference: Tree
) -> tuple[list[str], list[str]]:
    """(what the operator tells vLLM, what has no rule): tensor parallelism over the machine, pipeline stages
    over several, and data parallelism where the model takes less than half of one GPU."""
    words = ["--gpu-memory-utilization", _UTILIZATION.get(gpu or "", "0.84")]
    if nodes > 1:
        words += ["--tensor-parallel-size", str(own), "--pipeline-parallel-size", str(nodes)]
    elif own > 1:
        small = isinstance(model, str) and gpu is not None and _is_small(model, gpu)
        words += ["--data-parallel-size" if small else "--tensor-parallel-size", str(own)]
    if inference.get("adapters"):
        words.append("--enable-lora")
    return words, []


def _is_small(model: str, gpu: str) -> bool:
    """Whether a model takes less than half of a GPU (modelFitsOnSingleGPU)."""
    from kvplan.files.cards.find import load_weights

    try:
        total = load_weights(model).total_bytes
        memory = load_listed(gpu).memory_total_bytes
    except KvplanError:
        return False
    return isinstance(total, int) and memory is not None and 2 * total < memory


def _settings(inference: Tree, text: Text) -> tuple[list[str], list[str]]:
    """(the words that the workspace's ConfigMap says, what is not here of it)."""
    config = inference.get("config")
    if not isinstance(config, str):
        return [], []
    said = text.configs.get(("ConfigMap", config), {}).get(KAITO_FILE)
    if not isinstance(said, str):
        return ["--" + _OF_SERVER, config], []
    settings = mapping(next(iter(load_loose(said, name=KAITO_FILE)), None))
    words = list(words_of_keys({key: one for key, one in settings.items() if key not in FOLDERS}))
    for engine in FOLDERS:
        words += words_of_keys(mapping(settings.get(engine)))
    return words, []
