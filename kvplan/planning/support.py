"""Which GPU runs which weights, and which ways of dividing are known on which maker's GPUs.

What the cache's rules refuse, the engines refuse themselves; this is what no rule of the cache looks at.
"""

from __future__ import annotations

from kvplan.engines.base import MIG_SLICES
from kvplan.engines.budget.law import Rejection
from kvplan.engines.traits import traits_of
from kvplan.planning.ask import Ask
from kvplan.planning.space import Class
from kvplan.plans.fleet import Offer


def unsupported(ask: Ask, one: Class, offer: Offer) -> Rejection | None:
    """Why this GPU does not run the class, whatever its memory; None where nothing is known against it."""
    gpu, label = offer.gpu, one.variant.label
    if gpu.is_mig_slice and one.layout.gpus > 1:
        return Rejection(MIG_SLICES, "ranks do not join over MIG slices: a process sees one")
    if one.layout.dcp > 1 and gpu.vendor != "nvidia":
        return Rejection("context-parallel", f"decode context parallelism is not known on {gpu.name}")
    known = traits_of(ask.choice.engine.name).weight_capabilities.get(label)
    capability = gpu.compute_capability
    if known is None or capability is None:
        return None
    least, gone, where = known
    has = f"{gpu.name} has {capability[0]}.{capability[1]}"
    if capability < least:
        needs = f"{label} weights need compute capability {least[0]}.{least[1]}"
        return Rejection("weights-format", f"{needs}; {has} ({where})")
    if gone is not None and capability >= gone:
        return Rejection("weights-format", f"{label} weights have no kernel from compute capability"
                                      f" {gone[0]}.{gone[1]} on; {has} ({where})")  # fmt: skip
    return None
