"""Services of a Compose file (compose-spec/compose-spec spec.md; docker/compose)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from kvplan.errors import KvplanError
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import MOST_GPUS, Launch, first_devices
from kvplan.files.launch.loose import load_loose
from kvplan.files.launch.scripts import (
    Extra,
    build_of,
    file_reader,
    of_starts,
    starts_of_script,
    variables_in,
)
from kvplan.files.launch.starts import Start, split_words, starts_of, with_image
from kvplan.files.launch.trees import Tree, count_of, mapping
from kvplan.files.launch.unknown import is_open, shown
from kvplan.record import replace

_KEPT = {ord(sign): 0xE020 + place for place, sign in enumerate("`\\")}
_BACK = {code: sign for sign, code in _KEPT.items()}
"""Signs that a shell reads and Compose does not."""
_MERGED = ("environment", "labels", "deploy", "build")
_ADDED = ("volumes", "env_file", "devices", "configs")
_DEPTH = 8
Read = Callable[[str], "str | None"]


def is_compose(document: Tree) -> bool:
    """Whether a mapping has services, and is no object of Kubernetes."""
    return bool(mapping(document.get("services"))) and "kind" not in document


def services_of(document: Tree, beside: Beside) -> Iterator[Launch | Broken]:
    """The servers that the services start; ``.env`` beside the file says its variables."""
    read = file_reader(beside.folder)
    known = variables_in(read(".env") or "")
    services = {**_included(document, read), **mapping(document.get("services"))}
    for name in services:
        service = mapping(_interpolated(_whole(str(name), services, read), known))
        yield from _of_service(str(name), service, mapping(document.get("configs")), read, beside)


def _included(document: Tree, read: Read) -> dict[str, object]:
    """The services of the files that it includes."""
    found: dict[str, object] = {}
    given = document.get("include")
    for one in given if isinstance(given, list) else ():
        path = mapping(one).get("path", one)
        for file in path if isinstance(path, list) else [path]:
            text = read(file) if isinstance(file, str) else None
            for inner in load_loose(text or "", name=str(file)):
                found.update(mapping(mapping(inner).get("services")))
    return found


def _whole(name: str, services: Tree, read: Read, depth: int = 0) -> Tree:
    """A service with what it extends, in this file or in another."""
    service = dict(mapping(services.get(name)))
    given = service.pop("extends", None)
    if given is None or depth > _DEPTH:
        return service
    base, file = (
        (given, None)
        if isinstance(given, str)
        else (mapping(given).get("service"), mapping(given).get("file"))
    )
    others = services
    if isinstance(file, str):
        text = read(file) or ""
        others = next((mapping(mapping(one).get("services")) for one in load_loose(text, name=file)), {})
    below = dict(_whole(str(base), others, read, depth + 1))
    for key, value in service.items():
        old = below.get(key)
        if key in _MERGED and isinstance(old, dict) and isinstance(value, dict):
            below[key] = {**old, **value}
        elif key in (*_ADDED, "environment") and isinstance(old, list) and isinstance(value, list):
            below[key] = [*old, *value]
        else:
            below[key] = value
    return below


def _interpolated(value: object, known: Mapping[str, str]) -> object:
    """``${X:-1}`` of every text; ``$$`` is one sign that Compose leaves alone."""
    if isinstance(value, dict):
        return {key: _interpolated(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [_interpolated(one, known) for one in value]
    if not isinstance(value, str) or "$" not in value:
        return value
    from kvplan.files.launch.shell.run import expanded

    kept = value.translate(_KEPT).replace("$$", "\ue030").replace("$(", "\ue030(")
    return expanded(kept, known).translate(_BACK).replace("\ue030", "$")


def _of_service(name: str, service: Tree, configs: Tree, read: Read, beside: Beside) -> list[Launch | Broken]:
    deploy = mapping(service.get("deploy"))
    replicas = count_of(deploy.get("replicas")) or count_of(service.get("scale")) or 1
    number, devices = _gpus(service)
    profiles = service.get("profiles")
    # Of profiles one is usually chosen; whoever names a GPU means that one.
    place = "" if devices or not isinstance(profiles, list) else " or ".join(map(str, profiles))
    mounts = dict(_mounts(service))
    try:
        starts = _starts(service, mounts, read)
    except KvplanError as error:
        return [Broken(name, error)]
    held = {**_held(service, configs, read), **_mounted(mounts, starts, read)}
    starts = [
        replace(
            one, files=(*one.files, *held.items()), devices=one.devices or devices, gpus=one.gpus or number,
            names=tuple(_names(one, mounts)), here=_sees_gpus(service), machine=place,
        )
        for one in starts
    ]  # fmt: skip
    notes = (
        (f"only with the profile {' or '.join(map(str, profiles))}",) if isinstance(profiles, list) else ()
    )
    return of_starts(
        starts, beside._replace(name=name), extra=Extra(replicas=replicas, notes=notes), together=True
    )


def _starts(service: Tree, mounts: Mapping[str, str], read: Read) -> list[Start]:
    image = service.get("image")
    image = image if isinstance(image, str) else None
    entry, command = service.get("entrypoint"), service.get("command")
    environment, missing = _environment(service, read)
    build = service.get("build")
    if build is not None:
        context = build if isinstance(build, str) else str(mapping(build).get("context", "."))
        path = PurePosixPath(context) / str(mapping(build).get("dockerfile", "Dockerfile"))
        made = build_of(read(str(path)) or "", mapping(build).get("args"))
        environment = {**made.environment, **environment}
        image = made.image or image
        if entry is None and made.entry:
            entry, command = [*made.entry], command if command is not None else [*made.command]
        elif entry is None and command is None:
            command = [*made.command]
    words = [*_words(entry), *_words(command)]
    if not words and (image is None or not environment):
        return []
    starts = starts_of(words, environment, None if entry is not None else image)
    starts = starts or starts_of_script(words, environment, read, mounts)
    return [replace(with_image(one, image), missing=(*one.missing, *missing)) for one in starts]


def _words(given: object) -> list[str]:
    if isinstance(given, str):
        return split_words(given)
    return [_text(one) for one in given] if isinstance(given, (list, tuple)) else []


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _environment(service: Tree, read: Read) -> tuple[dict[str, str], list[str]]:
    """(variables of ``env_file`` and ``environment``, files that are not here)."""
    given = service.get("env_file")
    found: dict[str, str] = {}
    missing: list[str] = []
    for one in given if isinstance(given, list) else [given]:
        path = mapping(one).get("path") if isinstance(one, dict) else one
        if isinstance(path, str):
            text = read(path)
            missing += [path] if text is None else []
            found.update(variables_in(text or ""))
    own = service.get("environment")
    if isinstance(own, dict):
        own = [f"{name}={_text(one)}" for name, one in own.items() if one is not None]
    rows = [one.partition("=") for one in own if isinstance(one, str)] if isinstance(own, list) else []
    return {**found, **{name: text for name, equals, text in rows if equals}}, missing


def _gpus(service: Tree) -> tuple[int | None, tuple[str, ...]]:
    """(number, their ids) of ``gpus``, of reserved devices, of devices by name; no number for ``all``."""
    given = service.get("gpus")
    resources = mapping(mapping(service.get("deploy")).get("resources"))
    reserved = mapping(resources.get("reservations")).get("devices")
    if isinstance(given, (int, str)) and (count := count_of(given)):
        return count, first_devices(min(count, MOST_GPUS))
    for device in (*_mappings(given), *_mappings(reserved)):
        ids = device.get("device_ids")
        if isinstance(ids, (list, str)):
            named = [
                one.strip()
                for text in (ids if isinstance(ids, list) else [ids])
                for one in str(text).split(",")
            ]
            return (None, ()) if any(map(is_open, named)) else (len(named), tuple(named))
        if count := count_of(device.get("count")):
            return count, first_devices(min(count, MOST_GPUS))
    devices = service.get("devices")
    named = [
        str(one).rpartition("nvidia.com/gpu=")[2]
        for one in (devices if isinstance(devices, list) else ()) if "nvidia.com/gpu=" in str(one)
    ]  # fmt: skip
    return (len(named), tuple(named)) if named and "all" not in named else (None, ())


def _sees_gpus(service: Tree) -> bool:
    """Whether a service says that it is shown GPUs, and they are not Swarm's, which deals each out once."""
    reserved = mapping(mapping(mapping(service.get("deploy")).get("resources")).get("reservations"))
    said = service.get("gpus") or reserved.get("devices") or service.get("devices")
    return bool(said or service.get("runtime") == "nvidia") and not reserved.get("generic_resources")


def _mappings(given: object) -> list[Tree]:
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def _mounts(service: Tree) -> Iterator[tuple[str, str]]:
    """(path in the container, path here) of its volumes."""
    volumes = service.get("volumes")
    for one in volumes if isinstance(volumes, list) else ():
        if isinstance(one, dict):
            if isinstance(one.get("source"), str) and isinstance(one.get("target"), str):
                yield one["target"].rstrip("/"), one["source"].rstrip("/")
        elif isinstance(one, str):
            source, colon, rest = re.sub(r"(?<=^[A-Za-z]):(?=[\\/])", "\ue031", one).partition(":")
            if colon:
                yield rest.partition(":")[0].rstrip("/"), source.replace("\ue031", ":").rstrip("/")


def _names(start: Start, mounts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names of a folder that is mounted where the model is said to lie."""
    for word in start.words:
        path = word.rpartition("=")[2].rstrip("/")
        if path.startswith("/") and path in mounts:
            source = shown(mounts[path])
            yield PurePosixPath(source).name, f"as {source} is called, which is mounted there"


def _held(service: Tree, configs: Tree, read: Read) -> dict[str, str]:
    """Path in the container → text, of the service's ``configs``."""
    found: dict[str, str] = {}
    given = service.get("configs")
    for one in given if isinstance(given, list) else ():
        name = str(mapping(one).get("source", one))
        config = mapping(configs.get(name))
        text = config.get("content") or (read(str(config.get("file"))) if "file" in config else None)
        if isinstance(text, str):
            found[str(mapping(one).get("target", f"/{name}"))] = text
    return found


def _mounted(mounts: Mapping[str, str], starts: Iterable[Start], read: Read) -> dict[str, str]:
    """Path in the container → text, of the files that its words name and that lie beside."""
    found: dict[str, str] = {}
    for word in (word.rpartition("=")[2] for one in starts for word in one.words):
        for target, source in mounts.items():
            if word.startswith("/") and (word == target or word.startswith(target + "/")):
                text = read(source + word[len(target) :])
                if text is not None:
                    found[word] = text
    return found
