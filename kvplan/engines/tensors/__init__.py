"""The tensors of one rank under an engine, as its folder has them (``tensors``), else one a term."""

from __future__ import annotations

from kvplan.engines.folders import part_of
from kvplan.engines.tensors.base import (
    Allocation,
    BlockPool,
    Component,
    Group,
    GroupKind,
    Layout,
    Rank,
    View,
)
from kvplan.model import Model
from kvplan.settings import Settings

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
    """The allocation of one rank for ``settings.kv_cache_memory`` bytes (transformers: for the requests).

    Raises KvplanError(no-memory, unsupported-setting, engine-refuses …).
    """
    own = part_of(engine, "tensors")
    if own is None:
        from kvplan.engines.tensors import generic

        return generic.layout(model, settings, version, rank or Rank(), engine)
    layout: Layout = own.layout(model, settings, version, rank or Rank())
    return layout
