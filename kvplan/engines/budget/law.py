"""What a class of candidates takes on a GPU, as a planner asks for it: a room, or why there is none.

A class is everything but the GPU's memory, max_num_seqs and max_model_len: the model in one weight format,
how it is divided, the KV format, the engine. A law answers for all of them. Values and protocols only.
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


class Fell(NamedTuple):
    """Why a candidate is none. code: kebab-case, as in a refusal. far: by how much, in the measure of the
    code, 0 where that is not known: of several the nearest is told."""

    code: str
    message: str
    far: int = 0


def weights_alone(amount: int, usable: int) -> Fell:
    """Weights that leave nothing, before anything else is counted."""
    return Fell(
        "weights", f"weights alone take {gib(amount)} a GPU; {gib(usable)} may be used", amount - usable
    )


class Room(NamedTuple):
    """The pool of one GPU in bytes. runs: requests of so many tokens, so many of them generated, that run at
    once; takes: what one of them takes; share: what start-up reserves for so many tokens. block, dropped:
    `kvplan.engines.budget.sharing.Sharing`."""

    pool_bytes: int
    runs: Callable[[int, int], int]
    takes: Takes
    share: Share
    block: int = 0
    dropped: int = 0


class Law(Protocol):
    """The answers for one class. The more max_num_seqs, the less a room holds, never more."""

    def room(self, gpu: Gpu, max_num_seqs: int, max_model_len: int, *, safe: bool = False) -> Room | Fell:
        """The room on this GPU; safe: of the pool's low figure."""


class Laws(Protocol):
    """Laws by class. kind: GPUs of equal kind share their laws. Raises KvplanError where none applies."""

    def kind(self, gpu: Gpu, choice: Choice, settings: Settings) -> Hashable: ...

    def law(self, model: Model, choice: Choice, settings: Settings, gpu: Gpu, kind: Hashable) -> Law: ...
