"""How each model type's config becomes layers. ``rule_for(model_type)`` → a function of a ConfigView."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.model import Layer
from kvplan.readers.rules.registry import RULES, Rule, rule

__all__ = ["RULES", "Layer", "Rule", "rule", "rule_for"]


def rule_for(model_type: str) -> Rule | None:
    """The rule of a model type, or None for one that has none of its own."""
    _load()
    return RULES.get(model_type)


_loaded: list[Callable[[], None]] = []


def _load() -> None:
    if not _loaded:
        from kvplan.readers.rules import decoder

        _loaded.append(lambda: None)
        del decoder
