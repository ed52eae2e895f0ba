"""Which model classes each engine knows, by release: ``data/classes.tsv``, one line a class.

The file is written by scripts/make_engine_classes.py from the engines' own registries (its docstring says
which); it is read once, when an engine is first asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

CLASSES = Path(__file__).parent / "data" / "classes.tsv"
IDENTIFIER = re.compile(r"[A-Z][A-Za-z0-9_]*", re.ASCII)
"""What the name of a class looks like."""
HEADER = "engine\tkind\tclass\tsince\tuntil"


class Row(NamedTuple):
    """A class that an engine knows. kind: what it does with it. since, until: first and last release, empty
    where it is in the oldest or the newest one that was read."""

    engine: str
    kind: str
    name: str
    since: str
    until: str


def read_rows(text: str) -> list[Row]:
    """The rows below the header."""
    header, *lines = text.splitlines()
    assert header == HEADER
    return [Row(*line.split("\t")) for line in lines]


def rows_text(rows: Iterable[Row]) -> str:
    """The file's text."""
    return "\n".join((HEADER, *("\t".join(row) for row in rows))) + "\n"


@cache
def _by_kind() -> Mapping[tuple[str, str], Mapping[str, Row]]:
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in read_rows(CLASSES.read_text(encoding="utf-8")):
        found.setdefault((row.engine, row.kind), {})[row.name] = row
    return MappingProxyType(found)


def classes(engine: str, kind: str) -> Mapping[str, Row]:
    """The classes of one kind by name, of all releases."""
    return _by_kind()[engine, kind]
