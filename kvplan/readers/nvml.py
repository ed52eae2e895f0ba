"""The GPUs of this machine, as NVML (the library under nvidia-smi) tells. The only file that loads pynvml."""

from __future__ import annotations

from typing import Any

from kvplan.errors import CannotRunHere
from kvplan.record import record


@record()
class NvmlGpu:
    """One device. memory_bytes: NVML's total, a little more than what the CUDA runtime reports."""

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None = None


@record()
class Nvml:
    driver: str
    gpus: tuple[NvmlGpu, ...]


def read_nvml() -> Nvml:
    """Driver and devices. Raises CannotRunHere: missing-extra (pynvml), no-driver (no NVIDIA driver)."""
    try:
        import pynvml
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra",
            "reading GPUs needs the package nvidia-ml-py, which is not installed",
            help="pip install 'kvplan[gpu]'",
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise CannotRunHere("no-driver", f"no NVIDIA driver answers: {error}") from error
    try:
        return Nvml(_text(pynvml.nvmlSystemGetDriverVersion()), tuple(_gpus(pynvml)))
    except pynvml.NVMLError as error:
        raise CannotRunHere("no-driver", f"the NVIDIA driver does not answer: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def _gpus(pynvml: Any) -> list[NvmlGpu]:
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        try:
            capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))
        except pynvml.NVMLError:
            capability = ()
        found.append(
            NvmlGpu(
                _text(pynvml.nvmlDeviceGetName(handle)),
                int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                (int(capability[0]), int(capability[1])) if len(capability) == 2 else None,
            )
        )
    return found


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
