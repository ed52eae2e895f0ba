"""Servers in values of charts that have no reader of their own: wherever a container's keys stand."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.engines.launch import servers
from kvplan.errors import KvplanError
from kvplan.files.launch.entries import Served, words_of
from kvplan.files.launch.found import Broken
from kvplan.files.launch.machines import given_by, gpu_below, gpu_of, gpu_of_pod
from kvplan.files.launch.pods import Text, starts_in_container
from kvplan.files.launch.trees import Tree, count_of, image_of, mapping, text_of
from kvplan.named import NamedTuple

_REPLICAS = ("replicas", "replicaCount", "minReplicas", "replica_count")
_CONTAINER = ("command", "args", "arg", "env", "envs", "environment", "extraEnv", "extraArgs")


class _Around(NamedTuple):
    """The surroundings of a server: the nearest name and GPU, the product of the numbers."""

    name: str
    replicas: int = 1
    gpu: str | None = None
    gpus: int | None = None


def servers_in_values(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """The servers that mappings with an image and words, or variables, start."""
    name = mapping(document.get("metadata")).get("name")
    around = _Around(name if isinstance(name, str) else text.beside.name, 1, gpu_below(document))
    yield from _walk(document, around, text)


def _walk(value: object, around: _Around, text: Text) -> Iterator[Served | Broken]:
    if isinstance(value, list):
        for one in value:
            yield from _walk(one, around, text)
        return
    if not isinstance(value, dict):
        return
    number = next((value[key] for key in _REPLICAS if count_of(value.get(key)) is not None), 1)
    given, (node, profile) = given_by(value.get("resources")), gpu_of_pod(value)
    inside = around._replace(
        replicas=around.replicas * (count_of(number) or 1),
        gpu=gpu_of(value) or node or around.gpu,
        gpus=given.gpus or around.gpus,
    )
    found = list(_of_container(value, inside, profile, text))
    yield from found
    if not found:
        for one in value.values():
            yield from _walk(one, inside, text)


def _of_container(value: Tree, around: _Around, profile: str | None, text: Text) -> Iterator[Served | Broken]:
    """The servers of a mapping that has a container's keys."""
    if not any(value.get(key) for key in _CONTAINER):
        return
    words = [word for key in ("args", "arg", "extraArgs") for word in words_of(value.get(key))]
    env = _listed(value.get("extraEnv") or value.get("environment") or value.get("env") or value.get("envs"))
    own, given = value.get("name"), given_by(value.get("resources"))
    name = own if isinstance(own, str) and own not in servers() else around.name
    container = {**value, "image": image_of(value.get("image")), "args": words, "env": env}
    try:
        starts = starts_in_container(container, text)
    except KvplanError as error:
        yield Broken(name, error)
        return
    for start in starts:
        yield Served(
            start, name, around.replicas, 1, around.gpu, around.gpus, given.slice or profile,
            unread=given.parts,
        )  # fmt: skip


def _listed(env: object) -> object:
    """Variables as Kubernetes' list, of a mapping or of ``NAME=value``."""
    if isinstance(env, dict):
        return [{"name": str(name), "value": text_of(value)} for name, value in env.items()]
    if isinstance(env, list):
        split = [one.partition("=") for one in env if isinstance(one, str) and "=" in one]
        return [*(one for one in env if isinstance(one, dict)),
                *({"name": name, "value": value} for name, _, value in split)]  # fmt: skip
    return env
