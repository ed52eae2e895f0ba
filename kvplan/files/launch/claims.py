"""Models that an operator puts on pods which run already: AIBrix's ``ModelClaim``.

vllm-project/aibrix api/model/v1alpha1/modelclaim_types.go (1de52d83): a claim is one engine process on one of
the pods that ``podSelector`` finds, started with ``engineConfig.args``; several may share a GPU and its
cache, which grows and shrinks (kvcached), so that the sum of their shares of memory is no bound.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.engines.launch import server_in_charts, servers
from kvplan.errors import KvplanError
from kvplan.files.launch.entries import Served
from kvplan.files.launch.found import Broken
from kvplan.files.launch.machines import given_by, gpu_of_pod
from kvplan.files.launch.pods import Text
from kvplan.files.launch.starts import Start
from kvplan.files.launch.trees import Tree, entries_of, mapping, name_of, text_of, unknown_keys

_KNOWN = "modelName podSelector artifactURL engine replicas engineConfig perGPU"


def model_claim(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """The engine of a claim, on the GPU of the pods that it selects where they stand in the same text."""
    spec, name = mapping(document.get("spec")), name_of(document) or text.beside.name
    engine = str(spec.get("engine") or server_in_charts().engine)
    server = servers().get(engine)
    if server is None:
        why = f"ModelClaim {name!r} is not read: kvplan has no rules for the engine {engine}"
        yield Broken(name, KvplanError("not-read", why))
        return
    config = mapping(spec.get("engineConfig"))
    words = [server.model[0], str(spec.get("artifactURL") or "")]
    for flag, value in mapping(config.get("args")).items():
        words += [str(flag), *([text_of(value)] if text_of(value) else [])]
    pod = _pod(spec, text)
    given = [given_by(one.get("resources")) for one in entries_of(pod.get("containers"))]
    gpus = next((one.gpus for one in given if one.gpus is not None), None)
    node, profile = gpu_of_pod(pod)
    yield Served(
        Start(server, tuple(words)), name, gpu=node or next((one.gpu for one in given if one.gpu), None),
        gpus=gpus, slice=profile,
        names=((str(spec.get("modelName") or name), "the name that clients ask for"),),
        notes=(*_said(spec), *(() if pod else ("the pods that it is put on stand in another file",))),
        unread=(*unknown_keys(spec, _KNOWN, "spec"), *unknown_keys(config, "args", "spec.engineConfig")),
    )  # fmt: skip


def _pod(spec: Tree, text: Text) -> Tree:
    """The pod whose labels the claim selects."""
    wanted = mapping(mapping(spec.get("podSelector")).get("matchLabels"))
    for one in text.objects.values():
        template = mapping(mapping(one.get("spec")).get("template"))
        labels = mapping(mapping(template.get("metadata")).get("labels"))
        if wanted and all(labels.get(key) == value for key, value in wanted.items()):
            return mapping(template.get("spec"))
    return {}


def _said(spec: Tree) -> Iterator[str]:
    """Notes on the cache that it shares, and the share of a GPU that its operator counts it with."""
    yield "its cache is one with those of other claims on the GPU (kvcached): the figures are of it alone"
    each = mapping(spec.get("perGPU"))
    if each:
        yield (
            f"perGPU says {each.get('maximumFootprint')} beside the cache and at least {each.get('kvFloor')}"
            " of cache: its operator places by these"
        )
