"""Services of a Compose file (compose-spec/compose-spec spec.md, docker/compose)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvplan.errors import KvplanError
from kvplan.files.launch.command import launch_of
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.starts import Start, split_words, starts_of, with_image
from kvplan.files.launch.trees import count_of, mapping
from kvplan.record import replace


def is_compose(document: Mapping[str, Any]) -> bool:
    """Whether a mapping has services, and is no object of Kubernetes."""
    services = mapping(document.get("services"))
    return (
        bool(services) and "kind" not in document and all(isinstance(one, dict) for one in services.values())
    )


def services_of(document: Mapping[str, Any], beside: Beside) -> Iterator[Launch | Broken]:
    """The servers that the services start."""
    for name, service in mapping(document.get("services")).items():
        yield from _of_service(str(name), mapping(service), beside)


def _of_service(name: str, service: Mapping[str, Any], beside: Beside) -> list[Launch] | list[Broken]:
    replicas = count_of(mapping(service.get("deploy")).get("replicas")) or 1
    try:
        found = [
            launch_of(start, name=name, engine=beside.engine, beside=beside.folder)
            for start in _starts(service)
        ]
    except KvplanError as error:
        return [Broken(name, error)]
    return [replace(one, gpus=one.gpus or _gpus(service), replicas=replicas) for one in found]


def _starts(service: Mapping[str, Any]) -> list[Start]:
    image = service.get("image")
    image = image if isinstance(image, str) else None
    words = [word for key in ("entrypoint", "command") for word in _words(service.get(key))]
    environment = _environment(service.get("environment"))
    if not words and (image is None or not environment):
        return []
    replaced = service.get("entrypoint") is not None
    return [with_image(one, image) for one in starts_of(words, environment, None if replaced else image)]


def _words(given: object) -> list[str]:
    if isinstance(given, str):
        return split_words(given)
    return [_text(one) for one in given] if isinstance(given, list) else []


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _environment(given: object) -> dict[str, str]:
    """A mapping, or a list of ``NAME=value``."""
    if isinstance(given, dict):
        return {str(name): _text(one) for name, one in given.items() if not isinstance(one, (dict, list))}
    entries = [one.partition("=") for one in given if isinstance(one, str)] if isinstance(given, list) else []
    return {name: text for name, equals, text in entries if equals}


def _gpus(service: Mapping[str, Any]) -> int | None:
    reserved = mapping(mapping(mapping(service.get("deploy")).get("resources")).get("reservations"))
    devices = reserved.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if count_of(mapping(device).get("count")):
            return count_of(device["count"])
        if isinstance(mapping(device).get("device_ids"), list):
            return len(device["device_ids"])
    return None
