"""KServe: ``LLMInferenceService``, and ``InferenceService`` whose huggingfaceserver runs vLLM.

Sources: kserve/kserve pkg/apis/serving/v1alpha2/llm_inference_service_types.go,
pkg/controller/v1alpha2/llmisvc/workload_lora.go (what LoRA adapters become), config_merge.go (what
``kvCacheOffloading`` becomes).
"""

from __future__ import annotations

from typing import Any

from kvplan.engines.launch import server_in_charts
from kvplan.files.launch.entries import (
    Extra,
    Found,
    container_of,
    count_of,
    gpus_of,
    mapping,
    pairs,
    plain,
    started,
    words_of,
)
from kvplan.files.launch.starts import Start, starts_of
from kvplan.record import replace

_MOUNT = "/mnt/models"
"""Where KServe puts the model, whatever its address."""
_LORA = {"maxRank": "--max-lora-rank", "maxAdapters": "--max-loras", "maxCpuAdapters": "--max-cpu-loras"}
_KSERVES_OWN = ("--model_id", "--model_name", "--model_dir", "--backend", "--task")
"""Options of KServe's huggingfaceserver itself; the others are vLLM's."""


def llm_inference_service(value: dict[str, object]) -> Found | None:
    """The service's own pods, and those of its ``prefill``."""
    if value.get("kind") != "LLMInferenceService":
        return None
    spec = mapping(value.get("spec"))
    name = mapping(value.get("metadata")).get("name")
    found: Found = []
    uri, notes = _model(spec)
    for part, role in ((spec, ""), (mapping(spec.get("prefill")), "-prefill")):
        if not part:
            continue
        container = container_of(part.get("template"))
        start, unseen = _start(uri, part, container, _lora(spec) + _offloading(part, spec))
        if start is not None:
            own = f"{name}{role}" if name else None
            replicas, gpus = count_of(part.get("replicas")), gpus_of(container)
            found.append((start, Extra(own, replicas, None, gpus, notes + unseen)))
    return found


def _start(
    uri: object, part: dict[str, object], container: dict[str, object], besides: list[str]
) -> tuple[Start | None, tuple[str, ...]]:
    """(the server of one kind of pods, a note): KServe's own command with the container's arguments, or a
    command that stands there instead."""
    env = dict(pairs(container.get("env")))
    command, arguments = words_of(container.get("command")), words_of(container.get("args"))
    more = words_of(env.pop("VLLM_ADDITIONAL_ARGS", None))
    start = started(uri, part.get("parallelism"), [*arguments, *besides, *more], env, container.get("image"))
    own = starts_of([*command, *arguments], env) if command else []
    if start is None or not own:
        return start, (f"its command {command[0]} is not one that kvplan knows",) if command else ()
    words = [word.replace(_MOUNT, plain(str(uri))) for word in own[0].words]
    named = any(word in own[0].server.model for word in words) or own[0].server.positional
    head = [] if named else [own[0].server.model[0], plain(str(uri))]
    return replace(start, server=own[0].server, words=(*head, *words, *besides, *more)), ()


def _model(spec: dict[str, object]) -> tuple[object, tuple[str, ...]]:
    """(the model's address, a note): of a volume or a bucket the name that clients ask for, where that is a
    hub id."""
    model = mapping(spec.get("model"))
    uri, name = model.get("uri"), model.get("name")
    is_hub = isinstance(uri, str) and (uri.startswith("hf://") or "://" not in uri)
    if not is_hub and isinstance(uri, str) and isinstance(name, str) and name.count("/") == 1:
        return name, (f"{uri} is not looked into: read as the model {name}, its name",)
    return uri, ()


def _lora(spec: dict[str, object]) -> list[str]:
    """Adapters switch LoRA on; only the limits that are set are told, the others are vLLM's own."""
    lora = mapping(mapping(spec.get("model")).get("lora"))
    if not lora.get("adapters"):
        return []
    words = ["--enable-lora"]
    for key, flag in _LORA.items():
        if count_of(lora.get(key)) is not None:
            words += [flag, str(lora[key])]
    return words


def _offloading(part: dict[str, object], spec: dict[str, object]) -> list[str]:
    """``kvCacheOffloading``: memory of the host, in a word that no server knows, so that it is named."""
    given = mapping(part.get("kvCacheOffloading") or mapping(spec.get("workload")).get("kvCacheOffloading"))
    return ["--kvCacheOffloading-cpu", str(given["cpu"])] if "cpu" in given else []


def inference_model(value: dict[str, Any]) -> Found | None:
    """``spec.predictor.model`` of an InferenceService whose format is huggingface, or vLLM, as the runtimes
    of OpenShift AI are called: the model's arguments come behind the runtime's own."""
    predictor = mapping(mapping(value.get("spec")).get("predictor"))
    model = mapping(predictor.get("model"))
    kind = str(mapping(model.get("modelFormat")).get("name")).lower()
    runtime_of_server = kind == server_in_charts().engine
    if value.get("kind") != "InferenceService" or not (runtime_of_server or kind == "huggingface"):
        return None
    args = words_of(model.get("args"))
    words: list[str] = []
    uri: object = model.get("storageUri")
    for place, word in enumerate(args):
        option, _, text = word.partition("=")
        if option == "--model_id":
            uri = text or "".join(args[place + 1 : place + 2])
        elif option not in _KSERVES_OWN and not (place and not text and args[place - 1] in _KSERVES_OWN):
            words.append(word)
    uri, notes = _from_tag(uri)
    if runtime_of_server:
        runtime = model.get("runtime")
        notes += (f"what the runtime {runtime or kind} starts its server with stands in another object",)
    start = started(uri, None, words, model.get("env"))
    name = mapping(value.get("metadata")).get("name")
    replicas = count_of(predictor.get("minReplicas"))
    return None if start is None else [(start, Extra(name, replicas, None, gpus_of(model), notes))]


def _from_tag(uri: object) -> tuple[object, tuple[str, ...]]:
    """(the model, a note): an image of models is called by its tag (``modelcar-catalog:granite-3.3-2b``)."""
    if not isinstance(uri, str) or not uri.startswith("oci://"):
        return uri, ()
    image, _, tag = uri.rpartition("/")[2].partition(":")
    name = image if not tag or tag == "latest" or tag[0].isdigit() else tag
    return name, (f"{uri} is not looked into: read as the model {name}, its name",)


READERS = (llm_inference_service, inference_model)
