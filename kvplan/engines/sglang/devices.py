"""What SGLang's rules ask of a GPU."""

from __future__ import annotations

from kvplan.engines.traits import not_on
from kvplan.gpu import Gpu
from kvplan.record import record
from kvplan.units import MIB


@record()
class Device:
    """capability: compute capability; memory_mib: as nvidia-smi shows it, None where unknown."""

    name: str
    capability: tuple[int, int]
    memory_mib: int | None
    nvidia: bool = True

    @property
    def major(self) -> int:
        return self.capability[0]


_OLDEST = (7, 5)
"""sgl-project/sglang python/sglang/srt/model_executor/model_runner.py: "only supports sm75 and above"."""
_ROCM = ("gfx942", "gfx950")
"""sgl-project/sglang sgl-kernel/setup_rocm.py: others are built on request, untested."""
ASSUMED = Device("h100-sxm-80gb (assumed)", (9, 0), 81559)


def device_of(gpu: Gpu | None) -> Device:
    """The GPU's facts; without one an H100's. Raises KvplanError(engine-gpu) for other accelerators."""
    if gpu is None:
        return ASSUMED
    if gpu.vendor.lower() not in ("nvidia", "amd"):
        why = f"the rules of SGLang on {gpu.name} ({gpu.vendor}) are not known"
        raise not_on(gpu, why, "choose an NVIDIA or AMD GPU")
    if (unbuilt := _unbuilt(gpu)) is not None:
        raise not_on(gpu, unbuilt, "choose another GPU")
    memory = gpu.memory_nvml_bytes or gpu.memory_total_bytes
    return Device(
        gpu.name,
        gpu.compute_capability or (9, 0),
        None if memory is None else memory // MIB,
        gpu.vendor.lower() == "nvidia",
    )


def _unbuilt(gpu: Gpu) -> str | None:
    """Why its kernels do not run there; None where they do."""
    capability, target = gpu.compute_capability, gpu.device_target
    if capability is not None and capability < _OLDEST:
        return (
            f"SGLang needs compute capability 7.5 or newer: {gpu.name} has {'.'.join(map(str, capability))}"
        )
    if target is not None and target not in _ROCM:
        return f"SGLang's kernels are built for {' and '.join(_ROCM)}: {gpu.name} is {target}"
    return None
