"""ServeGen's client statistics (alibaba/ServeGen): a folder or .tar.gz of chunk-N-trace.csv, -dataset.json.

A trace row: first second of a window, requests a second, coefficient of variation of the gaps, Gamma or
Weibull. A dataset: first second of a window to histograms ``{tokens: share}`` of input and output.
"""

from __future__ import annotations

import json
import tarfile
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from math import isfinite
from pathlib import Path

from kvplan.errors import KvplanError, Mark
from kvplan.files.folders import is_file, is_folder
from kvplan.files.json_input import read_limited
from kvplan.later import regex
from kvplan.record import record
from kvplan.units import MIB

_NAME = regex(r"chunk-(\d{1,6})-(trace\.csv|dataset\.json)")
_PAIR = regex(r"(\d{1,9})(?:\.0)?\s*:\s*([0-9.eE+-]{1,30})")
_LIMIT, _MOST_CLIENTS = 64 * MIB, 10_000
_KINDS = {"Gamma": "gamma", "Weibull": "weibull", "": "poisson"}


@record(eq=False)
class Histogram:
    """Lengths, and the shares of those up to each."""

    lengths: tuple[int, ...]
    upto: tuple[float, ...]

    def at(self, share: float) -> int:
        """The length below which that share lies."""
        return self.lengths[min(bisect_right(self.upto, share * self.upto[-1]), len(self.lengths) - 1)]


@record(eq=False)
class Client:
    """windows: (first second, last, requests a second, cv, gamma | weibull | poisson); lengths: (first
    second, input, output)."""

    windows: tuple[tuple[float, float, float, float, str], ...]
    lengths: tuple[tuple[float, Histogram, Histogram], ...]

    def lengths_at(self, second: float) -> tuple[Histogram, Histogram]:
        place = bisect_right([start for start, _, _ in self.lengths], second) - 1
        _, inputs, outputs = self.lengths[max(0, place)]
        return inputs, outputs


def read_clients(path: Path) -> tuple[Client, ...]:
    """The clients that send anything. Raises KvplanError(bad-trace, no-such-file …)."""
    found: dict[int, dict[str, bytes]] = {}
    for name, data in _files(path):
        match = _NAME.fullmatch(name)
        if match is not None:
            found.setdefault(int(match[1]), {})[match[2]] = data
        if len(found) > _MOST_CLIENTS:
            raise KvplanError("bad-trace", f"{path} has more than {_MOST_CLIENTS:,} clients")
    clients = []
    for number, parts in sorted(found.items()):
        if len(parts) != 2:
            raise KvplanError("bad-trace", f"{path}: client {number} has no trace or no dataset")
        windows = tuple(_windows(parts["trace.csv"], f"{path}/chunk-{number}-trace.csv"))
        lengths = tuple(_lengths(parts["dataset.json"], f"{path}/chunk-{number}-dataset.json"))
        if windows and lengths:
            clients.append(Client(windows, lengths))
    if not clients:
        raise KvplanError(
            "bad-trace", f"{path} has no clients of ServeGen",
            help="a folder or .tar.gz with chunk-0-trace.csv and chunk-0-dataset.json",
        )  # fmt: skip
    return tuple(clients)


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    if is_folder(path):
        for child in sorted(path.iterdir()):
            if _NAME.fullmatch(child.name):
                yield child.name, read_limited(child, _LIMIT)
        return
    if not is_file(path):
        raise KvplanError("no-such-file", f"{path} does not exist")
    try:
        with tarfile.open(path, "r:*") as packed:
            for member in packed:
                name = member.name.rpartition("/")[2]
                if member.isfile() and _NAME.fullmatch(name):
                    if member.size > _LIMIT:
                        raise KvplanError("bad-trace", f"{path}: {name} is larger than {_LIMIT // MIB} MiB")
                    stream = packed.extractfile(member)
                    if stream is not None:
                        yield name, stream.read(_LIMIT)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise KvplanError("bad-trace", f"{path} is no .tar.gz: {str(error)[:80]}") from None


def _windows(data: bytes, name: str) -> Iterator[tuple[float, float, float, float, str]]:
    rows: list[tuple[float, float, float, str]] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        cells = [cell.strip() for cell in line.split(",")]
        if cells == [""]:
            continue
        row = _row(cells)
        if row is None or (rows and row[0] <= rows[-1][0]):
            raise KvplanError(
                "bad-trace",
                f"line {number} of {name} is no window of a client",
                where=Mark(name, number, 1, 2),
            )
        rows.append(row)
    for place, (start, rate, cv, kind) in enumerate(rows):
        if rate:
            last = (
                rows[place + 1][0]
                if place + 1 < len(rows)
                else start + (rows[1][0] - rows[0][0] if place else 600)
            )
            yield start, last, rate, min(max(cv, 0.05), 20.0), kind


def _row(cells: list[str]) -> tuple[float, float, float, str] | None:
    try:
        start, rate, cv = (float(cell) for cell in cells[:3])
        kind = _KINDS[cells[3]]
    except (ValueError, KeyError, IndexError):
        return None
    sane = all(isfinite(value) and value >= 0 for value in (start, rate, cv)) and max(start, rate) < 10**9
    return (start, rate, cv, kind) if sane else None


def _lengths(data: bytes, name: str) -> Iterator[tuple[float, Histogram, Histogram]]:
    try:
        entry = json.loads(data)
        windows = sorted(
            (float(key), value["input_tokens"], value["output_tokens"]) for key, value in entry.items()
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise KvplanError("bad-trace", f"{name} is no dataset of a client") from None
    for start, inputs, outputs in windows:
        both = _histogram(inputs), _histogram(outputs)
        if both[0] is not None and both[1] is not None:
            yield start, both[0], both[1]


def _histogram(text: object) -> Histogram | None:
    """``{45: 0.0097, 46: 0.0117}``; None where nothing is in it."""
    pairs = []
    for tokens, share in _PAIR.findall(text) if isinstance(text, str) else ():
        weight = _float(share)
        if weight > 0 and int(tokens) > 0:
            pairs.append((int(tokens), weight))
    if not pairs:
        return None
    pairs.sort()
    return Histogram(tuple(tokens for tokens, _ in pairs), tuple(accumulate(weight for _, weight in pairs)))


def _float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if isfinite(value) else 0.0
