"""Which GPU runs which weights, and which ways of dividing are known on which maker's GPUs.

What the cache's rules refuse, the engines refuse themselves; this is what no rule of the cache looks at.
"""

from __future__ import annotations

from kvplan.engines.base import MIG_SLICES
from kvplan.engines.budget.law import Rejection
from kvplan.engines.traits import without_kernel
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
    if one.variant is ask.variants[0] and gpu.vendor == "amd":
        return None  # emulated as it may be, it was asked for: a warning tells
    why = without_kernel(ask.choice.engine.name, label, gpu)
    return None if why is None else Rejection("weights-format", why)
