"""The JSON Schema of an answer, out of the dataclass that it is.

A property of the schema is a name of `kvplan.record.json_names`; its type is the annotation of the field, or
of the Python property that stands in its place; its description the line under the field, or the docstring.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from kvplan.record import json_attribute, json_names

_WORDS = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}
_MADE_OF = "made of"
"""The key under which a definition keeps its class while the schema is made."""
_EXACT = {
    "anyOf": [
        {"type": "integer"},
        {"items": {"type": "integer"}, "maxItems": 2, "minItems": 2, "type": "array"},
    ]
}


Schema = dict[str, Any]


def schema_of(kind: type[Any], title: str) -> Schema:
    """The JSON Schema of what `kvplan.record.dumped` makes of a record of this class."""
    defs: Schema = {}
    whole = _object(kind, defs)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {
            name: {key: part for key, part in defs[name].items() if key != _MADE_OF} for name in sorted(defs)
        },
        **whole,
        "title": title,
    }


def _object(kind: type[Any], defs: Schema) -> Schema:
    lines = field_docs(kind)
    types = get_type_hints(kind, include_extras=True)
    optional: tuple[str, ...] = getattr(kind, "_JSON_OPTIONAL", ())
    properties: Schema = {}
    for name in json_names(kind):
        attribute = json_attribute(kind, name)
        computed = inspect.getattr_static(kind, attribute, None)
        if isinstance(computed, property):
            assert computed.fget is not None
            types[attribute] = get_type_hints(computed.fget, include_extras=True)["return"]
            lines[attribute] = inspect.cleandoc(computed.fget.__doc__ or "")
        properties[name] = _of(types[attribute], defs)
        if said := lines.get(attribute) or lines.get(name):
            properties[name]["description"] = said
    return {
        "additionalProperties": False,
        **({"description": said} if (said := _first(ast.get_docstring(_source(kind)))) else {}),
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "type": "object",
    }


def _of(kind: Any, defs: Schema) -> Schema:
    """The schema of one annotation. KeyError: a type that no answer has."""
    if get_origin(kind) is not None:
        return _of_several(kind, defs)
    if kind is Any:
        return {}
    if kind is Fraction:
        return dict(_EXACT)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [one.value for one in kind], "type": "string"}
    if kind in _WORDS:
        return {"type": _WORDS[kind]}
    if isinstance(kind, type) and issubclass(kind, Mapping):  # whatever it is as a record, it is dumped so
        return {"additionalProperties": True, "type": "object"}
    if kind.__name__ not in defs:
        defs[kind.__name__] = {_MADE_OF: kind}  # its place, should it hold one of its own kind
        defs[kind.__name__] |= _object(kind, defs)
    elif defs[kind.__name__][_MADE_OF] is not kind:
        raise TypeError(f"two classes of one answer are named {kind.__name__}")
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _of_several(kind: Any, defs: Schema) -> Schema:
    """The schema of an annotation that is made of others: a union, a list, a mapping."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**_of(inner[0], defs), **dict(inner[1:])}
    if origin in (Union, UnionType):
        return {"anyOf": [_of(one, defs) for one in inner]}
    if origin is Literal:
        return (
            {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner), "type": _WORDS[type(inner[0])]}
        )
    if origin is tuple and (len(inner) < 2 or inner[1] is not Ellipsis):
        return {
            "maxItems": len(inner),
            "minItems": len(inner),
            "prefixItems": [_of(one, defs) for one in inner],
            "type": "array",
        }
    if origin in (tuple, list):
        return {"items": _of(inner[0], defs), "type": "array"}
    if origin in (dict, Mapping):
        return {"additionalProperties": _of(inner[1], defs) or True, "type": "object"}
    raise KeyError(kind)


def _source(kind: type[Any]) -> ast.ClassDef:
    tree = ast.parse(inspect.cleandoc(inspect.getsource(kind)))
    found = tree.body[0]
    assert isinstance(found, ast.ClassDef)
    return found


def field_docs(kind: type[object]) -> dict[str, str]:
    """The documentation under each field."""
    body = _source(kind).body
    return {
        field.target.id: " ".join(said.value.value.split())
        for field, said in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(said, ast.Expr)
        and isinstance(said.value, ast.Constant)
        and isinstance(said.value.value, str)
    }


def _first(text: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((text or "").strip().split("\n\n")[0].replace("``", "`").split())


ANSWERS = {
    "size": ("kvplan.results", "SizeResult", "size --json"),
    "compare": ("kvplan.comparison.results", "Comparison", "compare --json"),
    "planned": ("kvplan.planning.results", "PlanResult", "plan --json"),
    "check": ("kvplan.plans.findings", "CheckReport", "check --format json"),
    "simulate": ("kvplan.simulation.shown", "Simulation", "simulate --json"),
    "fits": ("kvplan.api.fitting", "FitResult", "fits --json"),
    "quality": ("kvplan.proof.numerics.results", "QualityResult", "quality --json"),
    "import": ("kvplan.api.launching", "Imported", "import --json"),
}
"""Answers whose JSON is described: name of the schema → module and class of the answer, the command."""


def answer_schema(name: str) -> Schema:
    """The JSON Schema of the answer of that name. Raises KeyError."""
    module, kind, command = ANSWERS[name]
    return schema_of(getattr(import_module(module), kind), f"kvplan {command}")
