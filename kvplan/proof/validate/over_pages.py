"""Attention over the pages themselves, once all else is known: the engine's kernels, then FlexAttention.

The engine's decide: what they find wrong refutes, and what they find right confirms, since neither their
addressing nor their arithmetic is kvplan's. A kernel that does not run says so and proves nothing either way.
"""

from __future__ import annotations

from kvplan.engines.tensors import Layout, Rank
from kvplan.plans.receipt import Figure
from kvplan.proof.validate.attention import AttentionError
from kvplan.proof.validate.blocks import BlockTables
from kvplan.proof.validate.engine_kernels import OWN, attend_with_engine, kernels_for
from kvplan.proof.validate.in_place import KERNEL, attend_in_place
from kvplan.proof.validate.memory import allocate
from kvplan.proof.validate.reasons import reason_of
from kvplan.proof.validate.stages.base import COUNT, EXACT, Bench
from kvplan.proof.validate.target import Target

STAGE = "attention in place"


def over_pages(bench: Bench, target: Target, rank: Rank, *, engine: bool) -> tuple[AttentionError, ...]:
    """This rank's kernels, reading the pages; no error in them ends the run."""
    bench.stage = STAGE
    if bench.stopped():
        bench.note("no kernel read the pages themselves: the time was up")
        return ()
    try:
        layout = target.layout(rank)
        if not bench.device.is_gpu and not runs_on_cpu(layout):
            return ()
        with allocate(layout, bench.device.name) as cache:
            by_engine = attend_with_engine(cache, BlockTables(cache.layout)) if engine else ()
            in_place = attend_in_place(cache, BlockTables(cache.layout)) if bench.device.is_gpu else ()
            return (*by_engine, *in_place)
    except Exception as error:
        bench.note(f"no kernel read the pages themselves: {reason_of(error)}")
        return ()


def runs_on_cpu(layout: Layout) -> bool:
    """Whether the engine's own code over these pages needs no GPU."""
    return bool(getattr(kernels_for(layout), "ON_CPU", False))


def figures_of(found: tuple[AttentionError, ...], rank: int) -> list[Figure]:
    """How many kinds of layer the engine's own kernels find elsewhere, of those that they read."""
    read = [one for one in found if one.ran and one.kernel not in (OWN, KERNEL)]
    if not read:
        return []
    wrong = sum(not one.ok for one in read)
    return [
        Figure("engine_kernels_wrong", COUNT, 0, wrong, EXACT, STAGE, rank, independent=True),
        Figure("engine_kernels_read", COUNT, None, len(read), None, STAGE, rank),
    ]
