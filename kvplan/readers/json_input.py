"""JSON from outside: size, depth and duplicate keys are checked before anything is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.units import MIB

MAX_BYTES = 16 * MIB
MAX_DEPTH = 100


def read_limited(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a file that is a file and not larger than the limit. Raises KvplanError(no-such-file | …)."""
    try:
        if not path.is_file():
            raise KvplanError("no-such-file", f"{path} is not a file" if path.exists() else f"{path} does not exist")
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise KvplanError("unreadable-file", f"{path}: {error.strerror or error}") from error
    if len(data) > limit:
        raise KvplanError(
            "file-too-large",
            f"{path} is larger than {limit // MIB} MiB",
            help="a config.json is a few kilobytes: is this the right file?",
        )
    return data


def parse_json(data: bytes, *, name: str) -> dict[str, Any]:
    """A JSON object. Refuses duplicate keys, NaN and infinities, deep nesting, other encodings than UTF-8."""
    if len(data) > MAX_BYTES:
        raise KvplanError("file-too-large", f"{name} is larger than {MAX_BYTES // MIB} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise KvplanError("bad-json", f"{name} is not UTF-8: byte {error.start}") from error
    _check_depth(text, name)
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if text.splitlines() else ""
        start = max(0, error.colno - 40)
        where = f"{name}:{error.lineno}:{error.colno}\n{line[start : start + 79]}\n{' ' * (error.colno - 1 - start)}^"
        raise KvplanError("bad-json", f"{name} is not JSON: {error.msg}", where=where) from error
    except (ValueError, RecursionError) as error:
        raise KvplanError("bad-json", f"{name}: {str(error)[:200] or 'too deeply nested'}") from error
    if not isinstance(value, dict):
        raise KvplanError("bad-json", f"{name} is a JSON {type(value).__name__}, not an object")
    return value


def _check_depth(text: str, name: str) -> None:
    depth = deepest = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > MAX_DEPTH:
                raise KvplanError("bad-json", f"{name} is nested more than {MAX_DEPTH} deep")
        elif char in "]}":
            depth -= 1


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} stands twice in one object")
            seen.add(key)
    return made


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")
