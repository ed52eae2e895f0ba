"""The numbers that a speed estimate rests on, from the data file beside this module."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from kvplan.assumption import Assumption, Assumptions
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.strict import load_yaml_file

FILE = Path(__file__).parent / "data" / "speed.yaml"


@lru_cache(maxsize=1)
def speed_assumptions() -> Assumptions:
    """The packaged table: judged when it was written (scripts/speed_fit.py), read as it is."""
    return read_assumptions(load_yaml_file(FILE, name=FILE.name))


def read_assumptions(located: Located) -> Assumptions:
    """A table of assumptions that keeps the layout."""
    table = located.data["assumptions"]
    return Assumptions(
        {key: Assumption(key, float(one["value"]), one["unit"], one["source"]) for key, one in table.items()}
    )
