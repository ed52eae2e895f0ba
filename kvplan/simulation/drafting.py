"""The part of a step that drafting takes: by the draft's own model, or the model's prediction layers."""

from __future__ import annotations

from kvplan.assumption import Assumptions
from kvplan.errors import RefusedError
from kvplan.files.speed import speed_inputs
from kvplan.model import Model
from kvplan.planning.speed.build import draft_stage, speed_profile
from kvplan.planning.speed.profile import SpeedProfile
from kvplan.record import replace
from kvplan.settings import LOOKUP_METHODS, MTP, Settings
from kvplan.simulation.time.draft_clock import DraftTime
from kvplan.weights.inventory import Inventory

_AT_ONCE = ("dflash", "dspark", "medusa")
"""Methods whose drafts are made in one pass."""


def draft_time(
    model: Model, settings: Settings, profile: SpeedProfile, inputs: tuple[Inventory, int, Assumptions],
    tokens: int,
) -> DraftTime:  # fmt: skip
    """The draft's share of a step: a model of its own, the model's prediction layers, or nothing.

    Raises RefusedError(no-step-time) where nobody says what drafts, and as `speed_profile`.
    """
    method, named, gpu = settings.speculative_method, settings.speculative_model, settings.gpu
    assert gpu is not None
    if method in LOOKUP_METHODS:
        return DraftTime(tokens, ())
    if named is not None:
        ranks = replace(profile.deployment, weight_bytes_per_rank=None, data_parallel_size=1)
        own, each, numbers = speed_inputs(named)
        stages = speed_profile(named, gpu, own, each, ranks, numbers).stages
        return DraftTime(tokens, stages, method in _AT_ONCE)
    inventory, per_token, table = inputs
    if method == MTP and inventory.draft:
        stage = draft_stage(model, gpu, inventory, per_token, profile.deployment, table)
        return DraftTime(tokens, (stage,))
    raise RefusedError(
        "no-step-time", f"what drafts for {model.id} by {method} is not known, nor how long it takes",
        help=("--speculative-model MODEL: the draft", "--step-time 6ms+25us*tokens+25ns*context"),
    )  # fmt: skip
