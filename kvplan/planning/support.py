"""Which GPU runs which weights, and which ways of dividing are known on which maker's GPUs.

What the cache's rules refuse, the engines refuse themselves; this is what no rule of the cache looks at.
"""

from __future__ import annotations

from kvplan.engines.budget.law import Fell
from kvplan.planning.ask import Ask
from kvplan.planning.space import Class
from kvplan.plans.fleet import Offer

Capability = tuple[int, int]
_VLLM: dict[str, tuple[Capability, Capability | None, str]] = {
    "fp8": ((7, 5), None, "layers/quantization/fp8.py, get_min_capability"),
    "int4": ((7, 5), None, "layers/quantization/auto_awq.py, get_min_capability"),
    "nvfp4": ((7, 5), None, "layers/quantization/modelopt.py, get_min_capability"),
    "mxfp4": ((8, 0), None, "layers/quantization/mxfp4.py, get_min_capability"),
    "int8": ((7, 5), (10, 0), "csrc/libtorch_stable/quantization/w8a8/cutlass/c3x/scaled_mm_helper.hpp"),
}
"""vllm-project/vllm 0.32: weights → the least compute capability, the first that has no kernel, and where it
says so. Older GPUs than the native ones run fp8, nvfp4 and mxfp4 by Marlin's weight-only kernels."""
WEIGHTS = {"vllm": _VLLM}


def unsupported(ask: Ask, one: Class, offer: Offer) -> Fell | None:
    """Why this GPU does not run the class, whatever its memory; None where nothing is known against it."""
    gpu, label = offer.gpu, one.variant.label
    if one.layout.dcp > 1 and gpu.vendor != "nvidia":
        return Fell("context-parallel", f"decode context parallelism is not known on {gpu.name}")
    known = WEIGHTS.get(ask.choice.engine.name, {}).get(label)
    capability = gpu.compute_capability
    if known is None or capability is None:
        return None
    least, gone, where = known
    has = f"{gpu.name} has {capability[0]}.{capability[1]}"
    if capability < least:
        return Fell("weights-format", f"{label} weights need compute capability {least[0]}.{least[1]}; {has}"
                                      f" ({where})")  # fmt: skip
    if gone is not None and capability >= gone:
        return Fell("weights-format", f"{label} weights have no kernel from compute capability"
                                      f" {gone[0]}.{gone[1]} on; {has} ({where})")  # fmt: skip
    return None
