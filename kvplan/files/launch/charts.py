"""Charts' values that name a model and its parallelism in keys of their own, and the engines' options files.

llm-d's modelservice: llm-d-incubation/llm-d-modelservice charts/llm-d-modelservice/values.yaml and
templates/_helpers.tpl (workers, what a container is given).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvplan.engines.launch import Server, flags_of_server, server_in_charts, servers
from kvplan.errors import KvplanError
from kvplan.files.launch.entries import Served, started
from kvplan.files.launch.found import Broken
from kvplan.files.launch.machines import fractions_in, given_by, gpu_of, gpu_of_label, gpu_of_pod
from kvplan.files.launch.pods import Text, environment_of, starts_in_container
from kvplan.files.launch.starts import Start
from kvplan.files.launch.trees import OwnTree, Tree, container_of, count_of, mapping, unknown_keys
from kvplan.later import regex

_VALUE = regex(r"\{\{-?\s*\.Values((?:\.\w+)+)\s*(?:\|\s*quote\s*)?-?\}\}", re.ASCII)
_DEPTH = 4
_QUIET = """create enabled replicas parallelism containers initContainers volumes extraConfig autoscaling
annotations labels podAnnotations podLabels monitoring nodeSelector affinity tolerations acceleratorTypes
accelerator hostIPC hostPID enableService schedulerName priorityClassName resourceClaims subGroupPolicy
readinessProbe livenessProbe startupProbe deploymentStrategy serviceAccountName runtimeClassName
topologySpreadConstraints securityContext podSecurityContext terminationGracePeriodSeconds tracing"""
_OF_CONTAINER = """name image imagePullPolicy modelCommand command args env envFrom ports resources
volumeMounts mountModelVolume startupProbe livenessProbe readinessProbe securityContext
extraConfig workingDir lifecycle"""


def with_own_values(document: OwnTree) -> OwnTree:
    """A chart's values in which ``{{ .Values.a.b }}`` stands for another of them."""

    def filled(value: object, depth: int) -> object:
        if isinstance(value, dict):
            return {key: filled(one, depth) for key, one in value.items()}
        if isinstance(value, list):
            return [filled(one, depth) for one in value]
        if not isinstance(value, str) or "{{" not in value or not depth:
            return value
        text = _VALUE.sub(lambda match: said(match[1], match[0]), value)
        return text if text == value else filled(text, depth - 1)

    def said(path: str, whole: str) -> str:
        found: object = document
        for key in path.split(".")[1:]:
            found = mapping(found).get(key)
        return str(found) if isinstance(found, (str, int, float)) else whole

    return mapping(filled(document, _DEPTH))


def model_service(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """llm-d: ``modelArtifacts.uri``, ``decode`` and ``prefill``."""
    artifacts = mapping(document.get("modelArtifacts"))
    if "uri" not in artifacts or not ("decode" in document or "prefill" in document):
        return
    name = str(artifacts.get("name") or "model").rpartition("/")[2]
    for role in ("decode", "prefill"):
        part = mapping(document.get(role))
        if part and part.get("create") is not False and part.get("replicas") != 0:
            yield from _of_role(document, part, role, f"{name}-{role}", text)


def _of_role(document: Tree, part: Tree, role: str, name: str, text: Text) -> Iterator[Served | Broken]:
    sizes = dict(mapping(part.get("parallelism")))
    container = container_of(part, server_in_charts().engine)
    workers = _workers(sizes)
    try:
        starts = _starts(document, container, sizes, text)
    except KvplanError as error:
        yield Broken(name, error)
        return
    given, (node, profile) = given_by(container.get("resources")), gpu_of_pod(part)
    scaling = mapping(part.get("autoscaling"))
    least = count_of(scaling.get("minReplicas")) if scaling.get("enabled") is True else None
    served = mapping(document.get("modelArtifacts")).get("name")
    unread = (
        *given.parts, *unknown_keys(part, _QUIET, role),
        *unknown_keys(container, _OF_CONTAINER, f"{role}.containers"),
        *fractions_in({"annotations": part.get("podAnnotations") or part.get("annotations")}),
    )  # fmt: skip
    for start in starts:
        yield Served(
            start, name, least or count_of(part.get("replicas")) or 1,
            workers if document.get("multinode") is True else 1, node or given.gpu or _accelerator(part),
            given.gpus, given.slice or profile, one=True, unread=unread,
            names=((served, "its name"),) if isinstance(served, str) else (),
        )  # fmt: skip


def _workers(sizes: OwnTree) -> int:
    """The pods of one engine; ``data`` is set where it follows from the others."""
    data, local, workers = (count_of(sizes.get(key)) for key in ("data", "dataLocal", "workers"))
    if data is None and local is not None and workers is not None:
        sizes["data"] = local * workers
    return workers or (max(1, data // (local or data)) if data is not None else 1)


def _starts(document: Tree, container: Tree, sizes: Tree, text: Text) -> list[Start]:
    """The chart's own ``vllm serve``, or the words that the container has in its place."""
    if container.get("modelCommand") == "custom" or "command" in container:
        return starts_in_container(container, text)
    uri = mapping(document.get("modelArtifacts"))["uri"]
    own = started(uri, sizes, container.get("args"), environment_of(container, text), container.get("image"))
    return [] if own is None else [own]


def _accelerator(part: Tree) -> str | None:
    kinds = mapping(part.get("acceleratorTypes")).get("labelValues")
    labels = [gpu_of_label(str(one)) for one in kinds] if isinstance(kinds, list) else []
    return next(filter(None, labels), None) or gpu_of(mapping(part.get("accelerator")))


def own_config(document: Tree) -> Server | None:
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
