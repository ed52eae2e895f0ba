"""What a class of candidates holds on a GPU, as a planner asks for it: a capacity, or why it is rejected.

A class is everything but the GPU's memory, max_num_seqs and max_model_len: the model in one weight format,
how it is divided, the KV format, the engine. A capacity model answers for all of them. Values and protocols
only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

from kvplan.engines.base import Choice
from kvplan.engines.budget.sharing import Share, Takes
from kvplan.gpu import Gpu
from kvplan.model import Model
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
    """What the cache of one GPU holds."""

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
