"""Autoscalers in the same text as an object: how many pods run at least."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.files.launch.trees import Tree, count_of, mapping, name_of

_SCALERS = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas", 1),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount", 0),
    "PodAutoscaler": ("minReplicas", "maxReplicas", 1),
}
"""Kind → the keys of least and most pods, and the least where nothing is said: kubernetes/api autoscaling/v2,
kedacore/keda apis/keda/v1alpha1/scaledobject_types.go, vllm-project/aibrix api/autoscaling/v1alpha1."""


def scalers_in(documents: Iterable[Tree]) -> dict[str, tuple[int, str]]:
    """Name of a scaled object → (the least number of pods, a note)."""
    found = {}
    for one in documents:
        row = _SCALERS.get(str(one.get("kind")))
        spec = mapping(one.get("spec"))
        target = mapping(spec.get("scaleTargetRef")).get("name")
        if row is None or target is None:
            continue
        least, most = spec.get(row[0], row[2]), spec.get(row[1])
        counted = count_of(least) or 1
        note = f"{one['kind']} {name_of(one)} runs {least} to {most} pods of it: {counted} counted"
        found[str(target)] = (counted, note)
    return found


def least_of(least: object, replicas: object = None, most: object = None) -> tuple[int, tuple[str, ...]]:
    """(how many run at least, a note where it may be more)."""
    counted, more = count_of(least) or count_of(replicas) or 1, count_of(most)
    return counted, (f"{counted} to {more} run: {counted} counted",) if more and more > counted else ()
