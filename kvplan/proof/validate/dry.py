"""``--dry-run``: what would be allocated, without torch and without touching anything."""

from __future__ import annotations

from typing import Any

from kvplan.engines.tensors import Layout, Rank
from kvplan.proof.validate.rank_run import WORKING
from kvplan.proof.validate.stages.ballast import try_ballast
from kvplan.proof.validate.target import Target
from kvplan.record import record
from kvplan.weights.caching_allocator import reserved_for


@record()
class DryRank:
    """One rank: bytes and numbers of tensors. reserved: what torch's allocator asks of a GPU for the pool.
    beside: what a run on a GPU holds beside the pool at most: weights, and what it works with."""

    rank: Rank
    weights_bytes: int
    weights_tensors: int
    pool_bytes: int
    pool_tensors: int
    pool_reserved_bytes: int
    num_blocks: tuple[int, ...]
    requests: int
    beside_bytes: int


@record()
class DryRun:
    """The allocation of a run of the target. on_gpu: weights and the whole probe are held there."""

    target: Target
    on_gpu: bool
    ranks: tuple[DryRank, ...]
    layouts: tuple[Layout, ...]
    notes: tuple[str, ...]

    def model_dump(self) -> dict[str, Any]:
        """The JSON of ``kvplan validate --dry-run --json``."""
        names = [name for name in DryRank.__slots__ if name not in ("rank", "num_blocks")]  # type: ignore[attr-defined]
        request = self.target.result.request
        return {
            "dry_run": True,
            "kind": "proof" if self.on_gpu else "rehearsal",
            "model": self.target.model.id,
            "engine": {"name": self.target.choice.engine.name, "version": self.target.choice.version},
            "plan_hash": self.target.hash,
            "tokens": request.tokens,
            "settings": self.target.shown_settings(),
            "ranks": [
                {
                    "stage": one.rank.stage,
                    "tensor": one.rank.tensor,
                    "context": one.rank.context,
                    **{name: getattr(one, name) for name in names},
                    "num_blocks": list(one.num_blocks),
                }
                for one in self.ranks
            ],
            "notes": list(self.notes),
        }


def dry_run(target: Target, *, on_gpu: bool) -> DryRun:
    """Every rank of one replica. Raises KvplanError(engine-refuses | unsupported-setting …)."""
    ranks, layouts, notes = [], [], list(target.notes)
    for rank in target.ranks:
        layout = target.layout(rank)
        weights, why_not = try_ballast(target, rank)
        if why_not is not None and why_not not in notes:
            notes.append(why_not)
        sizes = [allocation.bytes for allocation in layout.allocations]
        ranks.append(
            DryRank(
                rank,
                weights.bytes if on_gpu else 0,
                len(weights.tensors) if on_gpu else 0,
                sum(sizes),
                len(sizes),
                reserved_for(sizes),
                tuple(pool.num_blocks for pool in layout.pools),
                target.at_once(layout.requests),
                weights.bytes + weights.beside + WORKING,
            )
        )
        layouts.append(layout)
    return DryRun(target, on_gpu, tuple(ranks), tuple(layouts), tuple(notes))
