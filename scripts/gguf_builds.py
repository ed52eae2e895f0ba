"""Sizes of published GGUF builds whose author chooses the type of each tensor, as shares of llama.cpp's own.

    python -m scripts.gguf_builds           writes kvplan/engines/llamacpp/data/dynamic_builds.tsv

Rows (``scripts/gguf_builds.tsv``): model, build, size of the file (bytes, or as listed: GB, GiB, MiB),
whether it has prediction layers, where it was read. Each is divided by the size of llama.cpp's mixture of
that name (``mixture_like``). A build's share is the median of its rows, between the least and the most
of them, four hundredths wider. A build with few rows takes those of all builds of its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import NamedTuple

import kvplan
from kvplan.architectures.weights import sources_of
from kvplan.engines.llamacpp.gguf_file.authors import TABLE, kind_of, mixture_like
from kvplan.engines.llamacpp.gguf_file.converted import converted
from kvplan.units import GIB, MIB

ROWS = Path(__file__).with_name("gguf_builds.tsv")
FEW, WIDER = 4, 40
"""Rows below which a build has no share of its own; thousandths on either side of the rows."""
_UNITS = {"GiB": GIB, "MiB": MIB, "GB": 10**9}
_HEADER = "build\tleast\tlikely\tmost\tfiles\n"


class Row(NamedTuple):
    """A published file. prediction: it has the model's prediction layers."""

    model: str
    build: str
    size: int
    prediction: bool


def rows() -> list[Row]:
    """The table's rows."""
    lines = ROWS.read_text(encoding="utf-8").splitlines()[1:]
    return [
        Row(model, build.lower().replace("-", "_"), _bytes(size), layers == "yes")
        for model, build, size, layers, _ in (line.split("\t") for line in lines)
    ]


def _bytes(text: str) -> int:
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            return int(Fraction(text.removesuffix(unit)) * factor)
    return int(text)


def share(row: Row) -> int:
    """Thousandths of the same model's file in llama.cpp's mixture."""
    model = kvplan.load_model(row.model)
    inventory = sources_of(model).inventory
    assert inventory is not None, row.model
    made = converted(model, inventory, mixture_like(row.build))
    whole = sum(made.bytes_by_name.values()) + (made.prediction if row.prediction else 0)
    return round(Fraction(row.size * 1000, whole))


def bands(shares: Iterable[tuple[str, int]]) -> Iterator[tuple[str, Sequence[int]]]:
    """Name of a build, or of a kind, and the shares that decide it."""
    own: dict[str, list[int]] = {}
    kinds: dict[str, list[int]] = {}
    for build, one in shares:
        own.setdefault(build, []).append(one)
        kinds.setdefault(kind_of(build), []).append(one)
    yield from ((build, found) for build, found in sorted(own.items()) if len(found) >= FEW)
    yield from sorted(kinds.items())


def ends(found: Sequence[int]) -> tuple[int, int, int]:
    """Least, likely and most, in thousandths."""
    return min(found) - WIDER, round(median(found)), max(found) + WIDER


def table() -> str:
    """The text of the data file."""
    lines = [_HEADER]
    for name, found in bands((row.build, share(row)) for row in rows()):
        least, likely, most = ends(found)
        lines.append(f"{name}\t{least}\t{likely}\t{most}\t{len(found)}\n")
    return "".join(lines)


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
