"""Everything that a speed estimate needs and only files know: tensors, experts per token, the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.architectures.weights import served_sources
from kvplan.assumption import Assumptions
from kvplan.files.speed import speed_assumptions
from kvplan.model import Model
from kvplan.weights.facts import no_source

if TYPE_CHECKING:
    from kvplan.weights.inventory import Inventory


def speed_inputs(model: Model, quantization: str | None = None) -> tuple[Inventory, int, Assumptions]:
    """(tensors, experts that a token uses, assumptions) for `kvplan.planning.speed.speed_profile`.

    Raises KvplanError: no-weights where nobody can list the model's tensors, bad-setting.
    """
    sources = served_sources(model, quantization)
    if sources.inventory is None:
        raise sources.problem or no_source(model.id)
    return sources.inventory, shape_of(model, 2).experts_per_token, speed_assumptions()
