"""``--gpu auto``: the GPU of this machine as a spec."""

from __future__ import annotations

from kvplan.errors import CannotRunHere
from kvplan.files.gpus.find import UNLISTED, load_gpu
from kvplan.files.gpus.listed import find_slugs, memories_of, with_memory
from kvplan.files.gpus.machine import APPLE, NVIDIA, SeenGpu, in_wsl, seen_gpus
from kvplan.gpu import Gpu, under_wsl
from kvplan.record import replace
from kvplan.units import GIB, MIB, parse_bytes

_IDLE = 64 * MIB
"""Less than this is what a driver shows of a card that nobody uses."""
_OTHER = 8
"""Hundredths by which what is seen differs from what is sold: with ECC, 6 (L40: 44.99 of 48 GiB)."""


def first_gpu() -> Gpu:
    """The first GPU: the packaged spec that has its name, else one made of what was seen.

    Raises CannotRunHere: no-gpu; no-gpu-name (a GPU whose name no tool tells, and that is not NVIDIA's, or
    that is divided into MIG slices).
    """
    seen = seen_gpus()[0]
    if seen.is_divided:
        raise CannotRunHere(
            "no-gpu-name", f"{seen.name} is divided into MIG slices, and {seen.by} tells of the whole",
            help="name the slice: --gpu h100-sxm-80gb-mig-3g.40gb, as `kvplan list gpus` lists them",
        )  # fmt: skip
    slugs = find_slugs(seen.name)
    if not slugs or len({load_gpu(slug).name for slug in slugs}) > 1:
        return _unlisted(seen)
    listed = load_gpu(slugs[0])
    if seen.vendor == APPLE:
        return _of_this_mac(listed, seen)
    if seen.memory_bytes is None:
        return listed
    nearest = replace(_nearest(listed, seen.memory_bytes), memory_nvml_bytes=seen.memory_bytes)
    sold = parse_bytes(nearest.memory_marketing.replace("GB", "GiB"))
    if abs(sold - seen.memory_bytes) * 100 > sold * _OTHER:  # a modified card, or a share of one
        nearest = replace(nearest, memory_total_bytes=None, memory_totals_seen=())
    return _in_use(under_wsl(nearest) if in_wsl() else nearest, seen)


def _in_use(gpu: Gpu, seen: SeenGpu) -> Gpu:
    """With what is free of it now, where others hold a part of it: a desktop, another server."""
    if not seen.used_bytes or seen.used_bytes < _IDLE or seen.memory_bytes is None or gpu.is_unified_memory:
        return gpu
    return replace(gpu, memory_free_seen=(max(seen.memory_bytes - seen.used_bytes, 0),))


def _nearest(listed: Gpu, memory: int) -> Gpu:
    """The one of a card's memories that is seen: drivers call the RTX 4060 Ti with 8 and with 16 GB alike."""
    return min(
        memories_of(listed),
        key=lambda gpu: (abs(parse_bytes(gpu.memory_marketing.replace("GB", "GiB")) - memory), gpu.slug),
    )


def _of_this_mac(listed: Gpu, seen: SeenGpu) -> Gpu:
    """A chip is sold with several memories: this machine's counts, and the limit where the owner set one."""
    return replace(with_memory(listed, (seen.memory_bytes or 0) // GIB), memory_total_bytes=seen.limit_bytes)


def _unlisted(seen: SeenGpu) -> Gpu:
    if seen.vendor not in (NVIDIA, APPLE) or seen.memory_bytes is None:
        amount = "" if seen.memory_bytes is None else f" with {seen.memory_bytes / GIB:.1f} GiB"
        raise CannotRunHere(
            "no-gpu-name",
            f"{seen.by} tells of {seen.name}{amount}, which is no GPU that kvplan knows",
            help="name it: --gpu mi300x, as `kvplan list gpus` lists it",
        )
    mac = seen.vendor == APPLE
    return Gpu(
        slug=seen.name.lower().replace(" ", "-"),
        name=seen.name,
        vendor=seen.vendor,
        arch="Apple silicon" if mac else UNLISTED,
        memory_marketing=f"{seen.memory_bytes // GIB} GB" if mac else f"{seen.memory_bytes}B",
        memory_total_bytes=seen.limit_bytes if mac else None,
        memory_nvml_bytes=None if mac else seen.memory_bytes,
        bandwidth_bytes_per_second=None,
        compute_capability=seen.compute_capability,
        device_target="metal" if mac else None,
        is_unified_memory=mac,
    )
