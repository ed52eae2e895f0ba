"""Shared by the readers of charts and custom resources: the server that keys name, and its words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvplan.engines.launch import server_in_charts
from kvplan.files.launch.starts import Start, split_words


class Extra(NamedTuple):
    """Further facts of a manifest: name, number, kind and number of GPUs; words with several readings."""

    name: str | None = None
    replicas: int | None = None
    gpu: str | None = None
    gpus: int | None = None
    notes: tuple[str, ...] = ()


Found = list[tuple[Start, Extra]]
_SIZES = {
    "tensor": "--tensor-parallel-size",
    "data": "--data-parallel-size",
    "pipeline": "--pipeline-parallel-size",
}


def started(model: object, sizes: object, args: object, env: object, image: object = None) -> Start | None:
    """The server that charts start, with a model and parallelism named in keys. None without a model."""
    if not isinstance(model, str) or not model.strip():
        return None
    words = ["--model", plain(model)]
    for key, flag in _SIZES.items():
        number = sizes.get(key) if isinstance(sizes, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and number > 1:
            words += [flag, str(number)]
    if isinstance(sizes, dict) and sizes.get("expert") is True:
        words.append("--enable-expert-parallel")
    words += words_of(args)
    return Start(
        server_in_charts(), tuple(words), tuple(pairs(env)), image if isinstance(image, str) else None
    )


def plain(uri: str) -> str:
    """A model's address without its scheme."""
    return uri.removeprefix("hf://").removeprefix("pvc://").removeprefix("oci://")


def words_of(args: object) -> list[str]:
    """The words of a list, or of a text as a shell takes it apart."""
    if isinstance(args, str):
        return split_words(args)
    return [str(one) for one in args if one is not None] if isinstance(args, list) else []


def pairs(env: object) -> list[tuple[str, str]]:
    """Variables of a mapping, or of Kubernetes' list."""
    if isinstance(env, dict):
        return [(str(name), str(value)) for name, value in env.items()]
    entries = env if isinstance(env, list) else []
    return [
        (str(one["name"]), str(one["value"]))
        for one in entries
        if isinstance(one, dict) and "name" in one and isinstance(one.get("value"), (str, int, float))
    ]


def mapping(value: object) -> dict[str, Any]:
    """The value where it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def container_of(template: object, name: str = "main") -> dict[str, object]:
    """The container of a pod's template that runs the server."""
    entries = mapping(template).get("containers")
    found = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    named = [one for one in found if one.get("name") == name]
    return (named or found or [{}])[0]


def gpus_of(container: Mapping[str, Any]) -> int | None:
    """The GPUs that a container is limited to."""
    limits = mapping(mapping(container.get("resources")).get("limits"))
    return count_of(next((limits[key] for key in ("nvidia.com/gpu", "amd.com/gpu") if key in limits), None))


def count_of(value: object) -> int | None:
    """A whole number above 0, written as a number or a text."""
    text = str(value)
    return int(text) if not isinstance(value, bool) and text.isdigit() and int(text) > 0 else None


def words_of_keys(document: Mapping[str, object]) -> tuple[str, ...]:
    """The words of a command that say what the keys of an options file say."""
    words: list[str] = []
    for key, value in document.items():
        flag = "--" + str(key).replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is False:
            words.append("--no-" + flag[2:])
        elif isinstance(value, dict):
            words += [flag, json.dumps(value)]
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif value is not None:
            words += [flag, str(value)]
    return tuple(words)
