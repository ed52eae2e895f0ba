"""The servers of Kubernetes' objects, by the table of their kinds."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from kvplan.files.launch.entries import Served
from kvplan.files.launch.found import Broken
from kvplan.files.launch.pods import Text, servers_of_pod
from kvplan.files.launch.rows import ALL, LEADER, ROWS, WORKER, Pods, Row
from kvplan.files.launch.trees import NOTHING, Tree, count_of, entries_of, mapping, mappings_in, name_of
from kvplan.named import NamedTuple
from kvplan.record import replace


def row_of(document: Tree) -> Row | None:
    """The row of an object; None where its kind has none."""
    kind = str(document.get("kind"))
    version = document.get("apiVersion")
    group = str(version).rpartition("/")[0] if version is not None else None
    for row in ROWS:
        if kind in row.kinds.split() and (group is None or not row.groups or group in row.groups.split()):
            return row
    return None


class _Bound(NamedTuple):
    """The value that a path leads to. steps: path up to a list or mapping → its entry."""

    value: object
    steps: Tree = NOTHING
    names: tuple[str, ...] = ()


def _along(document: Tree, path: str) -> Iterator[_Bound]:
    """Everything that a path leads to."""
    found = [_Bound(document)]
    walked = ""
    for key in path.split(".") if path else ():
        walked = f"{walked}.{key}" if walked else key
        found = [entry for one in found for entry in _step(one, key, walked)]
    yield from found


def _step(one: _Bound, key: str, walked: str) -> Iterator[_Bound]:
    value = mapping(one.value).get(key.removesuffix("[]").removesuffix("{}"))
    if key.endswith("[]"):
        for entry in entries_of(value):
            yield _Bound(entry, {**one.steps, walked: entry}, (*one.names, str(entry.get("name") or "")))
    elif key.endswith("{}"):
        for name, entry in mapping(value).items():
            yield _Bound(entry, {**one.steps, walked: entry}, (*one.names, str(name)))
    elif value is not None:
        yield _Bound(value, one.steps, one.names)


def _at(document: Tree, path: str, steps: Tree) -> object:
    """The value of a path, through the entries that another one went through."""
    value: object = document
    walked = ""
    for key in path.split("."):
        walked = f"{walked}.{key}" if walked else key
        value = steps[walked] if walked in steps else mapping(value).get(key)
    return value


def servers_of_object(
    document: Tree, row: Row, text: Text, scaled: tuple[int, str] | None = None
) -> Iterator[Served | Broken]:
    """The servers of an object's pods, each with the numbers around it. scaled: (the least number of pods, a
    note) of what scales it."""
    own = name_of(document) or text.beside.name
    document = document if row.prepared is None else row.prepared(document)
    names = {one.names for pods in row.pods for one in _along(document, pods.at) if one.names}
    for pods in row.pods:
        for bound in _along(document, pods.at):
            template = pods.shape(mapping(bound.value)) if pods.shape is not None else mapping(bound.value)
            called = "-".join(filter(None, bound.names)) if pods.called is None else pods.called
            several = len(names) > 1 or pods.called
            name = f"{own}-{called}" if called and (several or bound.names) else own
            yield from _of_pods(document, pods, bound, template, name, text, scaled)


_NOBODY = "replicas is 0: nothing runs until somebody scales it, and one is counted"


def _of_pods(
    document: Tree, pods: Pods, bound: _Bound, template: Tree, name: str, text: Text,
    scaled: tuple[int, str] | None,
) -> Iterator[Served | Broken]:  # fmt: skip
    counts = [_at(document, path, bound.steps) for path in pods.times]
    said = _at(document, pods.size, bound.steps) if pods.size is not None else None
    none = said == 0 and not isinstance(said, bool)
    if none and pods.share == WORKER:
        return
    size = (count_of(said) or (0 if none and pods.plus else 1)) + pods.plus
    notes = (_NOBODY,) if 0 in counts or (none and not pods.plus) else tuple(filter(None, (pods.note,)))
    least, more = _annotated(template) or _annotated(document) or scaled or (None, "")
    if least is not None:
        notes = (*notes, more) if more else notes
        counts, size = ([least, *counts[1:]], size) if counts else (counts, least)
    whole = _share(document, pods, bound, size)
    for one in servers_of_pod(template, name, text, dict.fromkeys(pods.told, str(size))):
        yield one if isinstance(one, Broken) else replace(
            one, replicas=prod(count_of(count) or 1 for count in counts), pods=whole, size=size,
            worker=pods.share == WORKER, gang=pods.gang or one.gang, one=pods.one,
            group=f"{id(document)} {name}", notes=(*one.notes, *notes),
        )  # fmt: skip


def _share(document: Tree, pods: Pods, bound: _Bound, size: int) -> int:
    """The pods that a template is of, in a group of so many."""
    led = pods.leader is None or _at(document, pods.leader, bound.steps) is not None
    return max(1, {ALL: size, LEADER: 1, WORKER: size - 1 if led else size}[pods.share])


_KNATIVE = "autoscaling.knative.dev/"


def _annotated(template: Tree) -> tuple[int, str] | None:
    """(the least number of pods, a note where more may run) that Knative's annotations say."""
    told = mapping(mapping(template.get("metadata")).get("annotations"))
    least = next((told[key] for key in (f"{_KNATIVE}minScale", f"{_KNATIVE}min-scale") if key in told), None)
    most = next((told[key] for key in (f"{_KNATIVE}maxScale", f"{_KNATIVE}max-scale") if key in told), None)
    if least is None:
        return None
    count = count_of(least) or 1
    more = count_of(most)
    return count, f"{count} to {more} run: {count} counted" if more and more > count else ""


_QUIET = (
    "k8s.io", "istio.io", "cert-manager.io", "monitoring.coreos.com", "external-secrets.io", "keda.sh",
    "openshift.io", "envoyproxy.io", "kyverno.io", "cnrm.cloud.google.com", "cilium.io", "traefik.io",
    "grafana", "tekton.dev", "policy", "apps", "batch", "autoscaling", "kueue.x-k8s.io", "cloud.google.com",
    "karpenter.sh", "karpenter.k8s.aws", "azure.com", "amazonaws.com", "gke.io", "monitoring.googleapis.com",
    "opentelemetry.io", "scheduling.volcano.sh", "helm.sh", "toolkit.fluxcd.io", "argoproj.io", "x-k8s.io",
)  # fmt: skip
"""How the groups end whose objects start no server of their own."""


def unread_object(document: Tree) -> str | None:
    """``Model 'x' (kubeai.org/v1)`` of an object that has no row and names a model or a server; None of one
    that stands beside them."""
    kind, version = document.get("kind"), document.get("apiVersion")
    group = str(version).rpartition("/")[0]
    if not isinstance(kind, str) or not group or any(f".{group}".endswith(f".{one}") for one in _QUIET):
        return None
    keys = {str(key).lower() for one in mappings_in(document.get("spec")) for key in one}
    if not any("model" in key or key in ("image", "engine", "gpu") for key in keys):
        return None
    return f"{kind} {name_of(document)!r} ({version})"
