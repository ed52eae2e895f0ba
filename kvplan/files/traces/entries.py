"""A trace file as entries: (line, keys and values), bounded in time and memory, gzip opened by the way.

JSON lines, CSV, Parquet (pyarrow, an extra), and one JSON object, or a list of them, that fills the whole
file. A file is read once, line by line.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from kvplan.errors import CannotRunHere, KvplanError, Mark
from kvplan.files.folders import is_folder
from kvplan.files.json_input import check_text, regular_size
from kvplan.named import NamedTuple
from kvplan.record import Json
from kvplan.units import GIB, MIB

MAX_BYTES = 4 * GIB
MAX_LINE = MIB
MAX_OBJECT = 64 * MIB
_PIECE = 4 * MIB
"""A line that holds a whole session."""
_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_SHOWN = 40

Entry = tuple[int, Json]


class Opened(NamedTuple):
    """head: the keys of the first entry, by which its format is known; entries: all of them."""

    kind: str
    head: frozenset[str]
    entries: Iterator[Entry]


def bad(name: str, number: int, what: str, ways: tuple[str, ...] = ()) -> KvplanError:
    """The error of one line of a trace."""
    where = Mark(name, number, 1, 2)
    return KvplanError("bad-trace", f"line {number} of {name} {what}", where=where, help=ways)


def opened(path: Path, name: str, *, most: int | None = None) -> Opened:
    """The entries of a file. most: lines beyond which it is refused before one of them is parsed.

    Raises KvplanError: bad-trace with the line, no-such-file, not-a-file, unreadable-file;
    CannotRunHere(missing-extra) for Parquet without pyarrow.
    """
    if is_folder(path):
        raise KvplanError(
            "not-a-file", f"{name} is a directory, not a file",
            help=f"sessions in one file: jq -c . {name.rstrip('/')}/*.json > trace.jsonl",
        )  # fmt: skip
    if regular_size(path) > MAX_BYTES:
        raise KvplanError("bad-trace", f"{name} is larger than {MAX_BYTES // GIB} GiB")
    with path.open("rb") as raw:
        magic = raw.read(4)
    if magic == _PARQUET:
        return _parquet(path, name)
    packed = magic[:2] == _GZIP
    if most is not None:
        _check_lines(path, name, most, packed=packed)
    lines = _lines(path, name, packed=packed)
    first = next(lines, None)
    if first is None:
        raise KvplanError("bad-trace", f"{name} has no requests")
    begins = first[1].lstrip()[:1]
    if begins not in ("{", "["):
        return _csv(first, lines, name)
    entry = _object(first[1])
    if entry is None:
        return _whole(chain([first], lines), name)
    return Opened("jsonl", frozenset(entry), _json(chain([first], lines), name))


def _whole(lines: Iterator[tuple[int, str]], name: str) -> Opened:
    """A file that is one object over several lines, or a list of objects."""
    texts, size = [], 0
    for _, text in lines:
        texts.append(text)
        size += len(text)
        if size > MAX_OBJECT:
            raise KvplanError(
                "bad-trace", f"{name} is one JSON value of more than {MAX_OBJECT // MIB} MiB",
                help="one object a line: jq -c '.[]' FILE > trace.jsonl",
            )  # fmt: skip
    try:
        found = json.loads("\n".join(texts))
    except (ValueError, RecursionError):
        found = None
    entries = found if isinstance(found, list) else [found]
    if not entries or not all(isinstance(one, dict) for one in entries):
        raise KvplanError(
            "bad-trace", f"{name} is neither JSON lines nor one JSON object, or a list of them",
            help="one object a line",
        )  # fmt: skip
    return Opened("jsonl", frozenset(entries[0]), iter(enumerate(entries, 1)))


def _check_lines(path: Path, name: str, most: int, *, packed: bool) -> None:
    """Counting ends of lines takes a hundredth of the time of reading them."""
    if not packed and path.stat().st_size <= most:
        return
    found = 0
    try:
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            while found <= most and (piece := stream.read(_PIECE)):
                found += piece.count(b"\n")
    except (OSError, zlib.error, EOFError):  # said with its line where it is read
        return
    if found > most:
        raise KvplanError(
            "bad-trace", f"{name} has more than {most:,} lines",
            help="take a sample of it: shuf -n 1000000",
        )  # fmt: skip


def _lines(path: Path, name: str, *, packed: bool) -> Iterator[tuple[int, str]]:
    number = read = 0
    try:
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            while raw := stream.readline(MAX_OBJECT + 1):
                number += 1
                read += len(raw)
                if number == 1:
                    check_text(raw, name)
                if len(raw) > MAX_OBJECT or (len(raw) > MAX_LINE and not _session(raw)):
                    raise bad(name, number, f"is longer than {MAX_LINE // MIB} MiB")
                if read > MAX_BYTES:
                    raise KvplanError("bad-trace", f"{name} unpacks to more than {MAX_BYTES // GIB} GiB")
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
                except UnicodeDecodeError:
                    raise bad(name, number, "is not UTF-8") from None
                if text.strip():
                    yield number, text
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise KvplanError("bad-trace", f"{name} is a broken gzip file: {error}") from None
    except OSError as error:
        raise KvplanError("unreadable-file", f"{name} cannot be read: {error.strerror or error}") from None


def _session(raw: bytes) -> bool:
    """Whether a long line is a session with all its requests."""
    return b'"requests"' in raw[:MAX_LINE] and b'"block_size"' in raw[:MAX_LINE]


def _object(text: str) -> dict[str, object] | None:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _json(lines: Iterator[tuple[int, str]], name: str) -> Iterator[Entry]:
    for number, text in lines:
        entry = _object(text)
        if entry is None:
            raise bad(name, number, "is no JSON object")
        yield number, entry


def _cells(text: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text]), [])]
    except csv.Error:
        return []


def _csv(first: tuple[int, str], lines: Iterator[tuple[int, str]], name: str) -> Opened:
    titles = _cells(first[1])
    twice = next((title for title in titles if title and titles.count(title) > 1), None)

    def rows() -> Iterator[Entry]:
        if twice is not None:
            raise bad(name, first[0], f"names {twice[:_SHOWN]} twice")
        for number, text in lines:
            cells = text.split(",") if '"' not in text else _cells(text)
            if len(cells) != len(titles):
                raise bad(name, number, f"has {len(cells)} columns, the first line {len(titles)}")
            yield number, dict(zip(titles, cells))

    return Opened("csv", frozenset(titles), rows())


def _parquet(path: Path, name: str) -> Opened:
    try:
        from pyarrow import parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise CannotRunHere(
            "missing-extra", f"{name} is a Parquet file, and pyarrow is not installed",
            help=("pip install 'kvplan[trace]'", "write the trace as CSV or JSON lines"),
        ) from None  # fmt: skip
    try:
        file = parquet.ParquetFile(path)
        titles = frozenset(str(title) for title in file.schema_arrow.names)
    except Exception as error:
        raise KvplanError("bad-trace", f"{name} is a broken Parquet file: {str(error)[:80]}") from None

    def rows() -> Iterator[Entry]:
        number = 0
        for batch in file.iter_batches(batch_size=10_000):
            for entry in batch.to_pylist():
                number += 1
                yield number, entry

    return Opened("parquet", titles, rows())
