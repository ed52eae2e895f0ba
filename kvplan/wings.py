"""The door to the wings: the core reads `kvplan.simulation` and `kvplan.proof` by name, where a question asks
for them, and imports neither (a contract in pyproject.toml holds it)."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def wing(module: str) -> Any:
    """A module of a wing: ``wing("simulation.requirements")``."""
    return import_module(f"kvplan.{module}")
