"""Tables of docs/plans.md: keys of plan and fleet files, the engines' flags, mistakes that are named."""

from __future__ import annotations

from typing import Any

from kvplan.checking.mistakes import MISTAKES
from kvplan.engines import ENGINES
from kvplan.files.plans.fleet import fleet_schema
from kvplan.files.plans.schema import plan_schema
from kvplan.plans.serve import flags_of

Rows = list[list[str]]


def key_rows(schema: dict[str, Any]) -> Rows:
    """Dotted key, what it takes, what it means, for every key of a schema."""
    return _rows(schema, schema["$defs"], "")


def plan_rows() -> Rows:
    return key_rows(plan_schema())


def fleet_rows() -> Rows:
    return key_rows(fleet_schema())


def _rows(model: dict[str, Any], definitions: dict[str, Any], path: str) -> Rows:
    rows: Rows = []
    for key, entry in model.get("properties", {}).items():
        name = f"{path}.{key}" if path else key
        inner = _inner(entry, definitions)
        if not (inner and _only_mapping(entry)):
            rows.append([f"`{name}`", _takes(entry, definitions), entry.get("description", "")])
        for one in inner:
            mark = "[]" if "items" in entry else ""
            rows += _rows(one, definitions, name + mark)
    return rows


def _options(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """What a value may be, without null; unions within unions are one."""
    union = entry.get("anyOf", entry.get("oneOf"))
    if union is None:
        return [] if entry.get("type") == "null" else [entry]
    return [one for inner in union for one in _options(inner)]


def _only_mapping(entry: dict[str, Any]) -> bool:
    options = _options(entry)
    return len(options) == 1 and "$ref" in options[0]


def _inner(entry: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """The models that stand in a value, or in the entries of its list."""
    listed = [one for option in _options(entry) if "items" in option for one in _options(option["items"])]
    names = [one["$ref"].rpartition("/")[2] for one in (*_options(entry), *listed) if "$ref" in one]
    return [definitions[name] for name in dict.fromkeys(names)]


def _takes(entry: dict[str, Any], definitions: dict[str, Any]) -> str:
    words: list[str] = []
    for one in _options(entry):
        if "enum" in one:
            words += [f"`{word}`" for word in one["enum"]]
        elif "const" in one:
            words.append(f"`{one['const']}`")
        elif "$ref" in one:
            words.append("a mapping")
        else:
            kinds = one.get("type", "anything")
            words += [kinds] if isinstance(kinds, str) else kinds
    names = {"object": "a mapping", "array": "a list", "integer": "whole number", "string": "text"}
    return ", ".join(dict.fromkeys(names.get(word, word) for word in words))


def flag_rows() -> Rows:
    """Engine → the flags that `serve:` takes."""
    rows = []
    for engine in ENGINES:
        flags = flags_of(engine).flags.values()
        deciding = ", ".join(f"`{flag.name}`" for flag in flags if flag.setting is not None)
        rows.append(
            [f"`{engine}`", deciding, ", ".join(f"`{flag.name}`" for flag in flags if flag.setting is None)]
        )
    return rows


def mistake_rows() -> Rows:
    rows = [[f"`{code}`", " ".join((find.__doc__ or "").split())] for code, find in MISTAKES.items()]
    return [*rows, ["`gb-for-gib`", "GB in the place of GiB."]]
