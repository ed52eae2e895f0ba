"""Engines that go by ``architectures``: no answer by model_type for a class that has other layers."""

from __future__ import annotations

from kvplan.errors import KvplanError
from kvplan.model import FOREIGN_CLASS, Model
from kvplan.results import Refusal


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
