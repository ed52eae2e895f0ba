"""How the GPUs of one server talk to each other: what several ranks keep beside torch depends on it.

Told from a GPU's spec, never from the number of GPUs: NVSwitch boards (SXM), those of Blackwell (B200), racks
in which 72 GPUs share one NVLink domain (GB200, GB300), cards in PCIe slots (with or without a bridge; those
before Ampere apart, whose starts keep less), GeForce cards (whose driver lets them reach each other over the
CPU's memory alone), memory shared with the CPU (GB10, Jetson), and other vendors.
"""

from __future__ import annotations

from kvplan.gpu import Gpu

NVSWITCH, BLACKWELL, RACK, PCIE, OLDER, GEFORCE, UNIFIED, OTHER = (
    *("nvswitch", "blackwell", "rack"),
    *("pcie", "older", "geforce", "unified", "other"),
)
_SWITCHED = 300 * 10**9
"""Bytes a second of NVLink, both directions, from which on boards are sold whole (V100 SXM2)."""
_RACK = 1800 * 10**9
_RACK_TRAY = 4
"""GPUs of one operating system in a rack of 72."""
_SLOTS = ("-pcie", "-nvl")
_AMPERE = (8, 0)


def board_of(gpu: Gpu) -> str:
    """The kind of board: one of the words above."""
    if gpu.is_unified_memory:
        return UNIFIED
    if gpu.vendor.lower() != "nvidia":
        return OTHER
    if "GeForce" in gpu.name:
        return GEFORCE
    link = gpu.nvlink_bytes_per_second or 0
    if link < _SWITCHED or any(word in gpu.slug for word in _SLOTS):
        return OLDER if (gpu.compute_capability or _AMPERE) < _AMPERE else PCIE
    if link < _RACK:
        return NVSWITCH
    return RACK if gpu.gpus_per_node == _RACK_TRAY else BLACKWELL
