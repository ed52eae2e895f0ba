"""Which GPUs TGI runs on, and the attention that its images set.

huggingface/text-generation-inference 3.3.5: layers/attention/cuda.py refuses what is older than compute
capability 7.5; Dockerfile_amd builds for gfx90a and gfx942 and sets ``ATTENTION=paged``. Gaudi, Neuron, TPU
and Intel GPUs have images with memory rules of their own (backends/gaudi, backends/neuron, Dockerfile_intel),
which are not read here.
"""

from __future__ import annotations

from kvplan.engines.traits import not_on
from kvplan.gpu import Gpu

_OLDEST = (7, 5)
_ROCM = ("gfx90a", "gfx942")


def check(gpu: Gpu | None) -> None:
    """Raises KvplanError(engine-gpu)."""
    if gpu is None or (why := _why_not(gpu)) is None:
        return
    raise not_on(gpu, why)


def _why_not(gpu: Gpu) -> str | None:
    capability, target, vendor = gpu.compute_capability, gpu.device_target, gpu.vendor.lower()
    if vendor not in ("nvidia", "amd"):
        return f"the memory rules of TGI on {gpu.name} ({gpu.vendor}) are not known"
    if capability is not None and capability < _OLDEST:
        return f"TGI needs compute capability 7.5 or newer: {gpu.name} has {'.'.join(map(str, capability))}"
    if vendor == "amd" and target is not None and target not in _ROCM:
        return f"TGI's image for AMD is built for {' and '.join(_ROCM)}: {gpu.name} is {target}"
    return None


def attention_of_image(gpu: Gpu | None) -> str | None:
    """What the image's own ATTENTION says; None where the launcher decides."""
    return "paged" if gpu is not None and gpu.vendor.lower() == "amd" else None
