"""YAML as other tools take it: anchors, merge keys, tags and ``yes`` are read; nothing in it is run.

Plans are read strictly (`kvplan.files.yaml`); a Compose file or a chart is not ours to be strict about.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.files.json_input import check_text, read_limited
from kvplan.files.yaml.marks import Source, Span
from kvplan.masking import remember

MAX_VALUES = 200_000
"""Of one file, with everything that aliases repeat."""
MAX_DEPTH = 100
_PLACEHOLDER = "{}"


def load_loose_file(path: Path) -> list[object]:
    """The documents of a file. Raises KvplanError(bad-yaml | yaml-too-large | no-such-file …)."""
    return load_loose(read_limited(path), name=str(path))


def load_loose(content: bytes | str, *, name: str) -> list[Any]:
    """The documents of a text, plain data only. Raises KvplanError(bad-yaml | yaml-too-large)."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        """Tags of others (``!Ref``) give the value that they stand before. A key is the text that it is
        written as (JSON's keys are texts, so ``on`` or ``8000`` reach an operator so), a mapping as a key (a
        placeholder that was not filled in: ``{{TOKEN}}``) one too."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, object]:
            if isinstance(node, yaml.MappingNode):
                self.flatten_mapping(node)
            return {
                str(key.value) if isinstance(key, yaml.ScalarNode) else _PLACEHOLDER:
                self.construct_object(value, deep=deep)
                for key, value in node.value
            }  # fmt: skip

    def untagged(loader: Any, suffix: str, node: Any) -> object:
        del suffix
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)

    Loader.add_multi_constructor("", untagged)
    if isinstance(content, bytes):
        check_text(content, name)
    text = "" if isinstance(content, bytes) else content
    try:
        if isinstance(content, bytes):
            text = content.decode("utf-8-sig")
        remember(text)
        documents = list(yaml.load_all(text, Loader))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, TypeError, RecursionError) as error:
        raise _no_yaml(error, name, text) from error
    left = [MAX_VALUES]
    for document in documents:
        _count(document, left, 0, name)
    return documents


def _no_yaml(error: Exception, name: str, text: str) -> KvplanError:
    """The error with its place; the parser's own words quote nothing, its excerpt (which may) is left out."""
    place = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None)
    said = " ".join(str(problem).split())[:200] if problem else "a value cannot be read"
    where = None
    if place is not None:
        span = Span(place.line, place.column, place.line, place.column + 1)
        where = Source(name, text).place(span)
    return KvplanError("bad-yaml", f"{name} is no YAML: {said}", where=where)


def _count(value: object, left: list[int], depth: int, name: str) -> None:
    left[0] -= 1
    if left[0] < 0 or depth > MAX_DEPTH:
        raise KvplanError("yaml-too-large", f"{name} holds more than a manifest does")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _count(one, left, depth + 1, name)
