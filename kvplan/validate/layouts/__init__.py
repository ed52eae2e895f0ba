"""The tensors of one rank under an engine: ``layout_of`` dispatches on the engine's name."""

from __future__ import annotations

from kvplan.model import Model
from kvplan.settings import Settings
from kvplan.validate.layouts.base import (
    Allocation,
    BlockPool,
    Component,
    Group,
    GroupKind,
    Layout,
    Rank,
    View,
)

__all__ = [
    "Allocation",
    "BlockPool",
    "Component",
    "Group",
    "GroupKind",
    "Layout",
    "Rank",
    "View",
    "layout_of",
]


def layout_of(
    model: Model, engine: str, version: str, settings: Settings, rank: Rank | None = None
) -> Layout:
    """What one rank allocates for ``settings.kv_cache_memory`` bytes (transformers: for the requests).

    Raises KvplanError(no-memory, unsupported-setting, engine-refuses …).
    """
    from importlib import import_module

    module = import_module(f"kvplan.validate.layouts.{engine}")
    layout: Layout = module.layout(model, settings, version, rank or Rank())
    return layout
