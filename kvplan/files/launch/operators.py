"""Objects of operators that name a model, an engine and its options in keys of their own.

KubeAI ``Model``: substratusai/kubeai api/k8s/v1/model_types.go, internal/modelcontroller/engine_vllm.go and
engine_ollama.go. kthena ``ModelBooster``: volcano-sh/kthena
pkg/apis/workload/v1alpha1/model_booster_types.go. llmaz ``Playground`` and ``Service``: InftyAI/llmaz
api/inference/v1alpha1, api/core/v1alpha1 (OpenModel). OME ``InferenceService``: sgl-project/ome
pkg/apis/ome/v1beta1. NIM: NVIDIA/k8s-nim-operator api/apps/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.engines.launch import Server, server_in_charts, servers
from kvplan.errors import KvplanError
from kvplan.files.launch.entries import Served, words_of
from kvplan.files.launch.found import Broken
from kvplan.files.launch.machines import given_by, gpu_below, gpu_of, gpu_of_label, gpu_of_pod
from kvplan.files.launch.objects import servers_of_object
from kvplan.files.launch.pods import Text, environment_of, servers_of_pod
from kvplan.files.launch.rows import Row, lws_pods
from kvplan.files.launch.scalers import least_of
from kvplan.files.launch.starts import Start
from kvplan.files.launch.trees import (
    OwnTree,
    Tree,
    count_of,
    entries_of,
    image_of,
    mapping,
    name_of,
    pairs,
    unknown_keys,
    words_of_keys,
)
from kvplan.record import replace

_KUBEAI = """features url engine args env envFrom replicas minReplicas maxReplicas autoscalingDisabled
targetRequests scaleDownDelaySeconds resourceProfile cacheProfile image owner adapters files
priorityClassName loadBalancing"""
_BOOSTER = """name type modelURI cacheURI env envFrom minReplicas maxReplicas replicas scalingCost workers
routePolicy loraAdapters scaleToZeroGracePeriod schedulerName"""
_BACKEND = "backendName args env envFrom version resources configName sharedMemorySize"
_WORKER = "type image replicas pods resources config affinity nodeSelector tolerations env"


def _server(name: str) -> Server | None:
    return servers().get(name.lower().removesuffix("disaggregated"))


def _refused(document: Tree, why: str, way_on: str = "kvplan size MODEL --gpu h100") -> Broken:
    name = name_of(document) or "?"
    message = f"{document.get('kind')} {name!r} is not read: {why}"
    return Broken(name, KvplanError("not-read", message, help=way_on))


def kubeai_model(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """KubeAI: ``url`` is told to the engine, ``resourceProfile`` is a GPU and how many of them."""
    spec, name = mapping(document.get("spec")), name_of(document) or text.beside.name
    url, server = str(spec.get("url") or ""), _server(str(spec.get("engine") or ""))
    if server is None:
        yield _refused(document, f"kvplan has no rules for the engine {spec.get('engine')}")
        return
    profile, _, times = str(spec.get("resourceProfile") or "").partition(":")
    if profile == "cpu":
        yield _refused(document, "it runs on the processor alone")
        return
    args = words_of(spec.get("args"))
    if server.door is not None:
        words = [url.removeprefix("ollama://").partition("?")[0], *args]
    else:
        words = ["--model", url, *args, *(["--enable-lora"] if spec.get("adapters") else [])]
    replicas, notes = least_of(spec.get("minReplicas"), None, spec.get("maxReplicas"))
    replicas = count_of(spec.get("replicas")) or replicas
    image = image_of(spec.get("image"))
    count = count_of(times) or 1
    yield Served(
        Start(server, tuple(words), tuple(pairs(spec.get("env"))), image), name, replicas,
        gpu=_profile(profile), gpus=count, notes=notes, one=True, names=((name, "its name"),),
        unread=unknown_keys(spec, _KUBEAI, "spec"),
    )  # fmt: skip


def _profile(name: str) -> str | None:
    """The GPU that a resource profile is called after (charts/kubeai/values.yaml)."""
    plain = name.removeprefix("nvidia-gpu-").removeprefix("amd-gpu-").removeprefix("google-tpu-")
    if name.startswith("google-tpu-"):
        plain = f"tpu-{plain.partition('-')[0]}"
    return gpu_of_label(plain) if plain else None


def model_booster(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """kthena: each worker's ``config`` is the engine's options, its ``pods`` are those of one engine."""
    spec, name = mapping(document.get("spec")), name_of(document) or text.beside.name
    backends = entries_of(spec.get("backends")) or [mapping(spec.get("backend"))]
    for backend in backends:
        server = _server(str(backend.get("type") or "").lower())
        if server is None:
            yield _refused(document, f"kvplan has no rules for the backend {backend.get('type')}")
            continue
        groups, notes = least_of(
            backend.get("minReplicas"), backend.get("replicas"), backend.get("maxReplicas")
        )
        workers = entries_of(backend.get("workers"))
        for worker in workers:
            role = str(worker.get("type") or "server")
            config = {key: True if one == "" else one for key, one in mapping(worker.get("config")).items()}
            words = ["--model", str(backend.get("modelURI") or ""), *words_of_keys(config)]
            env = {**environment_of(backend, text), **environment_of(worker, text)}
            node, profile = gpu_of_pod(worker)
            given = given_by(worker.get("resources"))
            names = [name, str(backend.get("name") or "")] if len(backends) > 1 else [name]
            called = "-".join(filter(None, [*names, role if len(workers) > 1 else ""]))
            pods = count_of(worker.get("pods")) or 1
            yield Served(
                Start(server, tuple(words), tuple(env.items()), image_of(worker.get("image"))), called,
                groups * (count_of(worker.get("replicas")) or 1), pods, node or given.gpu, given.gpus,
                given.slice or profile, notes=notes, one=True,
                unread=(*given.parts, *unknown_keys(backend, _BOOSTER, "backend"),
                        *unknown_keys(worker, _WORKER, f"workers.{role}")),
            )  # fmt: skip


def playground(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """llmaz: the model that the claim names, in the same text, and the backend's arguments."""
    spec, name = mapping(document.get("spec")), name_of(document) or text.beside.name
    claim, draft = _claimed(spec)
    model = text.objects.get(("OpenModel", claim))
    backend = mapping(spec.get("backendRuntimeConfig"))
    engine = str(backend.get("backendName") or server_in_charts().engine).lower()
    server = next((one for one in servers().values() if engine == one.engine or engine in one.images), None)
    if model is None or server is None:
        why = f"its model, the OpenModel {claim!r}, stands in another file"
        yield _refused(document, why if model is None else f"kvplan has no rules for the backend {engine}")
        return
    flavor = _flavor(model, spec)
    words = [server.model[0], _source(model), *words_of(backend.get("args"))]
    words += ["--llmaz-draft-model", draft] if draft else []
    given = given_by(backend.get("resources") or spec.get("resources"))
    flavored = given_by({"limits": flavor.get("limits") or flavor.get("requests")})
    elastic = mapping(spec.get("elasticConfig"))
    replicas, notes = least_of(elastic.get("minReplicas"), spec.get("replicas"), elastic.get("maxReplicas"))
    version = backend.get("version")
    image = f"{server.tagged[0]}:{version}" if isinstance(version, str) and server.tagged else None
    yield Served(
        Start(server, tuple(words), tuple(environment_of(backend, text).items()), image), name, replicas,
        gpu=gpu_of(mapping(flavor.get("nodeSelector"))) or gpu_of_label(str(flavor.get("name") or "")),
        gpus=given.gpus or flavored.gpus, one=True,
        unread=unknown_keys(backend, _BACKEND, "backendRuntimeConfig"),
        notes=(*notes, f"options that the backend {engine} has beside these stand in another object"),
    )  # fmt: skip


def _claimed(spec: Tree) -> tuple[str, str | None]:
    """(the model that is claimed, its draft)."""
    models = entries_of(mapping(spec.get("modelClaims")).get("models"))
    roles = {str(one.get("role", "main")): str(one.get("name")) for one in models}
    return str(mapping(spec.get("modelClaim")).get("modelName") or roles.get("main", "")), roles.get("draft")


def _source(model: Tree) -> str:
    source = mapping(mapping(model.get("spec")).get("source"))
    hub = mapping(source.get("modelHub"))
    file = hub.get("filename")
    if isinstance(file, str) and file.endswith(".gguf"):
        return file
    return str(hub.get("modelID") or source.get("uri") or "")


def _flavor(model: Tree, spec: Tree) -> OwnTree:
    """The flavor that a claim names, else the model's first."""
    own = mapping(model.get("spec"))
    flavors = entries_of(mapping(own.get("inferenceConfig")).get("flavors") or own.get("inferenceFlavors"))
    wanted = mapping(spec.get("modelClaim")).get("inferenceFlavors")
    names = wanted if isinstance(wanted, list) else []
    chosen = [one for one in flavors if one.get("name") in names]
    return (chosen or flavors or [{}])[0]


_LLMAZ = Row(
    "Service", "inference.llmaz.io", lws_pods("spec", ("spec.replicas",), "", "workloadTemplate"), ""
)


def llmaz_service(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """llmaz' ``Service``: a leader and workers under ``workloadTemplate``."""
    for one in servers_of_object(document, _LLMAZ, text):
        models = entries_of(mapping(mapping(document.get("spec")).get("modelClaims")).get("models"))
        known = [text.objects.get(("OpenModel", str(entry.get("name")))) for entry in models]
        names = tuple((_source(model), "its OpenModel") for model in known if model is not None)
        yield one if isinstance(one, Broken) else replace(one, names=(*one.names, *names))


def ome_service(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """OME: the runtime that the service names, in the same text, with the model that it names."""
    spec, name = mapping(document.get("spec")), name_of(document) or text.beside.name
    model = _of_kinds(text, ("ClusterBaseModel", "BaseModel"), mapping(spec.get("model")).get("name"))
    runtime = _of_kinds(
        text, ("ClusterServingRuntime", "ServingRuntime"), mapping(spec.get("runtime")).get("name")
    )
    own = any(
        mapping(spec.get(part)).get(key) for part in ("engine", "decoder") for key in ("runner", "leader")
    )
    if runtime is None and not own:
        named = mapping(spec.get("runtime")).get("name")
        yield _refused(document, f"its runtime, the ClusterServingRuntime {named!r}, stands in another file")
        return
    address = str(mapping(mapping(mapping(model).get("spec")).get("storage")).get("storageUri") or "")
    names = ((address.removeprefix("hf://"), "its base model"),) if address.startswith("hf://") else ()
    for part, role in (("engine", ""), ("decoder", "-decoder")):
        asked = mapping(spec.get(part))
        config = mapping(mapping(mapping(runtime).get("spec")).get(f"{part}Config"))
        replicas, notes = least_of(asked.get("minReplicas"), None, asked.get("maxReplicas"))
        for pod, pods, worker in _ome_pods(config, asked):
            told = {"MODEL_PATH": address or "/mnt/models"}
            for one in servers_of_pod({"spec": pod}, f"{name}{role}", text, told):
                yield one if isinstance(one, Broken) else replace(
                    one, replicas=replicas, pods=pods, worker=worker, gang=True, names=(*names, *one.names),
                    group=f"{id(document)}{role}", notes=(*one.notes, *notes),
                )  # fmt: skip


def ome_runtime(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """OME's runtime by itself: the server that a service of it will start, where none is in the text."""
    if any(kind == "InferenceService" for kind, _ in text.objects):
        return
    spec, name = mapping(document.get("spec")), name_of(document) or text.beside.name
    note = f"{document.get('kind')}: how many run, and where, says the InferenceService that names it"
    for part, role in (("engineConfig", ""), ("decoderConfig", "-decoder")):
        for pod, pods, worker in _ome_pods(mapping(spec.get(part)), {}):
            for one in servers_of_pod({"spec": pod}, f"{name}{role}", text, {"MODEL_PATH": "/mnt/models"}):
                yield one if isinstance(one, Broken) else replace(
                    one, pods=pods, worker=worker, gang=True, group=f"{id(document)}{role}",
                    notes=(*one.notes, note),
                )  # fmt: skip


def _ome_pods(config: Tree, asked: Tree) -> Iterator[tuple[Tree, int, bool]]:
    """(pod, how many, whether they follow a leader) of a part of a service, over what its runtime says."""
    leads = "leader" in config or "leader" in asked
    for key in ("leader", "worker") if leads else ("runner",):
        inner = {**mapping(config.get(key)), **mapping(asked.get(key))}
        runner = mapping(inner.get("runner")) or inner
        if runner:
            pods = count_of(inner.get("size")) or 1 if key == "worker" else 1
            yield {**config, **inner, "containers": [runner]}, pods, key == "worker"


def _of_kinds(text: Text, kinds: tuple[str, ...], name: object) -> Tree | None:
    return next((text.objects[kind, str(name)] for kind in kinds if (kind, str(name)) in text.objects), None)


def nim_service(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """NIM picks engine, format and parallelism when it starts, from profiles in its image."""
    del text
    spec = mapping(document.get("spec"))
    image = image_of(spec.get("image")) or "its image"
    env = dict(pairs(spec.get("env")))
    model = env.get("NIM_MODEL_NAME", "").removeprefix("hf://") or image.rpartition("/")[2].partition(":")[0]
    gpu = gpu_below(spec) or "h100"
    gpus = given_by(spec.get("resources")).gpus or 1
    way_on = f"kvplan size {model} --gpu {gpu} --tp {gpus}: the same model by hand"
    yield _refused(document, f"{image} chooses engine, format and parallelism by itself as it starts", way_on)
