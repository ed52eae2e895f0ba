"""The numbers that a speed estimate rests on: the table beside this module, and what only files know."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.architectures.weights import served_sources
from kvplan.assumption import Assumption, Assumptions
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.model import Model
from kvplan.weights.facts import no_source

if TYPE_CHECKING:
    from kvplan.weights.inventory import Inventory


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


def speed_inputs(model: Model, quantization: str | None = None) -> tuple[Inventory, int, Assumptions]:
    """(tensors, experts that a token uses, assumptions) for `kvplan.planning.speed.speed_profile`.

    Raises KvplanError: no-weights where nobody can list the model's tensors, bad-setting.
    """
    sources = served_sources(model, quantization)
    if sources.inventory is None:
        raise sources.problem or no_source(model.id)
    return sources.inventory, shape_of(model, 2).experts_per_token, speed_assumptions()
