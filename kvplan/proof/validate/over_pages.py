"""Attention over the pages themselves, once all else is known, by the engine's own kernels.

They decide: what they find wrong refutes, and what they find right confirms, since neither their addressing
nor their arithmetic is kvplan's. A kernel that does not run says so and proves nothing either way.
"""

from __future__ import annotations

from kvplan.engines.tensors import Rank
from kvplan.plans.receipt import Figure
from kvplan.proof.validate.attention import AttentionError
from kvplan.proof.validate.blocks import BlockTables
from kvplan.proof.validate.engine_kernels import attend_with_engine, kernels_for
from kvplan.proof.validate.memory import allocate
from kvplan.proof.validate.reasons import reason_of
from kvplan.proof.validate.stages.base import COUNT, EXACT, Bench
from kvplan.proof.validate.target import Target

STAGE = "attention in place"


def over_pages(bench: Bench, target: Target, rank: Rank) -> tuple[AttentionError, ...]:
    """This rank's kernels, reading the pages; no error in them ends the run."""
    bench.stage = STAGE
    if bench.stopped():
        bench.note("no kernel read the pages themselves: the time was up")
        return ()
    try:
        layout = target.layout(rank)
        kernels = kernels_for(layout)
        if kernels is None or not (bench.device.is_gpu or getattr(kernels, "ON_CPU", False)):
            return ()
        with allocate(layout, bench.device.name) as cache:
            return attend_with_engine(cache, BlockTables(cache.layout))
    except Exception as error:
        bench.note(f"no kernel read the pages themselves: {reason_of(error)}")
        return ()


def figures_of(found: tuple[AttentionError, ...], rank: int) -> list[Figure]:
    """How many kinds of layer the engine's own kernels find elsewhere, of those that they read."""
    read = [one for one in found if one.ran]
    if not read:
        return []
    wrong = sum(not one.ok for one in read)
    return [
        Figure("engine_kernels_wrong", COUNT, 0, wrong, EXACT, STAGE, rank, independent=True),
        Figure("engine_kernels_read", COUNT, None, len(read), None, STAGE, rank),
    ]
