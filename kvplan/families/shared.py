"""Layers that keep nothing of their own: they share another layer's cache, or have no attention."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage
from kvplan.record import record
from kvplan.terms import Term


@record()
class SharedKv(Family):
    """Reads the cache of an earlier layer (Gemma-3n, Gemma-4, Hunyuan CLA): 0 bytes.

    ``library_kv_heads`` and ``library_head_dim``: the transformers class ignores the sharing and
    keeps K and V all the same (models/hunyuan_v1_dense, models/hunyuan_v1_moe).
    """

    library_kv_heads: int = 0
    library_head_dim: int = 0

    family: ClassVar[str] = "shared_kv"
    kind: ClassVar[Kind] = Kind.NONE
    formula: ClassVar[str] = "0"
    source: ClassVar[str] = "Brandon et al., Cross-Layer Attention (arXiv 2405.12981); Gemma-3n report"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return ()


@record()
class NoCache(Family):
    """A layer without attention or state (MLP or experts only, a skipped block): 0 bytes."""

    family: ClassVar[str] = "no_cache"
    kind: ClassVar[Kind] = Kind.NONE
    formula: ClassVar[str] = "0"
    source: ClassVar[str] = "Puzzle (arXiv 2411.19146); Nemotron-H (arXiv 2504.03624)"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return ()
