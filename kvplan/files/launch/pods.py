"""The servers of a pod: its containers, their variables, the GPUs that they are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from kvplan.errors import KvplanError
from kvplan.files.launch.entries import Served, words_of
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.machines import claimed, fractions_in, given_by, gpu_of_pod
from kvplan.files.launch.models import downloads_in
from kvplan.files.launch.starts import SHELLS, Start, starts_in, starts_of, with_fields, with_image
from kvplan.files.launch.trees import OwnTree, Tree, entries_of, image_of, mapping, pairs, text_of
from kvplan.later import regex
from kvplan.named import NamedTuple

_RAY = regex(r"\bray\s+start\b|multi-node-serving|RAY_START_CMD")
"""How a pod joins a Ray cluster over which one engine runs."""
_COMMAND = regex(r"-\w*c")


class Text(NamedTuple):
    """Facts shared by the objects of one text."""

    beside: Beside
    configs: Mapping[tuple[str, str], Tree] = {}
    """(kind, name) → data of ConfigMaps and Secrets"""
    held: Mapping[str, str] = {}
    """name → text of the files that ConfigMaps bring"""
    objects: Mapping[tuple[str, str], Tree] = {}
    """(kind, name) → the object"""


def servers_of_pod(
    template: Tree, name: str, text: Text, told: Mapping[str, str] = {}
) -> Iterator[Served | Broken]:
    """The servers that a pod's containers start, each with what it is given. told: variables that an operator
    sets."""
    spec = mapping(template.get("spec")) or template
    containers = entries_of(spec.get("containers"))
    fetched = downloads_in("\n".join(map(_said, (*entries_of(spec.get("initContainers")), *containers))))
    starts: list[tuple[Start, Tree]] = []
    for container in containers:
        found = _starts(container, text, told)
        if isinstance(found, KvplanError):
            yield Broken(_called(name, container, containers), found)
        else:
            starts += [(start, container) for start in found]
    given = [given_by(one.get("resources")) for _, one in starts]
    several = len(starts) > 1
    shared = several and sum(one.gpus is not None for one in given) < len(starts)
    shares, devices = fractions_in(template.get("metadata")), list(claimed(spec, text.objects))
    for (start, holder), own in zip(starts, given, strict=True):
        parts = (*own.parts, *shares)
        node, profile = gpu_of_pod(spec)
        gpu = own.gpu or node or next((gpu for _, gpu in devices if gpu), None)
        yield Served(
            start, _called(name, holder, starts) if several else name, gpu=gpu,
            gpus=own.gpus or sum(count for count, _ in devices) or None, slice=own.slice or profile,
            shares=name if shared else None, unread=parts, names=tuple(fetched),
            notes=tuple(f"{one}: a part of a GPU, and the figures are of a whole one" for one in parts),
            gang=_RAY.search(_said(holder)) is not None,
        )  # fmt: skip


def _starts(container: Tree, text: Text, told: Mapping[str, str]) -> list[Start] | KvplanError:
    try:
        return starts_in_container(container, text, told)
    except KvplanError as error:
        return error


def _called(name: str, container: Tree, among: object) -> str:
    """A pod's name, with its container's where there are several."""
    own = container.get("name")
    alone = isinstance(among, list) and len(among) == 1
    return name if alone or not isinstance(own, str) or own == name else f"{name}-{own}"


def _said(container: Tree) -> str:
    """The words of a container as one text."""
    words = [container.get(key) for key in ("command", "args", "source")]
    return " ".join(
        text_of(word)
        for one in words
        for word in (one if isinstance(one, list) else [one])
        if word is not None
    )


def starts_in_container(container: Tree, text: Text, told: Mapping[str, str] = {}) -> list[Start]:
    """The servers that a container starts: by its words, else by its image's own entry point."""
    image = image_of(container.get("image"))
    environment = {**told, **environment_of(container, text)}
    command, args = words_of(container.get("command")), words_of(container.get("args"))
    source = container.get("source")
    if isinstance(source, str):  # Argo's script: the text is a file that the command runs
        shell = PurePosixPath(command[0]).name if command else "sh"
        if shell not in SHELLS:
            return []
        command, args = [shell, "-c", source], []
    words = [*command, *args]
    if not words and (image is None or not environment):
        return []
    starts = _of_script(words, environment, text)
    starts = starts or starts_of(words, environment, image=None if command else image)
    return [with_image(one, image) for one in starts]


def _of_script(words: list[str], environment: Mapping[str, str], text: Text) -> list[Start]:
    """The servers of a shell's text that reads or starts scripts of ConfigMaps in the same text."""
    if not (words and text.held and PurePosixPath(words[0]).name in SHELLS):
        return []
    told = [with_fields(word, environment) for word in words[1:]]
    at = next((place for place, word in enumerate(told) if _COMMAND.fullmatch(word)), None)
    said = [word for word in told[at + 1 :] if word != "--"] if at is not None else []
    script = said[0] if said else next(
        (found for word in told if (found := text.held.get(PurePosixPath(word).name)) is not None), None
    )  # fmt: skip
    if script is None:
        return []
    return starts_in(script, environment, beside=lambda path: text.held.get(PurePosixPath(path).name))


def environment_of(container: Tree, text: Text) -> dict[str, str]:
    """A container's variables: ``envFrom`` of ConfigMaps and Secrets in the same text, ``env``, and those of
    its list that such an object says."""
    found: dict[str, str] = {}
    for source in entries_of(container.get("envFrom")):
        prefix = str(source.get("prefix") or "")
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            data = text.configs.get((kind, str(mapping(source.get(key)).get("name"))), {})
            found.update({prefix + name: text_of(value) for name, value in data.items()})
    for key in ("env", "envs", "environment"):
        for entry in entries_of(container.get(key)):
            origin = mapping(entry.get("valueFrom"))
            for reference, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                wanted = mapping(origin.get(reference))
                data = text.configs.get((kind, str(wanted.get("name"))), {})
                if str(wanted.get("key")) in data:
                    found[str(entry.get("name"))] = text_of(data[str(wanted["key"])])
            resource = str(mapping(origin.get("resourceFieldRef")).get("resource"))
            if resource.endswith("nvidia.com/gpu") and (count := given_by(container.get("resources")).gpus):
                found[str(entry.get("name"))] = str(count)
        found.update(pairs(container.get(key)))
    return found


def configs_in(documents: list[OwnTree]) -> dict[tuple[str, str], OwnTree]:
    """(kind, name) → data of the ConfigMaps and Secrets of a text."""
    found = {}
    for one in documents:
        if one.get("kind") in ("ConfigMap", "Secret"):
            data = {**mapping(one.get("data")), **mapping(one.get("stringData"))}
            if one["kind"] == "Secret":
                data = mapping(one.get("stringData"))
            found[str(one["kind"]), str(mapping(one.get("metadata")).get("name"))] = data
    return found


def files_in(documents: list[OwnTree]) -> dict[str, str]:
    """Name → text of the files that ConfigMaps bring, where only one has a file of that name."""
    found: dict[str, list[str]] = {}
    for one in documents:
        if one.get("kind") == "ConfigMap":
            for name, text in mapping(one.get("data")).items():
                if isinstance(text, str):
                    found.setdefault(str(name), []).append(text)
    return {name: texts[0] for name, texts in found.items() if len(texts) == 1}


def is_patch(documents: list[OwnTree]) -> bool:
    """Whether containers have words or variables and no image: parts that kustomize puts together."""
    for document in documents:
        if not isinstance(document.get("kind"), str):
            continue
        stack: list[object] = [document.get("spec")]
        while stack:
            value = stack.pop()
            if isinstance(value, list):
                stack += value
            elif isinstance(value, dict):
                containers = entries_of(value.get("containers"))
                if any(
                    "image" not in one and {"args", "env", "command", "resources"} & one.keys()
                    for one in containers
                ):
                    return True
                stack += [one for key, one in value.items() if key != "templateRef"]
    return False
