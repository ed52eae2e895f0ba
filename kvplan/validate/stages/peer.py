"""How fast a cache moves to a second GPU of this machine, where there is one that nobody uses.

What disaggregated prefill hands over is blocks of the pool: a contiguous copy is the most that a link gives.
Torch takes NVLink or PCIe peer access where the driver allows it, else it goes through host memory: the note
says which. The other GPU is asked of the driver first, and left alone where anybody is on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kvplan.errors import CannotRunHere
from kvplan.units import MIB
from kvplan.validate.devices import nvml_entry
from kvplan.validate.probe import refuse_others
from kvplan.validate.stages.base import SPEED, Bench

MOST = 256 * MIB
"""Bytes that are copied at a time."""

Speed = Callable[[Bench, Callable[[], Any], int], int]


def measure(bench: Bench, tensor: Any, speed: Speed) -> None:
    """Copies to the other GPU and back; a note where there is none to use."""
    import torch

    mine = int(str(bench.device.name).partition(":")[2] or 0)
    other = next((one for one in range(torch.cuda.device_count()) if one != mine), None)
    if other is None:
        return
    why_not = in_use(other)
    if why_not is not None:
        bench.note(f"no copy between GPUs was measured: {why_not}")
        return
    direct = torch.cuda.can_device_access_peer(mine, other)
    bench.note(f"GPU {mine} and {other}: {'peer access' if direct else 'copies go through host memory'}")
    part = tensor[: MOST // 8]
    moved = int(part.numel()) * 8
    away = torch.empty(part.shape, dtype=part.dtype, device=f"cuda:{other}")
    for name, target, source in (("to_peer", away, part), ("from_peer", part, away)):
        found = speed(bench, partial(target.copy_, source), moved)
        bench.figure(f"{name}_bytes_per_second", None, found, unit=SPEED)


def in_use(index: int) -> str | None:
    """Why another GPU is left alone: others run on it, or nobody can say. None: it is free."""
    entry = nvml_entry(index)
    if entry is None:
        return f"NVML does not say who is on GPU {index}"
    try:
        refuse_others(entry, shared=False)
    except CannotRunHere as error:
        return error.message
    return None
