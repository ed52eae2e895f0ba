"""transformers' DynamicCache and StaticCache: the tensors of `kvplan.validate.layouts.generic`."""

from __future__ import annotations

from kvplan.model import Model
from kvplan.settings import Settings
from kvplan.validate.layouts import generic
from kvplan.validate.layouts.base import Layout, Rank


def layout(model: Model, settings: Settings, version: str, rank: Rank) -> Layout:
    """Every tensor of the cache of ``settings.requests`` requests on the one device."""
    return generic.layout(model, settings, version, rank, engine="transformers")
