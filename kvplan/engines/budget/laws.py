"""The capacity models of an engine: arithmetic where it was worked out, else the engine asked."""

from __future__ import annotations

from kvplan.engines.base import Choice
from kvplan.engines.budget import BUDGETS, divides
from kvplan.engines.budget.law import CapacityModels
from kvplan.engines.folders import part_of
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.settings import Settings


def check_engine(choice: Choice, settings: Settings | None = None) -> None:
    """Raises KvplanError(no-budget) for an engine that does not divide a GPU's memory, whatever is set (None)
    or with these settings."""
    name = choice.engine.name
    if name not in BUDGETS:
        raise KvplanError(
            "no-budget",
            f"{name} does not divide a GPU's memory: there is nothing to plan",
            help="--engine " + ", ".join(BUDGETS),
        )
    if settings is not None and not divides(name, settings):
        option = str(traits_of(name).divides_with)
        raise KvplanError(
            "no-budget",
            f"{name} divides a GPU's memory with {option} alone: there is nothing to plan",
            help=f"--{option.replace('_', '-')}, where the command has it; else --engine vllm",
        )


def compiled_laws(choice: Choice, base: Settings) -> CapacityModels | None:
    """Capacity models as arithmetic; None where the engine must be asked: another engine, or settings with
    lines in the budget that only the engine's own way knows (adapters, drafts)."""
    own = part_of(choice.engine.name, "law")
    return None if own is None else own.laws_for(base)
