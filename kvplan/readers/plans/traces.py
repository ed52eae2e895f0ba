"""Workload traces: one request a line, as lengths of prompt and answer.

Formats: Mooncake's JSON lines (kvcache-ai/Mooncake FAST25-release: input_length, output_length), Azure's CSV
(Azure/AzurePublicDataset: ContextTokens, GeneratedTokens), vidur's CSV (microsoft/vidur
data/processed_traces: num_prefill_tokens, num_decode_tokens), and any CSV or JSON lines whose columns are
named. A file is read once, line by line; only how often each pair of lengths occurs is kept.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.errors import KvplanError
from kvplan.plans.joint import joined
from kvplan.plans.workload import Shape
from kvplan.readers.json_input import regular_size
from kvplan.units import GIB, MIB

_COLUMNS = {
    "mooncake": ("input_length", "output_length"),
    "azure": ("ContextTokens", "GeneratedTokens"),
    "vidur": ("num_prefill_tokens", "num_decode_tokens"),
}
_LINES = ("mooncake", "jsonl")
FORMATS = ("auto", *_COLUMNS, "csv", "jsonl")
MAX_ROWS = 20_000_000
MAX_BYTES = 4 * GIB
MAX_PAIRS = 2_000_000
MAX_LINE = MIB
MOST_TOKENS = 10**9


class Trace(NamedTuple):
    """What a trace says of lengths. pairs: how often (input, output) occurs, exactly."""

    requests: int
    pairs: Counter[tuple[int, int]]

    def shapes(self) -> tuple[Shape, ...]:
        """The joint distribution in a bounded number of shapes (`kvplan.plans.joint`)."""
        return joined(self.pairs)


def read_trace(path: Path, *, name: str, form: str = "auto", columns: tuple[str, str] | None = None) -> Trace:
    """The trace in a file. form: one of `FORMATS`; columns: of input and output, for csv and jsonl.

    A request without a prompt and an answer is left out of nothing: both lengths may be 0, not below.

    Raises KvplanError: ``bad-trace`` with the line, ``no-such-file``, ``not-a-file``, ``unreadable-file``.
    """
    if regular_size(path) > MAX_BYTES:
        raise KvplanError("bad-trace", f"{name} is larger than {MAX_BYTES // GIB} GiB")
    pairs: Counter[tuple[int, int]] = Counter()
    requests = 0
    try:
        with path.open("rb") as stream:
            for pair in _pairs(_lines(stream, name), name, form, columns):
                pairs[pair] += 1
                requests += 1
                if requests > MAX_ROWS or len(pairs) > MAX_PAIRS:
                    raise KvplanError(
                        "bad-trace",
                        f"{name} has more than {MAX_ROWS:,} requests, or {MAX_PAIRS:,} different ones",
                        help="take a sample of it",
                    )
    except OSError as error:
        raise KvplanError("unreadable-file", f"{name} cannot be read: {error.strerror or error}") from None
    if not requests:
        raise KvplanError("bad-trace", f"{name} has no requests")
    if all(pair == (0, 0) for pair in pairs):
        raise KvplanError("bad-trace", f"no request of {name} has a token")
    return Trace(requests, pairs)


def _lines(stream: io.BufferedReader, name: str) -> Iterator[tuple[int, str]]:
    number = 0
    while True:
        raw = stream.readline(MAX_LINE + 1)
        if not raw:
            return
        number += 1
        if len(raw) > MAX_LINE:
            raise _bad(name, number, f"is longer than {MAX_LINE // MIB} MiB")
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
        except UnicodeDecodeError:
            raise _bad(name, number, "is not UTF-8") from None
        if text.strip():
            yield number, text


def _pairs(
    lines: Iterator[tuple[int, str]], name: str, form: str, columns: tuple[str, str] | None
) -> Iterator[tuple[int, int]]:
    first = next(lines, None)
    if first is None:
        return
    if form == "auto":
        form = _recognised(first[1], name) if columns is None else _generic(first[1])
    if form in ("csv", "jsonl") and columns is None:
        raise KvplanError(
            "bad-trace",
            f"{name}: which columns hold the lengths is not said",
            help="trace_columns: {input: prompt_tokens, output: completion_tokens}",
        )
    wanted = columns if columns is not None else _COLUMNS[form]
    if form in _LINES:
        yield from _from_json([first], name, wanted)
        yield from _from_json(lines, name, wanted)
    else:
        yield from _from_csv(first[1], lines, name, wanted)


def _generic(head: str) -> str:
    return "jsonl" if head.lstrip().startswith("{") else "csv"


def _recognised(head: str, name: str) -> str:
    """The format whose columns the first line has."""
    found = _entry(head) if _generic(head) == "jsonl" else dict.fromkeys(_cells(head))
    for form, wanted in _COLUMNS.items():
        if found is not None and all(column in found for column in wanted):
            return form
    raise KvplanError(
        "bad-trace",
        f"{name} is none of the traces that kvplan knows: {', '.join(_COLUMNS)}",
        help="trace_columns: {input: prompt_tokens, output: completion_tokens}",
    )


def _entry(text: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _cells(text: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text]), [])]
    except csv.Error:
        return []


def _from_json(
    lines: Iterable[tuple[int, str]], name: str, wanted: tuple[str, str]
) -> Iterator[tuple[int, int]]:
    for number, text in lines:
        entry = _entry(text)
        if entry is None:
            raise _bad(name, number, "is no JSON object")
        yield _tokens(name, number, wanted, [entry.get(column) for column in wanted])


def _from_csv(
    head: str, lines: Iterator[tuple[int, str]], name: str, wanted: tuple[str, str]
) -> Iterator[tuple[int, int]]:
    titles = _cells(head)
    for column in wanted:
        if titles.count(column) != 1:
            raise _bad(
                name,
                1,
                f"does not name a column {column}" if column not in titles else f"names {column} twice",
            )
    places = [titles.index(column) for column in wanted]
    for number, text in lines:
        cells = _cells(text)
        if len(cells) != len(titles):
            raise _bad(name, number, f"has {len(cells)} columns, the first line {len(titles)}")
        yield _tokens(name, number, wanted, [cells[place] for place in places])


def _tokens(name: str, number: int, wanted: tuple[str, str], values: list[Any]) -> tuple[int, int]:
    found = []
    for column, value in zip(wanted, values):
        length = value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:
            length = int(value)
        if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= MOST_TOKENS:
            shown = repr(value)
            raise _bad(name, number, f"{column} is {shown[:40]}, not a number of tokens")
        found.append(length)
    return found[0], found[1]


def _bad(name: str, number: int, what: str) -> KvplanError:
    return KvplanError("bad-trace", f"line {number} of {name} {what}", where=f"{name}:{number}:1")
