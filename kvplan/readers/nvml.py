"""The GPU of this machine, as NVML reports it (extra ``gpu``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.gpu import Gpu
from kvplan.readers.gpus import UNLISTED, load_gpu

_HELP = "name the GPU instead: --gpu h100, or --gpu 80GiB"


def first_gpu() -> Gpu:
    """The first device: the packaged spec that has its name, else one made of what NVML says.

    Raises CannotRunHere(missing-extra | no-gpu).
    """
    try:
        import pynvml
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra", "--gpu auto needs the nvidia-ml-py package", help="pip install 'kvplan[gpu]'"
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise CannotRunHere("no-gpu", f"no NVIDIA driver answers here: {error}", help=_HELP) from error
    try:
        if pynvml.nvmlDeviceGetCount() == 0:
            raise CannotRunHere("no-gpu", "this machine has no NVIDIA GPU", help=_HELP)
        return _described(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0))
    except pynvml.NVMLError as error:
        raise CannotRunHere("no-gpu", f"NVML does not answer: {error}", help=_HELP) from error
    finally:
        pynvml.nvmlShutdown()


def _described(pynvml: Any, handle: Any) -> Gpu:
    name = pynvml.nvmlDeviceGetName(handle)
    name = name.decode() if isinstance(name, bytes) else str(name)
    total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    try:
        return replace(load_gpu(name), memory_nvml_bytes=total)
    except KvplanError:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        return Gpu(
            slug=name.lower().replace(" ", "-"),
            name=name,
            vendor="nvidia",
            arch=UNLISTED,
            memory_marketing=f"{total}B",
            memory_total_bytes=None,
            memory_nvml_bytes=total,
            bandwidth_bytes_per_second=None,
            compute_capability=(major, minor),
        )
