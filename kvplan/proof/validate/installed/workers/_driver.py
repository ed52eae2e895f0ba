"""The GPUs that an engine's process sees, as NVML names them; asking makes no context, as the runtime would.

Numbers of CUDA_VISIBLE_DEVICES are taken for NVML's, as vLLM takes them (vllm-project/vllm 0.32
platforms/cuda.py, device_id_to_physical_device_id).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvplan.files.gpus.nvml import NvmlGpu

_MASK = "CUDA_VISIBLE_DEVICES"
_FLASHINFER = "flashinfer-python"


_before: dict[str, Any] = {}
"""The reading of the greeting, before the engine runs."""


def at_first() -> dict[str, Any]:
    """`seen` without this session's own processes, kept to be held against a later reading."""
    _before.clear()
    _before.update(seen())
    for gpu in _before.get("devices", ()):
        gpu["processes"] = [one for one in gpu["processes"] if not _is_ours(one[0])]
    return dict(_before)


def seen() -> dict[str, Any]:
    """The driver, and every GPU under the mask; empty where nothing is told.

    NVML's package is nvidia-ml-py's or the copy that vLLM brings.
    """
    try:
        try:
            importlib.import_module("pynvml")
        except ImportError:
            sys.modules["pynvml"] = importlib.import_module("vllm.third_party.pynvml")
        from kvplan.files.gpus.nvml import read_nvml

        found = read_nvml()
    except Exception:  # a receipt says null, the run goes on
        return {}
    return {"driver": found.driver, "devices": [_told(gpu) for gpu in masked(found.gpus, os.environ)]}


def masked(gpus: Sequence[NvmlGpu], variables: Mapping[str, str]) -> list[NvmlGpu]:
    """The GPUs that the mask leaves, in its order; none from the first word on that NVML has no entry for (a
    MIG slice)."""
    if _MASK not in variables:
        return list(gpus)
    found: list[NvmlGpu] = []
    for word in (one.strip() for one in variables[_MASK].split(",")):
        if word.isdecimal():
            named = [gpus[int(word)]] if int(word) < len(gpus) else []
        else:
            named = [gpu for gpu in gpus if word and (gpu.uuid or "").startswith(word)]
        if len(named) != 1:
            break
        found += named
    return found


def _told(gpu: NvmlGpu) -> dict[str, object]:
    return {
        "name": gpu.name,
        "total": gpu.memory_bytes,
        "used": gpu.used_bytes,
        "processes": [[one.pid, one.used_bytes] for one in gpu.processes],
        "compute_capability": gpu.compute_capability,
        "ecc": gpu.ecc,
        "mig": gpu.mig,
        "persistence": gpu.persistence,
    }


def of_others(told: Mapping[str, Any]) -> int | None:
    """Bytes that processes outside this session hold of all GPUs; None where one of them is not told."""
    held = [used for gpu in told.get("devices", ()) for pid, used in gpu["processes"] if not _is_ours(pid)]
    return None if None in held else sum(held)


def names_us(told: Mapping[str, Any]) -> bool:
    """Whether the driver names processes as this session numbers them: not from within a container."""
    return any(_is_ours(pid) for gpu in told.get("devices", ()) for pid, _ in gpu["processes"])


def _is_ours(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except (OSError, AttributeError):
        return False


def grown() -> int | None:
    """Bytes that others took since the greeting (below zero: gave back); None where nobody can tell."""
    after = seen()
    first, last = of_others(_before), of_others(after)
    return last - first if first is not None and last is not None and names_us(after) else None


def flashinfer() -> str | None:
    """The installed release of FlashInfer, whose kernels an engine takes where they are."""
    try:
        return metadata.version(_FLASHINFER)
    except metadata.PackageNotFoundError:
        return None
