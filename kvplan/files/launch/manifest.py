"""Servers in a manifest: Kubernetes objects, charts' values, engines' own config files.

A server stands wherever a mapping has a container's keys (``image`` with ``command``, ``args`` or the like),
however deep; what is around it says how many and on which GPU. Forms that name model and parallelism in keys
of their own are in `kvplan.files.launch.charts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.engines.launch import servers
from kvplan.errors import KvplanError
from kvplan.files.launch import charts
from kvplan.files.launch.command import launch_of
from kvplan.files.launch.entries import mapping, words_of_keys
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.kinds import reader_of
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.loose import load_loose
from kvplan.files.launch.machines import gpu_of_label
from kvplan.files.launch.rendered import helm_template, source_of_manifests
from kvplan.files.launch.starts import Start, split_words, starts_of, with_image
from kvplan.record import replace

_RESOURCES = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "google.com/tpu",
    "aws.amazon.com/neuron",
    "gpu",
)
_REPLICAS = ("replicas", "replicaCount", "minReplicas", "replica_count")
_LABELS = (
    "gpu.product",
    "gke-accelerator",
    "gke-tpu-accelerator",
    "instance-type",
    "instancetype",
    "gpu-type",
    "gputype",
    "gpu_type",
)
_WORDS = ("command", "args", "arg")


class Around(NamedTuple):
    """The mappings around a server."""

    name: str | None = None
    """name, replicas, gpu: the nearest; None where nothing does"""
    replicas: int | None = None
    gpu: str | None = None
    group: int | None = None
    """the pods of one LeaderWorkerSet's group, which each is told as ``LWS_GROUP_SIZE``
    (kubernetes-sigs/lws pkg/utils/pod/pod_utils.go)"""
    gpus: int | None = None
    """of the pod around a container (Dynamo)"""
    held: Mapping[str, str] = {}
    """the files of the ConfigMaps in the same text"""


def launches_in(
    content: bytes | str, *, shown: str, engine: str | None = None, beside: Path = Path(),
    broken: list[Broken] | None = None,
) -> list[Launch]:  # fmt: skip
    """The servers of a YAML text, in its order. broken: takes what is wrong with one object of several.

    Raises KvplanError(bad-yaml | no-server | not-rendered | …)."""
    template, is_object = helm_template(content, shown)
    if template is not None and is_object:
        raise template
    try:
        documents = [one for document in load_loose(content, name=shown) for one in _objects(document)]
    except KvplanError as error:
        raise template or error from None
    charts.with_configs(documents, lambda text: next(iter(load_loose(text, name=shown)), None))
    held = charts.files_of_config_maps(documents)
    found: list[Launch] = []
    stem = Path(shown).stem.strip("<>")
    for document in documents:
        reader = reader_of(document)
        if reader is not None:
            for one in reader(document, Beside(stem, engine, beside)):
                if isinstance(one, Launch):
                    found.append(one)
                elif broken is None:
                    raise one.error
                else:
                    broken.append(one)
            continue
        several = broken if len(documents) > 1 else None
        found += _of_one(document, several, stem, engine, beside, held)
    if not (found or broken):
        raise template or source_of_manifests(documents, shown) or KvplanError(
            "no-server", f"nothing in {shown} starts a server of {', '.join(servers())}",
            help="what is read: commands, Compose files, Kubernetes objects, values of charts",
        )  # fmt: skip
    return _named_apart(found)


def _objects(document: object) -> list[dict[str, object]]:
    """The objects of a list as ``kubectl get -o yaml`` prints it; else the document itself."""
    if not isinstance(document, dict):
        return []
    listed = document.get("items") if str(document.get("kind")).endswith("List") else None
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else [document]


def is_manifest(content: bytes | str, *, shown: str) -> bool:
    """Whether a YAML text starts a server."""
    try:
        return bool(launches_in(content, shown=shown))
    except KvplanError as error:
        return error.code not in ("no-server", "bad-yaml", "yaml-too-large")


def _of_one(
    document: dict[str, Any], broken: list[Broken] | None, stem: str, engine: str | None, beside: Path,
    held: Mapping[str, str],
) -> list[Launch]:  # fmt: skip
    try:
        return _of_document(document, stem, engine, beside, held)
    except KvplanError as error:
        if broken is None:
            raise
        broken.append(Broken(str(mapping(document.get("metadata")).get("name") or stem), error))
        return []


def _of_document(
    document: dict[str, object], stem: str, engine: str | None, beside: Path, held: Mapping[str, str]
) -> list[Launch]:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    gpu = _gpu_below(document.get("spec", document))
    around = Around(name if isinstance(name, str) else None, None, gpu, held=held)
    found = list(_walk(document, around, stem, engine, beside))
    if found:
        return found
    server = charts.own_config(document)
    if server is None:
        return []
    return [launch_of(Start(server, words_of_keys(document)), name=stem, engine=engine, beside=beside)]


def _walk(value: object, around: Around, stem: str, engine: str | None, beside: Path) -> Iterator[Launch]:
    if isinstance(value, list):
        for one in value:
            yield from _walk(one, around, stem, engine, beside)
        return
    if not isinstance(value, dict):
        return
    if _is_frontend(value):
        return
    inside = _around(value, around)
    special = charts.server_in(value)
    if special is not None:
        for start, extra in special:
            launch = launch_of(
                start, name=extra.name or inside.name or stem, engine=engine, beside=beside, held=inside.held
            )
            launch = replace(launch, notes=(*launch.notes, *extra.notes))
            gpu = gpu_of_label(extra.gpu) if extra.gpu else None
            own = inside._replace(replicas=extra.replicas or inside.replicas, gpu=gpu or inside.gpu)
            yield _placed(launch, value, own, extra.gpus)
        return
    starts = _container(value, inside)
    if starts:
        for start in starts:
            name = inside.name or str(value.get("name") or stem)
            yield _placed(
                launch_of(start, name=name, engine=engine, beside=beside, held=inside.held),
                value,
                inside,
                None,
            )
        return
    for key, one in value.items():
        if key == "services" and isinstance(one, dict) and "image" not in value:  # Dynamo
            for service, entry in one.items():
                yield from _walk(entry, inside._replace(name=str(service)), stem, engine, beside)
        else:
            yield from _walk(one, inside, stem, engine, beside)


def _is_frontend(value: Mapping[str, object]) -> bool:
    """Dynamo's HTTP server, in the same image as its workers."""
    return value.get("componentType") == "frontend" or (
        value.get("type") == "frontend" and "podTemplate" in value
    )


def _around(value: dict[str, Any], around: Around) -> Around:
    number = next(
        (
            value[key]
            for key in _REPLICAS
            if isinstance(value.get(key), int) and not isinstance(value.get(key), bool)
        ),
        None,
    )
    gpu = _gpu_of(value)
    group = mapping(value.get("leaderWorkerTemplate")).get("size")
    return around._replace(
        group=group if isinstance(group, int) else around.group,
        gpus=_count({"resources": value.get("resources")}) or around.gpus,
        replicas=around.replicas if number is None or number < 1 else number,
        gpu=around.gpu if gpu is None else gpu,
    )


def _placed(launch: Launch, container: dict[str, object], around: Around, gpus: int | None) -> Launch:
    count = gpus or launch.gpus or _count(container) or around.gpus
    return replace(launch, replicas=around.replicas or 1, gpu=around.gpu, gpus=count)


def _container(value: dict[str, object], around: Around) -> list[Start]:
    """The servers that a container starts: by its words, else by its image's own entry point."""
    image = value.get("image")
    if isinstance(image, dict):  # charts: {repository, tag}
        image = ":".join(str(image[key]) for key in ("repository", "tag") if image.get(key))
    image = image if isinstance(image, str) else None
    environment = _environment(value)
    words = [word for key in _WORDS for word in _words(value.get(key))]
    if not words and (image is None or not environment):
        return []
    if around.group is not None:
        environment.setdefault("LWS_GROUP_SIZE", str(around.group))
    replaced = value.get("command") is not None
    starts = starts_of(words, environment, image=None if replaced else image)
    return [with_image(one, image) for one in starts]


def _words(given: Any) -> list[str]:
    """A list as it is; a text as a shell takes it apart."""
    if isinstance(given, str):
        return split_words(given)
    return [_text(one) for one in given] if isinstance(given, list) else []


def _text(value: object) -> str:
    """A word as YAML's readers in other tools give it to a process."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _environment(value: Mapping[str, object]) -> dict[str, str]:
    """``env: [{name, value}]`` of Kubernetes, or a mapping."""
    found: dict[str, str] = {}
    for key in ("env", "envs"):
        given = value.get(key)
        if isinstance(given, dict):
            found.update(
                {str(name): _text(one) for name, one in given.items() if not isinstance(one, (dict, list))}
            )
        for entry in given if isinstance(given, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("value"), (str, int, float, bool)):
                found[str(entry.get("name"))] = _text(entry["value"])
            elif isinstance(entry, str) and "=" in entry:
                name, _, text = entry.partition("=")
                found[name] = text
    return found


def _count(container: Mapping[str, Any]) -> int | None:
    """How many GPUs a container is given."""
    for resources in _mappings(container.get("resources"), container.get("limits")):
        for key, number in resources.items():
            if (key in _RESOURCES or str(key).startswith("nvidia.com/mig-")) and str(number).isdigit():
                return int(number)
    return None


def _mappings(*values: Any) -> Iterator[dict[str, Any]]:
    for value in values:
        if isinstance(value, dict):
            yield value
            yield from _mappings(*value.values())


def _gpu_of(value: Mapping[str, object]) -> str | None:
    """The GPU that a mapping's own keys name (a selector's label, a type)."""
    for label, text in value.items():
        if isinstance(text, str) and any(word in str(label).lower() for word in _LABELS):
            gpu = gpu_of_label(text)
            if gpu is not None:
                return gpu
    key, values = value.get("key"), value.get("values")  # an affinity's expression
    if isinstance(key, str) and isinstance(values, list) and any(word in key.lower() for word in _LABELS):
        named = {gpu_of_label(str(one)) for one in values}
        return named.pop() if len(named) == 1 else None
    return None


def _gpu_below(value: object) -> str | None:
    """The one GPU that anything below names; None where it is none, or several."""
    kinds = {gpu for one in _everything(value) if (gpu := _gpu_of(one)) is not None}
    return kinds.pop() if len(kinds) == 1 else None


def _everything(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _everything(one)


def _named_apart(launches: list[Launch]) -> list[Launch]:
    """A number behind the second of a name."""
    seen: dict[str, int] = {}
    found = []
    for one in launches:
        seen[one.name] = number = seen.get(one.name, 0) + 1
        found.append(one if number == 1 else replace(one, name=f"{one.name}-{number}"))
    return found
