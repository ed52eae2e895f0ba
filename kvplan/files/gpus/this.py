"""``--gpu auto``: the GPU of this machine as a spec."""

from __future__ import annotations

from dataclasses import replace

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.gpus.find import UNLISTED, load_gpu
from kvplan.files.gpus.nvml import read_nvml
from kvplan.gpu import Gpu


def first_gpu() -> Gpu:
    """The first device: the packaged spec that has its name, else one made of what NVML says.

    Raises CannotRunHere(missing-extra | no-driver | no-gpu).
    """
    found = read_nvml().gpus
    if not found:
        raise CannotRunHere(
            "no-gpu",
            "this machine has no NVIDIA GPU",
            help="name one: --gpu h100, or its memory: --gpu 80GiB",
        )
    first = found[0]
    try:
        return replace(load_gpu(first.name), memory_nvml_bytes=first.memory_bytes)
    except KvplanError:
        return Gpu(
            slug=first.name.lower().replace(" ", "-"),
            name=first.name,
            vendor="nvidia",
            arch=UNLISTED,
            memory_marketing=f"{first.memory_bytes}B",
            memory_total_bytes=None,
            memory_nvml_bytes=first.memory_bytes,
            bandwidth_bytes_per_second=None,
            compute_capability=first.compute_capability,
        )
