"""How each model type's config becomes layers. ``rule_for(model_type)`` → a function of a ConfigView."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from kvplan.architectures.lineages.layers.registry import NO_CACHE, RULES, Rule, rule
from kvplan.model import Layer

__all__ = ["NO_CACHE", "RULES", "Layer", "Rule", "rule", "rule_for", "rules"]


def rule_for(model_type: str) -> Rule | None:
    """The rule of a model type, or None for one that has none of its own."""
    return rules().get(model_type)


@lru_cache(maxsize=1)
def rules() -> dict[str, Rule]:
    """The whole table: every module beside this file adds its types when it is imported."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return RULES
