"""JSON from outside: kind of file, size, encoding, depth and duplicate keys are checked before it is used."""

from __future__ import annotations

import json
import math
import stat
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from kvplan.errors import KvplanError, Mark
from kvplan.units import MIB

MAX_BYTES = 16 * MIB
MAX_DEPTH = 100
# A config has a few hundred values; the bound keeps what a parsed file can take in memory near 100 MB.
MAX_VALUES = 500_000
# More digits than any count of bytes has; also keeps int() far from quadratic time.
_MAX_DIGITS = 60
_SHOWN = 79

_KINDS = (
    (stat.S_ISDIR, "is a directory"),
    (stat.S_ISFIFO, "is a pipe"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


def read_limited(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file that is not larger than the limit; pipes and devices are not opened.

    Raises KvplanError: no-such-file, not-a-file, unreadable-file, file-too-large.
    """
    if regular_size(path) > limit:
        raise _too_large(str(path), limit)
    try:
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise KvplanError("unreadable-file", f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > limit:
        raise _too_large(str(path), limit)
    return data


def regular_size(path: Path) -> int:
    """The size of a regular file; what would make a reader wait (a pipe, a device) is refused unopened.

    Raises KvplanError: no-such-file, not-a-file, unreadable-file.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise KvplanError("no-such-file", f"{path} does not exist") from error
    except OSError as error:
        raise KvplanError("unreadable-file", f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise KvplanError("no-such-file", f"{str(path)!r} is not a file name") from error
    for is_kind, words in _KINDS:
        if is_kind(status.st_mode):
            raise KvplanError("not-a-file", f"{path} {words}, not a file", help=_kind_help(words))
    return status.st_size


def read_stream(stream: BinaryIO, *, name: str, limit: int = MAX_BYTES) -> bytes:
    """All that a stream holds, up to the limit. Raises KvplanError(file-too-large | unreadable-file)."""
    try:
        data = stream.read(limit + 1)
    except OSError as error:
        raise KvplanError("unreadable-file", f"{name} cannot be read: {error.strerror or error}") from error
    if len(data) > limit:
        raise _too_large(name, limit)
    return data


STDIN, SHOWN_STDIN = "-", "<stdin>"
"""Standard input as it is typed, and as messages call it."""


def read_standard_input() -> bytes:
    """All of standard input, read once: a plan is looked for in it before a model is. Raises as
    `read_stream` and `check_text`."""
    standard_input()
    return _content(sys.stdin)


@lru_cache(maxsize=1)
def _content(stdin: TextIO) -> bytes:
    content = read_stream(stdin.buffer, name=SHOWN_STDIN)
    check_text(content, SHOWN_STDIN)
    return content


def standard_input() -> BinaryIO:
    """The bytes of standard input. Raises KvplanError(no-such-file) where it is closed."""
    if sys.stdin is None or sys.stdin.closed:
        raise KvplanError("no-such-file", "standard input is closed", help="give the name of a file")
    return sys.stdin.buffer


def parse_json(
    data: bytes, *, name: str, limit: int = MAX_BYTES, most: int = MAX_VALUES
) -> dict[str, Any]:  # fmt: skip
    """A JSON object in UTF-8 (a byte order mark is passed over).

    Refused: more than ``limit`` bytes or ``most`` values, nesting deeper than MAX_DEPTH, a key twice in one
    object, NaN, numbers that overflow to infinity, whole numbers of more than 60 digits, half a surrogate
    pair. Raises KvplanError(bad-json | file-too-large); time and memory are bounded.
    """
    value = _value(data, name, limit, most)
    if not isinstance(value, dict):
        raise _not_a(value, name, "an object")
    return value


def parse_json_list(data: bytes, *, name: str, limit: int = MAX_BYTES, most: int = MAX_VALUES) -> list[Any]:
    """The same for a JSON array."""
    value = _value(data, name, limit, most)
    if not isinstance(value, list):
        raise _not_a(value, name, "an array")
    return value


def _not_a(value: object, name: str, kind: str) -> KvplanError:
    what = "null" if value is None else type(value).__name__
    return KvplanError("bad-json", f"{name} is a JSON {what}, not {kind}")


def _value(data: bytes, name: str, limit: int, most: int) -> Any:
    if len(data) > limit:
        raise _too_large(name, limit)
    text = _decode(data, name)
    values = text.count(",") + text.count("[") + text.count("{")
    if values > most:
        raise KvplanError(
            "bad-json", f"{name} has {values:,} values or more", help="a config.json has a few hundred"
        )
    try:
        value = json.loads(
            text,
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_int=_whole,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        where = (Mark(name, error.lineno, error.colno, error.colno + 1), _caret(text, error.pos))
        raise KvplanError(
            "bad-json", f"{name} is not JSON: {error.msg}", where=where, help=_what_else(data)
        ) from error
    except RecursionError as error:
        raise _too_deep(name) from error
    except ValueError as error:
        raise KvplanError("bad-json", f"{name}: {error}") from error
    if not isinstance(value, dict | list):
        return value
    _check_depth(value, name)
    if "\\ud" in text.lower():
        _check_surrogates(value, name)
    return value


def check_text(data: bytes, name: str) -> None:
    """Raises KvplanError(not-text) for what is no text by its beginning: packed, or with NUL bytes that no
    UTF-16 has so."""
    head = data[:_HEAD_BYTES]
    wide = head[:2] in _WIDE or (len(head) > 1 and (head[0] == 0) != (head[1] == 0))
    if head.startswith(_PACKED) or (b"\0" in head and not wide):
        raise KvplanError("not-text", f"{name} is not a text file", help=_what_else(data))


_HEAD_BYTES = 8192
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
_WIDE = (b"\xff\xfe", b"\xfe\xff")


def _decode(data: bytes, name: str) -> str:
    check_text(data, name)
    if not data.strip():
        raise KvplanError("bad-json", f"{name} is empty", help=_what_else(data))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise KvplanError(
            "bad-json", f"{name} is not UTF-8: byte {error.start}", help=_what_else(data)
        ) from error
    if "\0" in text:
        raise KvplanError("bad-json", f"{name} has NUL bytes: it is not JSON text", help=_what_else(data))
    return text


def _what_else(data: bytes) -> tuple[str, ...]:
    """The real format of bytes that are not JSON, as far as their beginning shows it."""
    start = data[:200].lstrip().lower()
    if data[:2] in _WIDE or data[1:2] == b"\0" or data[:1] == b"\0":
        return ("this looks like UTF-16 or UTF-32: save the file as UTF-8",)
    if start.startswith(b"version https://git-lfs"):
        return ("this is a Git LFS pointer: run `git lfs pull` to get the file itself",)
    if start.startswith((b"<!doctype", b"<html")):
        return ("this is a web page: download the raw file",)
    if data[:4] == b"GGUF":
        return ("this is a GGUF file: give it a name that ends in .gguf",)
    if data.startswith(_PACKED) or data[257:262] == b"ustar":
        return ("this is a compressed file: unpack it first",)
    return ()


def _caret(text: str, position: int) -> str:
    """The line around a position and a caret under it, at most 79 columns."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    above = text[:start].rstrip("\r\n").rpartition("\n")[2] if start < 10**6 else ""
    line = text[start : end if end >= 0 else len(text)] if position - start < 10**6 else ""
    from kvplan.masking import masked  # only where something went wrong

    line = masked(line, above)
    column = position - start
    first = max(0, column - 40)
    shown = "".join(char if char.isprintable() else " " for char in line[first : first + _SHOWN])
    return f"{shown}\n{' ' * (column - first)}^" if shown.strip() else ""


def _check_depth(value: dict[str, Any] | list[Any], name: str) -> None:
    """Walks level by level, so that no recursion limit matters."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent) if isinstance(child, dict | list)]
        if not level:
            return
    raise _too_deep(name)


def _check_surrogates(value: dict[str, Any] | list[Any], name: str) -> None:
    """Half a surrogate pair is a text that no terminal and no UTF-8 file can hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise KvplanError("bad-json", f"{name} has half a surrogate pair in a text") from error


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key[:60]!r} stands twice in one object")
            seen.add(key)
    return made


def _no_constant(text: str) -> object:
    # Published config.json files hold infinities (Nemotron-H: "time_step_limit": [0.0, Infinity]), because
    # Python's json writes them; a key that needs a whole number refuses one. NaN has no such excuse.
    if text in ("Infinity", "-Infinity"):
        return float(text)
    raise ValueError(f"{text} is not a JSON number")


def _whole(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"{text[:20]}… is a number of {len(text):,} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def _too_deep(name: str) -> KvplanError:
    return KvplanError("bad-json", f"{name} is nested more than {MAX_DEPTH} deep")


def _too_large(name: str, limit: int) -> KvplanError:
    return KvplanError(
        "file-too-large",
        f"{name} is larger than {limit // MIB} MiB",
        help="a config.json is a few kilobytes: is this the right file?",
    )


def _kind_help(words: str) -> tuple[str, ...]:
    return ("to read from a pipe, give - and send it to standard input",) if "pipe" in words else ()
