"""The numbers that a speed estimate rests on, from the data file beside this module."""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from pathlib import Path

from kvplan.assumption import Assumption, Assumptions
from kvplan.files.located_reader import LocatedReader
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.strict import load_yaml_file

FORMAT = "speed/v1"
FILE = Path(__file__).parent / "data" / "speed.yaml"
UNITS = ("share", "s", "B/s", "ratio")
_KEYS = frozenset({"value", "unit", "source"})


@lru_cache(maxsize=1)
def speed_assumptions() -> Assumptions:
    """The packaged table."""
    return read_assumptions(load_yaml_file(FILE, name=FILE.name))


def read_assumptions(located: Located) -> Assumptions:
    """A table of assumptions: positive values with unit and source. Raises KvplanError with the line."""
    reader = LocatedReader(located, "a table of assumptions", "invalid-assumption")
    if reader.data.get("kvplan") != FORMAT:
        raise reader.wrong(("kvplan",), f"the file begins with `kvplan: {FORMAT}`")
    reader.only(reader.data, {"kvplan", "assumptions"}, ())
    made: dict[str, Assumption] = {}
    for key in reader.mapping(("assumptions",), required=True):
        path = ("assumptions", key)
        reader.only(reader.mapping(path, required=True), _KEYS, path)
        value = float(reader.typed((*path, "value"), (int, float), "a number"))
        if not isfinite(value) or value <= 0:
            raise reader.wrong((*path, "value"), "this must be above 0")
        unit = reader.word((*path, "unit"), UNITS)
        if unit == "share" and value > 1:
            raise reader.wrong((*path, "value"), "a share is at most 1")
        source = reader.text((*path, "source"), required=True) or ""
        made[str(key)] = Assumption(str(key), value, unit, source)
    return Assumptions(made)
