"""Servers in a YAML text: Kubernetes' objects, charts' values, engines' own options files.

An object is read by the row of its kind (`kvplan.files.launch.rows`, `_READERS`). What has no row and clearly
holds a pod is read as one, and said to be; in values of charts a server stands wherever a mapping has a
container's keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from kvplan.engines.launch import servers
from kvplan.errors import KvplanError
from kvplan.files.launch import charts, claims, kaito, kserve, operators, rayserve, sky, stack
from kvplan.files.launch.command import launch_of
from kvplan.files.launch.entries import Served
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.kinds import reader_of
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.loose import load_loose
from kvplan.files.launch.nodes import joined
from kvplan.files.launch.objects import row_of, servers_of_object, unread_object
from kvplan.files.launch.pods import Text, configs_in, files_in, is_patch, servers_of_pod
from kvplan.files.launch.rendered import PATCH, helm_template, source_of_manifests, unrendered
from kvplan.files.launch.scalers import scalers_in
from kvplan.files.launch.starts import Start
from kvplan.files.launch.trees import OwnTree, Tree, entries_of, name_of, words_of_keys
from kvplan.files.launch.values import servers_in_values
from kvplan.later import regex
from kvplan.record import replace

Reader = Callable[[Tree, Text], Iterator[Served | Broken]]
_READERS: tuple[tuple[str, str, Reader], ...] = (
    ("LLMInferenceService", "serving.kserve.io", kserve.llm_inference_service),
    ("InferenceService", "serving.kserve.io", kserve.inference_service),
    ("InferenceService", "ome.io", operators.ome_service),
    ("ClusterServingRuntime ServingRuntime", "ome.io", operators.ome_runtime),
    ("ModelClaim", "model.aibrix.ai", claims.model_claim),
    ("VLLMRuntime", "production-stack.vllm.ai serving.vllm.ai", stack.vllm_runtime),
    ("Workspace InferenceSet", "kaito.sh", kaito.workspace),
    ("MultiRoleInference", "kaito.sh", kaito.roles),
    ("Model", "kubeai.org", operators.kubeai_model),
    ("ModelBooster", "workload.serving.volcano.sh registry.volcano.sh", operators.model_booster),
    ("Playground", "inference.llmaz.io", operators.playground),
    ("Service", "inference.llmaz.io", operators.llmaz_service),
    ("NIMService NIMPipeline", "apps.nvidia.com", operators.nim_service),
    ("RayService", "ray.io", rayserve.ray_service),
    ("RayJob", "ray.io", rayserve.ray_job),
)
"""Kinds of objects that name a model and its options in keys of their own, their groups, their readers."""
_OF_VALUES: tuple[tuple[Callable[[Tree], bool], Reader], ...] = (
    (lambda one: "modelArtifacts" in one, charts.model_service),
    (lambda one: "servingEngineSpec" in one, stack.production_stack),
    (rayserve.is_serve, rayserve.serve_config),
    (sky.is_sky, sky.task),
)


_ON_CPU = regex(r"[-_]cpu(?![a-z0-9])")
"""In the name of an image whose engine uses no GPU."""


def launches_in(
    content: bytes | str, *, shown: str, engine: str | None = None, beside: Path = Path(),
    broken: list[Broken] | None = None,
) -> list[Launch]:  # fmt: skip
    """The servers of a YAML text, in its order. broken: takes what is wrong with one of several.

    Raises KvplanError(bad-yaml | no-server | not-rendered | …)."""
    template, is_object = helm_template(content, shown)
    if template is not None and is_object:
        raise template
    try:
        loaded = load_loose(content, name=shown)
        documents = [one for document in loaded for one in _objects(document)]
    except KvplanError as error:
        raise template or error from None
    left: list[Broken] = []
    found = _read(documents, Beside(Path(shown).stem.strip("<>"), engine, beside), left)
    if left and (broken is None or not found):
        raise left[0].error
    if not found:
        operations = any("op" in one and "path" in one for each in loaded for one in entries_of(each))
        patch = unrendered(shown, PATCH) if operations or is_patch(documents) else None
        raise template or source_of_manifests(documents, shown) or patch or KvplanError(
            "no-server", f"nothing in {shown} starts a server of {', '.join(servers())}",
            detail=_held(documents),
            help="what is read: commands, Compose files, Kubernetes objects, values of charts",
        )  # fmt: skip
    if broken is not None:
        broken += left
    return _named_apart(found)


def _held(documents: Iterable[Tree]) -> tuple[str, ...]:
    """The objects of a text, in one line."""
    names = dict.fromkeys(f"{one['kind']} {name_of(one) or ''}".strip() for one in documents if "kind" in one)
    return (f"it holds: {', '.join(list(names)[:12])}{' …' if len(names) > 12 else ''}",) if names else ()


def _objects(document: object) -> list[OwnTree]:
    """The objects of a list as ``kubectl get -o yaml`` prints it; else the document itself."""
    if not isinstance(document, dict):
        return []
    listed = document.get("items") if str(document.get("kind")).endswith("List") else None
    return entries_of(listed) if isinstance(listed, list) else [document]


def is_manifest(content: bytes | str, *, shown: str) -> bool:
    """Whether a YAML text starts a server."""
    broken: list[Broken] = []
    try:
        return bool(launches_in(content, shown=shown, broken=broken) or broken)
    except KvplanError as error:
        return error.code not in ("no-server", "bad-yaml", "yaml-too-large")


def _read(documents: list[OwnTree], beside: Beside, broken: list[Broken]) -> list[Launch]:
    """The servers of the documents; what of them cannot be read goes to ``broken``."""
    objects = {(str(one.get("kind")), name_of(one) or ""): one for one in documents}
    text = Text(beside, configs_in(documents), files_in(documents), objects)
    scaled = scalers_in(documents)
    parts: list[Launch | Served | Broken] = []
    for document in documents:
        reader = reader_of(document)
        parts += _guarded(document, text, scaled) if reader is None else reader(document, beside)
    broken += [one for one in parts if isinstance(one, Broken)]
    launches = [one for one in parts if isinstance(one, Launch)]
    served = [one for one in parts if isinstance(one, Served)]
    read = [(one, launch) for one in served if (launch := _launch(one, text, broken)) is not None]
    return [*launches, *(launch for _, launch in joined(read))]


def _guarded(
    document: OwnTree, text: Text, scaled: Mapping[str, tuple[int, str]]
) -> Iterator[Served | Broken]:
    """The servers of a document; an error in the middle of it ends it."""
    try:
        yield from _of_document(document, text, scaled)
    except KvplanError as error:
        yield Broken(name_of(document) or text.beside.name, error)


def _of_document(
    document: OwnTree, text: Text, scaled: Mapping[str, tuple[int, str]]
) -> Iterator[Served | Broken]:
    kind = document.get("kind")
    if not isinstance(kind, str):
        yield from _of_values(document, text)
        return
    version = document.get("apiVersion")
    group = str(version).rpartition("/")[0] if version is not None else None
    for kinds, groups, reader in _READERS:
        if kind in kinds.split() and (group is None or group in groups.split()):
            yield from reader(document, text)
            return
    row = row_of(document)
    if row is not None:
        yield from servers_of_object(document, row, text, scaled.get(name_of(document) or ""))
        return
    found = list(_pods_of_unknown(document, text))
    yield from found
    unread = unread_object(document) if not found else None
    if unread is not None:
        yield Broken(name_of(document) or kind, _not_read(unread))


def _not_read(what: str) -> KvplanError:
    return KvplanError(
        "not-read", f"{what} is not read: kvplan has no row for its kind",
        help="kubectl get pods -o yaml | kvplan check -: what its operator makes of it",
    )  # fmt: skip


def _pods_of_unknown(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """The pods of an object whose kind has no row: wherever a list of containers stands."""
    note = f"{document.get('kind')} is a kind that kvplan does not know: read by the pods that it holds"
    stack_of: list[tuple[object, int]] = [(document.get("spec", document), 1)]
    while stack_of:
        value, times = stack_of.pop(0)
        if isinstance(value, list):
            stack_of += [(one, times) for one in value]
        elif isinstance(value, dict):
            number = value.get("replicas")
            times *= number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 1
            if entries_of(value.get("containers")):
                for one in servers_of_pod(value, name_of(document) or text.beside.name, text):
                    yield (
                        one
                        if isinstance(one, Broken)
                        else replace(one, replicas=times, notes=(*one.notes, note))
                    )
            else:
                stack_of += [(one, times) for one in value.values()]


def _of_values(document: OwnTree, text: Text) -> Iterator[Served | Broken]:
    """Values of a chart, or a mapping of another kind of file."""
    document = charts.with_own_values(document)
    for is_one, reader in _OF_VALUES:
        if is_one(document):
            yield from reader(document, text)
            return
    found = list(servers_in_values(document, text))
    yield from found
    server = None if found else charts.own_config(document)
    if server is not None:
        yield Served(Start(server, words_of_keys(document)), text.beside.name)


def _launch(served: Served, text: Text, broken: list[Broken]) -> Launch | None:
    try:
        launch = launch_of(
            served.start, name=served.name, engine=text.beside.engine, beside=text.beside.folder,
            held=text.held, names=served.names,
        )  # fmt: skip
    except KvplanError as error:
        broken.append(Broken(served.name, error))
        return None
    image = served.start.image
    processor = (f"image {image} (it runs on the processor alone)",) if _ON_CPU.search(image or "") else ()
    return replace(
        launch, devices=(f"{served.shares}/0",) if served.shares is not None else (),
        replicas=served.replicas, gpu=served.gpu, slice=served.slice, gpus=served.gpus or launch.gpus,
        notes=(*launch.notes, *served.notes),
        unread=tuple(dict.fromkeys((*launch.unread, *served.unread, *processor))),
    )  # fmt: skip


def _named_apart(launches: list[Launch]) -> list[Launch]:
    """A number behind the second of a name."""
    seen: dict[str, int] = {}
    found = []
    for one in launches:
        seen[one.name] = number = seen.get(one.name, 0) + 1
        found.append(one if number == 1 else replace(one, name=f"{one.name}-{number}"))
    return found
