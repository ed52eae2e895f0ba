"""Which model classes each engine knows, by release: ``data/classes.tsv``, one line a class.

The file is written by scripts/make_engine_classes.py from the engines' own registries (its docstring says
which); it is read once, when an engine is first asked.

Engines that go by ``architectures``: no answer by model_type for a class that has other layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from kvplan.errors import KvplanError
from kvplan.model import FOREIGN_CLASS, Model
from kvplan.named import NamedTuple
from kvplan.results import Refusal

CLASSES = Path(__file__).parent / "data" / "classes.tsv"
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
def _lines() -> tuple[str, ...]:
    return tuple(CLASSES.read_text(encoding="utf-8").splitlines())


@cache
def classes(engine: str, kind: str) -> Mapping[str, Row]:
    """The classes of one kind by name, of all releases."""
    start = f"{engine}\t{kind}\t"
    rows = (Row(*line.split("\t")) for line in _lines() if line.startswith(start))
    return MappingProxyType({row.name: row for row in rows})


def check_class(model: Model, title: str) -> Refusal | None:
    """Nothing to refuse, or KvplanError(unknown-rule): the class that the engine builds belongs to another
    model type, whose rule reads other layers from the same file, or cannot read it."""
    other = model.facts.get(FOREIGN_CLASS)
    if other:
        raise KvplanError(
            "unknown-rule",
            f"{title} builds {model.architecture}, a class of {other}, from a config of model_type"
            f" {model.model_type}: other layers than the type's, which are not described",
            help="check architectures and model_type in the config: they name different models",
        )
    return None
