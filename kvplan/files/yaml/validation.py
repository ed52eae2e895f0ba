"""From a pydantic `ValidationError` to errors that point into the YAML file.

pydantic is not imported here: its error and model classes arrive as arguments.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Union

from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.yaml.marks import Key, Located, Node, Path, path_text
from kvplan.record import Json

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_SHOWN = 8
_PLAIN = {
    "bool_type": "this must be true or false",
    "dict_type": "this must hold `key: value` lines",
    "float_type": "this must be a number",
    "greater_than": "this must be greater than {gt}",
    "greater_than_equal": "this must be at least {ge}",
    "int_type": "this must be a whole number",
    "less_than_equal": "this must be at most {le}",
    "list_type": "this must be a list",
    "literal_error": "this must be {expected}",
    "model_type": "this must hold `key: value` lines",
    "string_pattern_mismatch": "this is not of the form {pattern}",
    "string_too_short": "this must not be empty",
    "string_type": "this must be text",
    "too_short": "this must hold at least {min_length}",
}
"""pydantic's type of error → what people are told."""
_MUST = "this must be "
_Item = tuple[tuple[int, int], Path, Path, Json]
"""Line and column; the path that the file has, and what of the error's path it has not; pydantic's error."""
MAX_MISTAKES = 19


def explain_validation(
    error: ValidationError,
    located: Located,
    *,
    model: type[BaseModel] | None = None,
    code: str = "invalid-field",
) -> list[KvplanError]:
    """One `KvplanError` for each of the first things that pydantic found, in file order.

    Args:
        error: what `model_validate(located.data)` raised.
        located: the data that was validated, with its positions.
        model: the class that was validated; gives "did you mean" its candidates.
        code: the code of errors about values; unknown keys have ``unknown-key``, absent ones ``missing-key``.
    """
    found: list[_Item] = []
    for item in error.errors(include_url=False):
        path, rest = _walk(located, item["loc"])
        node = located.node(path)
        span = node.span if node is not None else located.root.span
        found.append(((span.line, span.column), path, rest, item))
    found.sort(key=lambda entry: entry[0])
    found = _unions_said_once(found)
    # To explain one costs a look at its neighbours: of thousands of mistakes nobody reads the last.
    shown = [_explain(item, path, rest, located, model, code) for _, path, rest, item in found[:MAX_MISTAKES]]
    if len(found) > MAX_MISTAKES:
        more = f"{len(found) - MAX_MISTAKES:,} more mistakes follow"
        shown.append(located.error("more-mistakes", more, found[MAX_MISTAKES][1], help="mend these first"))
    return shown


def _unions_said_once(found: Sequence[_Item]) -> list[_Item]:
    """A value that is none of several simple types is one mistake: "this must be a whole number or text"."""
    said: dict[Path, _Item] = {}
    kept: list[_Item] = []
    for item in found:
        span, path, rest, error = item
        simple = _PLAIN.get(error["type"], "").startswith(_MUST) and bool(rest)
        if simple and path in said:
            first = said[path][3]
            words = f"{first['words']} or {_PLAIN[error['type']].removeprefix(_MUST)}"
            kept[kept.index(said[path])] = said[path] = (span, path, rest, {**first, "words": words})
            continue
        if simple:
            item = said[path] = (span, path, rest, {**error, "words": _PLAIN[error["type"]]})
        kept.append(item)
    return kept


def typos_first(errors: Sequence[KvplanError]) -> list[KvplanError]:
    """The errors with unknown keys before the rest: a key that is missing is often one that is misspelt."""
    return sorted(errors, key=lambda one: one.code != "unknown-key")


def combine(errors: Sequence[KvplanError]) -> KvplanError:
    """The errors as one: the first in full, the others as lines under it."""
    first, *others = errors
    if not others:
        return first
    lines = [f"also: {other.message}" + _place(other) for other in others[:_SHOWN]]
    if len(others) > _SHOWN:
        lines.append(f"and {len(others) - _SHOWN} more")
    return KvplanError(
        first.code, first.message, where=first.places, detail=(*first.detail, *lines), help=first.help
    )


def unknown_key(located: Located, path: Path, known: Iterable[str]) -> KvplanError:
    """The error for a key that nobody reads, with the nearest known one."""
    candidates = sorted(known)
    near = did_you_mean(str(path[-1]), candidates)
    helps = [f"did you mean `{near}`?"] if near else []
    if candidates and not near:
        helps.append("known keys here: " + ", ".join(candidates))
    inside = f" in `{path_text(path[:-1])}`" if len(path) > 1 else ""
    return located.error(
        "unknown-key",
        f"unknown key `{path[-1]}`{inside}",
        path,
        at_key=True,
        help=helps or ["remove the key"],
    )


def _explain(
    item: Json,
    path: Path,
    rest: Path,
    located: Located,
    model: type[BaseModel] | None,
    code: str,
) -> KvplanError:
    kind = item["type"]
    if kind == "missing":
        name = path_text((*path, *rest[-1:]))
        wanted = (*path, *rest)[-1]  # a key that stands there without a value is missing too
        return located.error("missing-key", f"the key `{name}` is missing", path, help=f"add `{wanted}:`")
    if kind == "extra_forbidden":
        node = located.node(path[:-1])
        present = set(node.children) if node is not None else set()
        known = _fields_at(model, item["loc"][:-1]) - {k for k in present if isinstance(k, str)}
        return unknown_key(located, path, known)
    name = path_text(path)
    text = located.text(path)
    context = item.get("ctx") or {}
    if kind == "union_tag_invalid":
        return _unknown_tag(located, path, context)
    plain = item.get("words") or _PLAIN.get(kind)
    message = str(item["msg"]) if plain is None else plain.format(**context)
    message = message[:1].lower() + message[1:]
    helps: list[str] = [str(line) for line in context.get("help", ())]
    if kind == "string_type" and text is not None and isinstance(item.get("input"), int | float):
        helps.append(f'put it in quotes: "{text}"')
    if kind in {"literal_error", "enum"} and isinstance(text, str):
        near = did_you_mean(text, _quoted_words(message))
        if near:
            helps.append(f"did you mean `{near}`?")
    at_key = bool(rest) and rest[-1] == "[key]"
    subject = f"`{name}`: " if name else ""
    return located.error(code, f"{subject}{message}", path, at_key=at_key, help=helps)


def _unknown_tag(located: Located, path: Path, context: Json) -> KvplanError:
    """The word that says which of several forms an entry has (``family``) is none that there is."""
    name, tag = str(context["discriminator"]).strip("'"), str(context["tag"])
    known = _quoted_words(str(context["expected_tags"]))
    near = did_you_mean(tag, known)
    return located.error(
        f"unknown-{name}",
        f"unknown {name} `{tag}`",
        (*path, name),
        help=f"did you mean {near}?" if near else "known: " + ", ".join(known),
    )


def _walk(located: Located, loc: Sequence[Key]) -> tuple[Path, Path]:
    """Split a pydantic `loc` into the path that exists in the file and what is left of it.

    Parts that name no value (the tag of a union, ``[key]``) are passed over.
    """
    node: Node = located.root
    path: list[Key] = []
    rest: list[Key] = []
    for part in loc:
        child = node.children.get(part)
        if child is None:
            rest.append(part)
        else:
            path.append(part)
            rest.clear()
            node = child
    return tuple(path), tuple(rest)


def _fields_at(model: type[BaseModel] | None, loc: Sequence[Key]) -> set[str]:
    """The keys that the models standing at `loc` take; all members of a union count."""
    models = {model} if model is not None else set()
    for part in loc:
        deeper: set[type[BaseModel]] = set()
        for one in models:
            for name, info in one.model_fields.items():
                if part in {name, info.alias}:
                    deeper |= _models_in(info.annotation)
        models = deeper or models
    return {info.alias or name for one in models for name, info in one.model_fields.items()}


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    if hasattr(annotation, "model_fields"):
        return {annotation}
    origin = typing.get_origin(annotation)
    if origin is None and not isinstance(annotation, UnionType) and annotation is not Union:
        return set()
    return set().union(*(_models_in(arg) for arg in typing.get_args(annotation)))


def _quoted_words(message: str) -> list[str]:
    """The words between single quotes in pydantic's "Input should be 'a', 'b' or 'c'"."""
    return message.split("'")[1::2]


def _place(error: KvplanError) -> str:
    return f" ({error.where.splitlines()[0]})" if error.where else ""
