"""KServe: ``LLMInferenceService``, and ``InferenceService`` with a runtime, its own containers or workers.

Sources: kserve/kserve pkg/apis/serving/v1alpha2/llm_inference_service_types.go, v1beta1/predictor.go and
v1alpha1/servingruntime_types.go; pkg/controller/v1alpha2/llmisvc/workload_lora.go (what LoRA adapters
become), config_merge.go (what ``kvCacheOffloading`` becomes), workload_multi_node.go (nodes of one engine).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from kvplan.engines.launch import server_in_charts
from kvplan.errors import KvplanError
from kvplan.files.launch.entries import Served, started, words_of
from kvplan.files.launch.found import Broken
from kvplan.files.launch.machines import claimed_by, given_by, gpu_of_pod
from kvplan.files.launch.pods import Text, environment_of, servers_of_pod
from kvplan.files.launch.scalers import least_of
from kvplan.files.launch.starts import Start, starts_of
from kvplan.files.launch.trees import (
    OwnTree,
    Tree,
    container_of,
    count_of,
    entries_of,
    image_of,
    mapping,
    merged,
    name_of,
    unknown_keys,
)
from kvplan.later import regex
from kvplan.record import replace
from kvplan.units import parse_bytes

_MOUNT = "/mnt/models"
"""Where KServe puts the model, whatever its address."""
_LORA = {"maxRank": "--max-lora-rank", "maxAdapters": "--max-loras", "maxCpuAdapters": "--max-cpu-loras"}
_KSERVES_OWN = ("--model_id", "--model_name", "--model_dir", "--backend", "--task")
"""Options of KServe's huggingfaceserver itself; the others are vLLM's."""
_SIMULATOR = regex(r"-sim(?![a-z])|simulator")
_QUIET = """model replicas parallelism template prefill worker router scaling baseRefs kvCacheOffloading
workload labels annotations storageInitializer tracing"""
_OF_MODEL = """modelFormat storageUri storage args env envFrom resources runtime protocolVersion name command
image ports livenessProbe readinessProbe startupProbe volumeMounts runtimeVersion securityContext"""


def llm_inference_service(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """The service's own pods, and those of its ``prefill``."""
    spec, absent = _with_bases(document, text)
    name = name_of(document) or text.beside.name
    for part, role in ((spec, ""), (mapping(spec.get("prefill")), "-prefill")):
        for one in _of_part(document, spec, part, text):
            named = f"{name}{role}"
            if isinstance(one, Broken):
                yield Broken(named, KvplanError("not-read", f"{named}: {one.error.message}"))
                continue
            keys = () if role else unknown_keys(spec, _QUIET, "spec")
            yield replace(one, name=named, unread=(*one.unread, *absent, *keys))


def _with_bases(document: Tree, text: Text) -> tuple[Tree, list[str]]:
    """(a service's ``spec`` over those that its ``baseRefs`` name, which of these are not in the text)."""
    spec = mapping(document.get("spec"))
    absent = []
    for base in entries_of(spec.get("baseRefs")):
        known = text.objects.get(("LLMInferenceServiceConfig", str(base.get("name"))))
        if known is None:
            absent.append(f"spec.baseRefs {base.get('name')} (it stands in another object)")
        else:
            spec = merged(mapping(known.get("spec")), spec)
    return spec, absent


def _of_part(document: Tree, spec: Tree, part: Tree, text: Text) -> Iterator[Served | Broken]:
    """The server of one kind of pods, in groups of as many pods as its engine has workers."""
    model, container = mapping(spec.get("model")), container_of(part.get("template"))
    uri, called = model.get("uri"), model.get("name")
    image = image_of(container.get("image")) or ""
    if not part or not isinstance(uri, str):
        return
    if _SIMULATOR.search(image):
        yield Broken("", KvplanError("not-read", f"{image} only simulates a server"))
        return
    start, unseen = _start(uri, part, container, _lora(spec) + _offloading(part, spec), text)
    if start is None:
        return
    given = given_by(container.get("resources"))
    node, profile = gpu_of_pod(mapping(part.get("template")))
    claims, claimed = claimed_by(mapping(mapping(document.get("metadata")).get("annotations")))
    scaling = mapping(part.get("scaling"))
    least, said = least_of(scaling.get("minReplicas"), part.get("replicas"), scaling.get("maxReplicas"))
    yield Served(
        start, "", least, _pods(part), node or given.gpu or claimed, given.gpus or claims,
        given.slice or profile, notes=(*unseen, *said), one=True, unread=given.parts,
        names=((called, "its name"),) if isinstance(called, str) else (),
    )  # fmt: skip


def _pods(part: Tree) -> int:
    """The pods of one engine: those of its data-parallel ranks, or its pipeline's stages."""
    if not part.get("worker"):
        return 1
    sizes = mapping(part.get("parallelism"))
    data, local = count_of(sizes.get("data")) or 1, count_of(sizes.get("dataLocal"))
    return max(1, data // local) if local else count_of(sizes.get("pipeline")) or 1


def _start(
    uri: str, part: Tree, container: Tree, besides: list[str], text: Text
) -> tuple[Start | None, tuple[str, ...]]:
    """(the server of one kind of pods, a note): KServe's own command with the container's arguments, or a
    command that stands there instead."""
    env = environment_of(container, text)
    command, arguments = words_of(container.get("command")), words_of(container.get("args"))
    more = words_of(env.pop("VLLM_ADDITIONAL_ARGS", None))
    start = started(uri, part.get("parallelism"), [*arguments, *besides, *more], env, container.get("image"))
    own = starts_of([*command, *arguments], env) if command else []
    if start is None or not own:
        return start, (f"its command {command[0]} is not one that kvplan knows",) if command else ()
    words = [word.replace(_MOUNT, uri) for word in own[0].words]
    named = any(word.partition("=")[0] in own[0].server.model for word in words) or own[0].server.positional
    head = [] if named else [own[0].server.model[0], uri]
    return replace(start, server=own[0].server, words=(*head, *words, *besides, *more)), ()


def _lora(spec: Tree) -> list[str]:
    """Adapters switch LoRA on; only the limits that are set are told, the others are vLLM's own."""
    lora = mapping(mapping(spec.get("model")).get("lora"))
    if not lora.get("adapters"):
        return []
    words = ["--enable-lora"]
    for key, flag in _LORA.items():
        if count_of(lora.get(key)) is not None:
            words += [flag, str(lora[key])]
    return words


def _offloading(part: Tree, spec: Tree) -> list[str]:
    """``kvCacheOffloading``: the connector that the controller writes (config_merge.go, kvTransferConfig)."""
    given = mapping(part.get("kvCacheOffloading") or mapping(spec.get("workload")).get("kvCacheOffloading"))
    if "cpu" not in given:
        return []
    amount = str(given["cpu"])
    try:
        host = int(amount) if amount.isdecimal() else parse_bytes(f"{amount}B")
    except KvplanError:
        return ["--kvCacheOffloading-cpu", amount]
    config = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": host},
    }
    return ["--kv-transfer-config", json.dumps(config)]


def inference_service(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """An ``InferenceService``: ``predictor.model`` behind its runtime's own arguments, or containers."""
    name = name_of(document) or text.beside.name
    predictor = mapping(mapping(document.get("spec")).get("predictor"))
    least, notes = least_of(predictor.get("minReplicas"), None, predictor.get("maxReplicas"))
    found: Iterator[Served | Broken]
    if "model" in predictor:
        found = _of_runtime(predictor, name, text)
    else:
        found = servers_of_pod({"metadata": document.get("metadata"), "spec": predictor}, name, text)
    workers = mapping(predictor.get("workerSpec"))
    words: list[str] = []
    for key, flag in (("tensorParallelSize", "--tensor-parallel-size"),
                      ("pipelineParallelSize", "--pipeline-parallel-size")):  # fmt: skip
        if (count := count_of(workers.get(key))) is not None:
            words += [flag, str(count)]
    for one in found:
        if isinstance(one, Broken):
            yield one
            continue
        start = replace(one.start, words=(*one.start.words, *words))
        pods = count_of(workers.get("pipelineParallelSize")) or 1
        yield replace(
            one, start=start, replicas=least, pods=pods, one=bool(workers), notes=(*one.notes, *notes)
        )


def _of_runtime(predictor: Tree, name: str, text: Text) -> Iterator[Served | Broken]:
    """``predictor.model`` of a format that is huggingface, or vLLM, as the runtimes of OpenShift AI are
    called, or of a runtime in the same text."""
    model = mapping(predictor.get("model"))
    kind = str(mapping(model.get("modelFormat")).get("name")).lower()
    runtime = _runtime(model, kind, text)
    if runtime is None and kind not in (server_in_charts().engine, "huggingface"):
        return
    args, env = words_of(model.get("args")), environment_of(model, text)
    uri = model.get("storageUri") or mapping(model.get("storage")).get("path")
    notes: tuple[str, ...] = ()
    image = image_of(model.get("image"))
    if runtime is not None:
        container = {**runtime, **({"image": image} if image else {})}
        container["args"] = [*words_of(runtime.get("args")), *args]
        container["env"] = [*entries_of(runtime.get("env")), *entries_of(model.get("env"))]
        if "resources" in model:
            container["resources"] = model["resources"]
        if isinstance(uri, str):
            container = _with_model(container, uri)
        yield from servers_of_pod({"spec": {**predictor, "containers": [container]}}, name, text)
        return
    words: list[str] = []
    for place, word in enumerate(args):
        option, _, said = word.partition("=")
        if option == "--model_id":
            uri = said or "".join(args[place + 1 : place + 2])
        elif option not in _KSERVES_OWN and not (place and not said and args[place - 1] in _KSERVES_OWN):
            words.append(word)
    if kind != "huggingface":
        asked = model.get("runtime") or kind
        notes = (f"what the runtime {asked} starts its server with stands in another object",)
    start = started(uri, None, words, env, image)
    if start is None:
        return
    node, profile = gpu_of_pod(predictor)
    given = given_by(model.get("resources"))
    yield Served(
        start, name, gpu=node or given.gpu, gpus=given.gpus, slice=given.slice or profile, notes=notes,
        names=((name, "the service's name"),),
        unread=(*given.parts, *unknown_keys(model, _OF_MODEL, "spec.predictor.model")),
    )  # fmt: skip


def _runtime(model: Tree, kind: str, text: Text) -> OwnTree | None:
    """The container of the runtime that a model names, or that takes its format, in the same text."""
    named = model.get("runtime")
    for (group, name), one in text.objects.items():
        spec = mapping(one.get("spec"))
        formats = {str(entry.get("name")).lower() for entry in entries_of(spec.get("supportedModelFormats"))}
        if group in ("ServingRuntime", "ClusterServingRuntime") and (
            name == named or (named is None and kind in formats)
        ):
            return container_of(spec, "kserve-container")
    return None


def _with_model(container: OwnTree, uri: str) -> OwnTree:
    """The container with the model's address where KServe mounts it."""
    changed: OwnTree = {
        key: [word.replace(_MOUNT, uri) for word in words_of(container.get(key))]
        for key in ("command", "args")
        if key in container
    }
    return {**container, **changed}
