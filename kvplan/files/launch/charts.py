"""Manifests that name a model and its parallelism in keys of their own, as words of the server they start.

KServe ``LLMInferenceService`` (kserve/kserve pkg/apis/serving/v1alpha1/llm_inference_service_types.go) and
``InferenceService`` with a model (its huggingfaceserver runs vLLM), llm-d's modelservice values
(llm-d-incubation/llm-d-modelservice charts/llm-d-modelservice/values.yaml), vLLM's production stack
(vllm-project/production-stack helm/values.yaml), KAITO ``Workspace`` and ``InferenceSet`` with their
ConfigMap (kaito-project/kaito api/v1beta1/workspace_types.go, examples/inference), and the engines'
own options files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kvplan.engines.folders import FOLDERS
from kvplan.engines.launch import Server, flags_of_server, server_in_charts, servers
from kvplan.files.launch.starts import Start, split_words


class Extra(NamedTuple):
    """What such a manifest says besides: name, number, kind and number of GPUs."""

    name: str | None = None
    replicas: int | None = None
    gpu: str | None = None
    gpus: int | None = None


Found = list[tuple[Start, Extra]]
_SIZES = {
    "tensor": "--tensor-parallel-size",
    "data": "--data-parallel-size",
    "pipeline": "--pipeline-parallel-size",
}


def server_in(value: dict[str, Any]) -> Found | None:
    """The servers that a mapping names in keys of its own; None where it is no such mapping."""
    for reader in (_llm_inference_service, _inference_model, _model_service, _production_stack, _kaito):
        found = reader(value)
        if found:
            return found
    return None


def _started(model: object, sizes: object, args: object, env: object, image: object = None) -> Start | None:
    if not isinstance(model, str) or not model.strip():
        return None
    words = ["--model", _plain(model)]
    for key, flag in _SIZES.items():
        number = sizes.get(key) if isinstance(sizes, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and number > 1:
            words += [flag, str(number)]
    if isinstance(sizes, dict) and sizes.get("expert") is True:
        words.append("--enable-expert-parallel")
    words += _words(args)
    return Start(
        server_in_charts(), tuple(words), tuple(_pairs(env)), image if isinstance(image, str) else None
    )


def _plain(uri: str) -> str:
    return uri.removeprefix("hf://").removeprefix("pvc://").removeprefix("oci://")


def _words(args: object) -> list[str]:
    if isinstance(args, str):
        return split_words(args)
    return [str(one) for one in args if one is not None] if isinstance(args, list) else []


def _pairs(env: object) -> list[tuple[str, str]]:
    """Variables of a mapping, or of Kubernetes' list."""
    if isinstance(env, dict):
        return [(str(name), str(value)) for name, value in env.items()]
    entries = env if isinstance(env, list) else []
    return [
        (str(one["name"]), str(one["value"]))
        for one in entries
        if isinstance(one, dict) and "name" in one and isinstance(one.get("value"), (str, int, float))
    ]


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _container(template: object, name: str = "main") -> dict[str, Any]:
    """The container of a pod's template that runs the server."""
    entries = _dict(template).get("containers")
    found = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    named = [one for one in found if one.get("name") == name]
    return (named or found or [{}])[0]


def _llm_inference_service(value: dict[str, Any]) -> Found | None:
    if value.get("kind") != "LLMInferenceService":
        return None
    spec = _dict(value.get("spec"))
    name = _dict(value.get("metadata")).get("name")
    found: Found = []
    for part, role in ((spec, ""), (_dict(spec.get("prefill")), "-prefill")):
        if not part:
            continue
        container = _container(part.get("template"))
        env = dict(_pairs(container.get("env")))
        arguments = _words(container.get("args")) or _words(container.get("command"))[1:]
        arguments += _words(env.pop("VLLM_ADDITIONAL_ARGS", None))
        start = _started(
            _dict(spec.get("model")).get("uri"),
            part.get("parallelism"),
            arguments,
            env,
            container.get("image"),
        )
        if start is not None:
            number = _number(part.get("replicas"))
            found.append((start, Extra(f"{name}{role}" if name else None, number, None, _gpus(container))))
    return found


_KSERVES_OWN = ("--model_id", "--model_name", "--model_dir", "--backend", "--task")
"""Options of KServe's huggingfaceserver itself; the others are vLLM's."""


def _inference_model(value: dict[str, Any]) -> Found | None:
    """``spec.predictor.model`` of an InferenceService whose format is huggingface."""
    model = _dict(_dict(_dict(value.get("spec")).get("predictor")).get("model"))
    if (
        value.get("kind") != "InferenceService"
        or _dict(model.get("modelFormat")).get("name") != "huggingface"
    ):
        return None
    args = _words(model.get("args"))
    words: list[str] = []
    uri: object = model.get("storageUri")
    for place, word in enumerate(args):
        option, _, text = word.partition("=")
        if option == "--model_id":
            uri = text or "".join(args[place + 1 : place + 2])
        elif option not in _KSERVES_OWN and not (place and not text and args[place - 1] in _KSERVES_OWN):
            words.append(word)
    start = _started(uri, None, words, model.get("env"))
    name = _dict(value.get("metadata")).get("name")
    replicas = _dict(_dict(value.get("spec")).get("predictor")).get("minReplicas")
    return None if start is None else [(start, Extra(name, _number(replicas), None, _gpus(model)))]


def _model_service(value: dict[str, Any]) -> Found | None:
    """llm-d: ``modelArtifacts.uri``, ``decode`` and ``prefill``."""
    artifacts = _dict(value.get("modelArtifacts"))
    if "uri" not in artifacts or not ("decode" in value or "prefill" in value):
        return None
    found: Found = []
    for role in ("decode", "prefill"):
        part = _dict(value.get(role))
        if not part or part.get("create") is False or part.get("replicas") == 0:
            continue
        container = _container(part, server_in_charts().engine)
        start = _started(
            artifacts["uri"],
            part.get("parallelism"),
            container.get("args"),
            container.get("env"),
            container.get("image"),
        )
        if start is not None:
            name = str(artifacts.get("name") or "model").rpartition("/")[2]
            found.append(
                (start, Extra(f"{name}-{role}", _number(part.get("replicas")), None, _gpus(container)))
            )
    return found


_STACK = {
    "tensorParallelSize": "--tensor-parallel-size",
    "maxModelLen": "--max-model-len",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "dtype": "--dtype",
    "maxLoras": "--max-loras",
}
_STACK_SWITCHES = {
    "enablePrefixCaching": "--enable-prefix-caching",
    "enableChunkedPrefill": "--enable-chunked-prefill",
    "enableLoRA": "--enable-lora",
}


def _production_stack(value: dict[str, Any]) -> Found | None:
    specs = _dict(value.get("servingEngineSpec")).get("modelSpec")
    if not isinstance(specs, list):
        return None
    found: Found = []
    for spec in (one for one in specs if isinstance(one, dict)):
        config = _dict(spec.get("vllmConfig"))
        words = []
        for key, flag in _STACK.items():
            if key in config:
                words += [flag, str(config[key])]
        words += [flag for key, flag in _STACK_SWITCHES.items() if config.get(key) is True]
        words += _words(config.get("extraArgs"))
        image = f"{spec.get('repository', '')}:{spec.get('tag', '')}" if spec.get("repository") else None
        start = _started(spec.get("modelURL"), None, words, spec.get("env"), image)
        if start is not None:
            gpu = spec.get("requestGPUType")
            labels = [one for one in _dict(spec.get("nodeSelectorTerms")).values() if isinstance(one, str)]
            found.append((start, Extra(spec.get("name"), _number(spec.get("replicaCount")),
                                       gpu if isinstance(gpu, str) else next(iter(labels), None),
                                       _number(spec.get("requestGPU")))))  # fmt: skip
    return found


KAITO_KINDS, KAITO_FILE = ("Workspace", "InferenceSet"), "inference_config.yaml"
_SETTINGS = "kvplan.settings"


def with_configs(documents: Sequence[Any], load: Callable[[str], Any]) -> None:
    """Puts what KAITO's ConfigMaps say (``inference_config.yaml``) beside the workspaces that name them."""
    maps = {
        _dict(one.get("metadata")).get("name"): _dict(one.get("data")).get(KAITO_FILE)
        for one in documents
        if isinstance(one, dict) and one.get("kind") == "ConfigMap"
    }
    for one in documents:
        inference = _inference_of(one) if isinstance(one, dict) else {}
        text = maps.get(inference.get("config"))
        if isinstance(text, str):
            inference[_SETTINGS] = load(text)


def _inference_of(value: dict[str, Any]) -> dict[str, Any]:
    """The inference of a workspace, or of an InferenceSet's template."""
    if value.get("kind") == "Workspace":
        return _dict(value.get("inference"))
    if value.get("kind") == "InferenceSet":
        return _dict(_dict(_dict(value.get("spec")).get("template")).get("inference"))
    return {}


def _kaito(value: dict[str, Any]) -> Found | None:
    """A KAITO workspace: its preset, and the server's options that its ConfigMap has under ``vllm``; what
    else stands there, or a ConfigMap that is not here, is a word that nothing knows, so that it is named."""
    inference = _inference_of(value)
    if not inference:
        return None
    preset = _dict(inference.get("preset")).get("name")
    template = _dict(_dict(value.get("spec")).get("template"))
    resource = _dict(value.get("resource") or template.get("resource"))
    settings = _dict(inference.get(_SETTINGS))
    words = words_of_keys({key: one for key, one in settings.items() if key not in FOLDERS})
    for engine in FOLDERS:
        words += words_of_keys(_dict(settings.get(engine)))
    if "config" in inference and not settings:
        words += ("--kaito-config", str(inference["config"]))
    start = _started(preset, None, list(words), None)
    name = _dict(value.get("metadata")).get("name")
    kind, replicas = resource.get("instanceType"), _number(_dict(value.get("spec")).get("replicas"))
    gpu = kind if isinstance(kind, str) else None
    return None if start is None else [(start, Extra(name, replicas, gpu, None))]


def _gpus(container: Mapping[str, Any]) -> int | None:
    limits = _dict(_dict(container.get("resources")).get("limits"))
    return _number(next((limits[key] for key in ("nvidia.com/gpu", "amd.com/gpu") if key in limits), None))


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if not isinstance(value, bool) and text.isdigit() and int(text) > 0 else None


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


def words_of_keys(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a command that say what the keys of an options file say."""
    import json

    words: list[str] = []
    for key, value in document.items():
        flag = "--" + str(key).replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is False:
            words.append("--no-" + flag[2:])
        elif isinstance(value, dict):
            words += [flag, json.dumps(value)]
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif value is not None:
            words += [flag, str(value)]
    return tuple(words)
