"""The capacity of a class of candidates on a GPU, as a planner needs it, or the reason for its rejection.

A class is everything but the GPU's memory, max_num_seqs and max_model_len: the model in one weight format,
how it is divided, the KV format, the engine. A capacity model answers for all of them: arithmetic where it
was worked out, else the engine asked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from kvplan.engines.base import Choice
from kvplan.engines.budget import BUDGETS, divides
from kvplan.engines.budget.sharing import Share, Takes
from kvplan.engines.folders import part_of
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.settings import Settings
from kvplan.units import gib


class Rejection(NamedTuple):
    """Why a candidate does not serve."""

    code: str
    """kebab-case, as in a refusal"""
    message: str
    far: int = 0
    """by how much it misses, in the measure of the code; 0 where that is not known. The nearest is shown."""


def weights_alone(amount: int, usable: int) -> Rejection:
    """Weights that leave nothing, before anything else is counted."""
    return Rejection(
        "weights", f"weights alone take {gib(amount)} a GPU; {gib(usable)} may be used", amount - usable
    )


class Capacity(NamedTuple):
    """The capacity of one GPU's cache."""

    pool_bytes: int
    runs: Callable[[int, int], int]
    """(tokens, those of them that are generated) → requests that run at once"""
    takes: Takes
    """what one request takes"""
    share: Share
    """what start-up reserves for so many tokens"""
    block: int = 0
    """as in `kvplan.engines.budget.sharing.Sharing`"""
    dropped: int = 0
    """as in `kvplan.engines.budget.sharing.Sharing`"""
    refused: Callable[[int, int], Rejection | None] = lambda tokens, answer: None
    """why such a request is never admitted, if it is not"""


class CapacityModel(Protocol):
    """The answers for one class. Capacity never rises with max_num_seqs."""

    def room(
        self, gpu: Gpu, max_num_seqs: int, max_model_len: int, *, safe: bool = False
    ) -> Capacity | Rejection:
        """The capacity of this GPU; safe: that of the pool's low figure."""


class CapacityModels(Protocol):
    """Capacity models by class; GPUs of one class (`kind`) share theirs. Raises KvplanError where none is."""

    def kind(self, gpu: Gpu, choice: Choice, settings: Settings) -> Hashable: ...

    def law(
        self, model: Model, choice: Choice, settings: Settings, gpu: Gpu, kind: Hashable
    ) -> CapacityModel: ...


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
    own = part_of(choice.engine.name, "capacity_model")
    return None if own is None else own.laws_for(base)
