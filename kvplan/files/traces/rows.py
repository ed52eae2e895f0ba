"""The requests of a trace, one after another: lengths, and where the trace says them times and identities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from math import isfinite
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.traces.entries import bad, opened
from kvplan.files.traces.formats import (
    COLUMNS_SAID,
    FORMATS,
    FORMS,
    NAMED,
    WALL,
    Columns,
    Form,
    named,
    recognised,
)
from kvplan.named import NamedTuple
from kvplan.record import Json

MOST_TOKENS = 10**9
MOST_NS = 10**9 * 86_400 * 3_660
"""Ten years, but for the wall clock."""
_SECOND = 10**9
_SHOWN = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Row(NamedTuple):
    """A request. line: where it stands; at_ns: when it came, None where the trace does not say; ids:
    identities of its blocks of ``wide`` tokens; session: what they are private to, where they are."""

    line: int
    prompt: int
    answer: int
    at_ns: int | None = None
    ids: Sequence[int | str] = ()
    wide: int = 0
    session: str | None = None
    local: bool = False


class Rows(NamedTuple):
    """form: what the file is; rows: its requests, read as they are asked for."""

    form: Form
    rows: Iterator[Row]


def read_rows(
    path: Path, *, name: str, form: str = "auto", columns: tuple[str, ...] | None = None, wide: int = 0,
    lengths_only: bool = False, most_lines: int | None = None,
) -> Rows:  # fmt: skip
    """The requests of a file. form: one of `FORMATS`; columns: input, output, and time (seconds) and ids
    where there are such, for csv, jsonl and parquet; wide: tokens of one id where the format does not say;
    most_lines: beyond which the file is refused before it is read.

    Raises KvplanError: bad-trace with the line, no-such-file, not-a-file, unreadable-file.
    """
    if form not in FORMATS:
        near = did_you_mean(form, FORMATS)
        raise KvplanError(
            "bad-trace", f"there is no trace format {form!r}",
            help=f"did you mean {near}?" if near else "formats: " + ", ".join(FORMATS),
        )  # fmt: skip
    found = opened(path, name, most=most_lines)
    if columns is not None:
        said = named(columns, wide)
    elif form in NAMED:
        raise KvplanError(
            "bad-trace",
            f"{name}: which columns hold the lengths is not said",
            help=COLUMNS_SAID,
        )
    else:
        said = recognised(found.head, name) if form == "auto" else FORMS[form]
    if wide:
        said = said._replace(columns=said.columns._replace(wide=wide))
    if found.kind != "jsonl":
        _titles(found.head, said.columns, name)
    return Rows(said, _rows(found.entries, said, name, lengths_only=lengths_only))


def _titles(head: frozenset[str], columns: Columns, name: str) -> None:
    for column in (columns.input, columns.output):
        if column not in head:
            known = ", ".join(sorted(head)[:_SHOWN])
            raise bad(name, 1, f"does not name a column {column}", (f"it has {known}", *COLUMNS_SAID))


def _rows(
    entries: Iterator[tuple[int, Mapping[str, object]]], form: Form, name: str, *, lengths_only: bool
) -> Iterator[Row]:
    columns, flat = form.columns, form.flat
    line = 0
    try:
        for line, entry in entries:
            for one in (entry,) if flat is None else flat(entry):
                prompt, answer = tokens(one, columns.input), tokens(one, columns.output)
                if lengths_only:
                    yield Row(line, prompt, answer)
                else:
                    yield _row(line, prompt, answer, one, columns)
    except KvplanError as error:
        if error.where is not None or error.code != "bad-trace" or error.message.startswith(name):
            raise
        raise bad(name, line, error.message) from None


def tokens(entry: Json, column: str) -> int:
    """A length. Raises KvplanError(bad-trace), without the place."""
    value = entry.get(column)
    length = value
    if isinstance(value, str):
        stripped = value.strip()
        whole, _, rest = stripped.partition(".")
        if stripped.isascii() and whole.isdigit() and len(stripped) <= 16 and not rest.strip("0"):
            length = int(whole)  # 472.0: a column that also has empty cells
    elif isinstance(value, float) and value.is_integer():
        length = int(value)
    if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= MOST_TOKENS:
        raise KvplanError("bad-trace", f"{column} is {repr(value)[:_SHOWN]}, not a number of tokens")
    return length


def _row(line: int, prompt: int, answer: int, entry: Mapping[str, object], columns: Columns) -> Row:
    at = None if columns.time is None else entry.get(columns.time)
    wide = entry.get("block_size") or columns.wide
    if isinstance(wide, bool) or not isinstance(wide, int) or not 0 <= wide <= MOST_TOKENS:
        raise KvplanError("bad-trace", f"block_size is {repr(wide)[:_SHOWN]}, not a number of tokens")
    session = None if columns.session is None else entry.get(columns.session)
    return Row(
        line, prompt, answer,
        None if at is None or at == "" else nanoseconds(at, columns.unit),
        () if columns.ids is None else _ids(entry.get(columns.ids)),
        wide,
        None if session is None else str(session)[:200],
        bool(entry.get("local", False)),
    )  # fmt: skip


def _ids(value: object) -> Sequence[int | str]:
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        value = value.strip().strip("[]").replace(",", " ").replace(";", " ").split()
    if not isinstance(value, list):
        raise KvplanError("bad-trace", f"the identities are {repr(value)[:_SHOWN]}, not a list")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, (int, str)) or len(str(one)) > 64:
            raise KvplanError("bad-trace", f"an identity is {repr(one)[:_SHOWN]}, not a number")
    found: list[int | str] = value
    return found


def nanoseconds(value: Any, unit: int) -> int:
    """A time in whole nanoseconds; WALL: since 1970. Raises KvplanError(bad-trace), without the place."""
    if unit == WALL:
        return _wall(value)
    number = value
    if isinstance(value, str):
        try:
            number = int(value) if value.strip().lstrip("+-").isdigit() and len(value) < 30 else float(value)
        except ValueError:
            number = None
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole and not (isinstance(number, float) and isfinite(number)):
        raise KvplanError("bad-trace", f"the time is {repr(value)[:_SHOWN]}, not a number")
    if number < 0:
        raise KvplanError("bad-trace", f"the time is {repr(value)[:_SHOWN]}, before the beginning")
    found = number * unit
    if found > MOST_NS * 10:
        raise KvplanError("bad-trace", f"the time is {repr(value)[:_SHOWN]}, more than a century")
    return found if isinstance(found, int) else round(found)


def _wall(value: object) -> int:
    """``2023-11-16 18:17:03.9799600``, with a zone or without (then UTC), to the digit."""
    text = str(value).strip().replace("T", " ")
    head, _, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :]
    if not rest and (head.endswith("Z") or "+" in head):
        head, zone = (
            (head[:-1], "Z") if head.endswith("Z") else (head[: head.index("+")], head[head.index("+") :])
        )
    try:
        moment = datetime.fromisoformat(head + ("+00:00" if zone in ("", "Z") else zone))
    except ValueError:
        raise KvplanError("bad-trace", f"the time is {repr(value)[:_SHOWN]}, not a date and a time") from None
    if moment.tzinfo is None or len(digits) > 9:
        raise KvplanError("bad-trace", f"the time is {repr(value)[:_SHOWN]}, not a date and a time")
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * _SECOND + int(digits.ljust(9, "0") or 0)
