"""Values of YAML as manifests have them: mappings, lists, texts, numbers, variables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Tree = Mapping[str, Any]
"""A mapping of a manifest."""
OwnTree = dict[str, Any]
"""One that may be changed."""
NOTHING: Tree = {}


def image_of(given: object) -> str | None:
    """An image's name; of charts also ``{registry, repository, tag}``."""
    if isinstance(given, dict):
        name = given.get("repository") or given.get("name")
        if not name:
            return None
        tag = given.get("tag") or given.get("version")
        return f"{name}:{tag}" if tag else str(name)
    return given if isinstance(given, str) and given else None


def text_of(value: object) -> str:
    """A word as YAML's readers in other tools give it to a process."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def pairs(env: object) -> list[tuple[str, str]]:
    """Variables of a mapping, or of Kubernetes' list."""
    if isinstance(env, dict):
        return [(str(name), text_of(value)) for name, value in env.items() if not isinstance(value, dict)]
    entries = env if isinstance(env, list) else []
    return [
        (str(one["name"]), text_of(one["value"]))
        for one in entries
        if isinstance(one, dict) and "name" in one and isinstance(one.get("value"), (str, int, float, bool))
    ]


def mapping(value: object) -> OwnTree:
    """The value where it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def entries_of(value: object) -> list[OwnTree]:
    """The mappings of a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def container_of(template: object, name: str = "main") -> OwnTree:
    """The container of a pod's template that runs the server."""
    found = entries_of(mapping(template).get("containers"))
    named = [one for one in found if one.get("name") == name]
    return (named or found or [{}])[0]


def count_of(value: object) -> int | None:
    """A whole number above 0, written as a number or a text."""
    text = str(value)
    small = not isinstance(value, bool) and text.isdecimal() and text.isascii() and len(text) < 7
    return int(text) or None if small else None


def name_of(document: Tree) -> str | None:
    """``metadata.name``, or what a name is made from."""
    metadata = mapping(document.get("metadata"))
    name = metadata.get("name") or metadata.get("generateName")
    return str(name).rstrip("-") if isinstance(name, str) and name else None


def unknown_keys(given: Tree, known: str, head: str) -> tuple[str, ...]:
    """``head.key value`` of every key that a reader has no rule for. known: the others, in one text."""
    left = (key for key in given if str(key) not in known.split())
    return tuple(f"{head}.{key} {_short(given[key])}" for key in left if given[key] not in (None, "", {}, []))


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:59] + "…"


def mappings_in(value: object) -> Iterator[OwnTree]:
    """Every mapping in a value, the outer ones first."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings_in(one)


def merged(base: Tree, over: Tree) -> OwnTree:
    """A mapping with another over it; lists whose entries have names are put together by these (a strategic
    merge patch), others are replaced."""
    found = dict(base)
    for key, value in over.items():
        old = found.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            found[key] = merged(old, value)
        elif _named(value) and _named(old):
            names = {one["name"]: one for one in entries_of(old)}
            for one in entries_of(value):
                names[one["name"]] = merged(names.get(one["name"], {}), one)
            found[key] = list(names.values())
        else:
            found[key] = value
    return found


def _named(value: object) -> bool:
    """Whether all entries of a list have names."""
    entries = entries_of(value)
    whole = isinstance(value, list) and len(entries) == len(value) > 0
    return whole and all(isinstance(one.get("name"), str) for one in entries)


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
            words += [flag, json.dumps(value, default=str)]
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif value is not None:
            words += [flag, str(value)]
    return tuple(words)
