"""The table of rules; each rules file adds its model types with ``@rule(...)``."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.architectures.config.view import ConfigView
from kvplan.model import Layer

Rule = Callable[[ConfigView], list[Layer]]
RULES: dict[str, Rule] = {}
_READS_AGAIN = "keeps no cache: the class reads the whole prompt again at every step"
NO_CACHE = {name: f"{name} {_READS_AGAIN}" for name in ("openai-gpt", "xlm")}
"""Model type → why its class keeps no cache (transformers 5.23.0, measured)."""


def rule(*model_types: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of these model types (transformers' words)."""

    def register(function: Rule) -> Rule:
        for model_type in model_types:
            if model_type in RULES:
                raise ValueError(f"two rules for {model_type}")
            RULES[model_type] = function
        return function

    return register
