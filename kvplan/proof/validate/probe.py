"""This machine: the device, other processes on it, and its differences from the GPU of the plan."""

from __future__ import annotations

import os
import platform
from typing import Any

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.gpus.find import load_gpu
from kvplan.files.gpus.nvml import NvmlGpu, Process, read_nvml
from kvplan.gpu import Gpu, under_wsl
from kvplan.plans.findings import Finding, Severity
from kvplan.proof.validate import host
from kvplan.proof.validate.devices import CudaDevice, nvml_entry
from kvplan.record import record
from kvplan.units import MIB, gib

IDLE = 50
"""An idle device may show up to one part in so many as used: what the driver keeps."""
CONTEXT = 2 * 714_670_080
"""A process's own context at most, without a meter of its own: twice what it took in every receipt of
examples/evidence."""
_NEAR = 200
"""Totals that differ by less than one part in so many are the same device (drivers keep a little)."""
_SAME = MIB
"""Totals that differ by no more are not worth a word: releases of a driver differ by some pages."""


@record()
class Hardware:
    """One device as found. Sizes are bytes; None = not told."""

    name: str
    kind: str
    runtime_total: int | None = None
    """as torch.cuda.mem_get_info says"""
    nvml_total: int | None = None
    used: int | None = None
    """by everyone before this run, by NVML, which counts what the driver reserves for itself (its total
    less the runtime's)"""
    context: int | None = None
    """what this process then added beside what torch's allocator holds (context, handles and kernels of
    the matrix library)"""
    processes: tuple[Process, ...] | None = None
    """others on the device; None where no driver tells"""
    slug: str | None = None
    """the spec file that has its name"""
    driver: str | None = None
    runtime: str | None = None
    torch: str | None = None
    compute_capability: tuple[int, int] | None = None
    uuid: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    unified_memory: bool | None = None
    shared: bool = False
    """others may run on it (--shared)"""

    def model_dump(self) -> dict[str, Any]:
        """As a receipt has it. Numbers of processes stay here; their names and the device's UUID do not."""
        capability = self.compute_capability
        return {
            "name": self.name,
            "kind": self.kind,
            "gpu": self.slug,
            "memory_total_bytes": self.runtime_total,
            "memory_nvml_bytes": self.nvml_total,
            "used_before_bytes": self.used,
            "context_bytes": self.context,
            "other_processes": None if self.processes is None else len(self.processes),
            "driver": self.driver,
            "runtime": self.runtime,
            "torch": self.torch,
            "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
            "ecc": self.ecc,
            "mig": self.mig,
            "persistence": self.persistence,
            "unified_memory": self.unified_memory,
            **({"shared": True} if self.shared else {}),
        }


def probe_cpu(torch_version: str | None) -> Hardware:
    """The host, for a rehearsal."""
    return Hardware(
        platform.machine() or "host",
        "cpu",
        runtime_total=host.total_bytes(),
        torch=torch_version,
        runtime=platform.system() or None,
    )


def probe_cuda(device: CudaDevice, *, shared: bool = False) -> Hardware:
    """The device before this process has touched it, then what touching it costs.

    Raises CannotRunHere(gpu-in-use) before anything is touched; without NVML (AMD, MIG slices, containers)
    after the context was made, by what the runtime then says is used. The context's cost is NVML's figure
    after the first small product less the one before it and less torch's segments; without NVML it is not
    known, because asking the runtime already makes the context.
    """
    import torch

    before = nvml_entry(device.index)
    if before is not None:
        refuse_others(before, shared=shared)
    device.open()
    after = nvml_entry(device.index)
    properties = torch.cuda.get_device_properties(device.index)
    hip = getattr(torch.version, "hip", None)
    context = None
    if before is not None and after is not None and None not in (before.used_bytes, after.used_bytes):
        held = device.read().reserved or 0  # of torch's allocator, which an engine counts elsewhere
        context = max(0, (after.used_bytes or 0) - (before.used_bytes or 0) - held)
    name = str(properties.name)
    free, total = torch.cuda.mem_get_info(device.index)
    if before is None:
        refuse_used(name, int(total) - int(free) - (device.read().reserved or 0), int(total), shared=shared)
    return Hardware(
        name,
        "rocm" if hip else "cuda",
        runtime_total=int(total),
        nvml_total=before.memory_bytes if before else None,
        used=before.used_bytes if before else int(total) - int(free),
        context=context,
        processes=before.processes if before else None,
        slug=slug_of(name),
        driver=_driver(),
        runtime=f"ROCm {hip}" if hip else f"CUDA {torch.version.cuda}",
        torch=str(torch.__version__),
        compute_capability=None if hip else (int(properties.major), int(properties.minor)),
        uuid=before.uuid if before else None,
        ecc=before.ecc if before else None,
        mig=before.mig if before else None,
        persistence=before.persistence if before else None,
        unified_memory=bool(getattr(properties, "is_integrated", False)),
        shared=shared,
    )


def slug_of(name: str) -> str | None:
    """The spec file of the driver's name for a GPU, None where there is none."""
    try:
        return load_gpu(name).slug
    except KvplanError:
        return None


def _driver() -> str | None:
    try:
        return read_nvml().driver
    except CannotRunHere:
        return None


def compared(hardware: Hardware, spec: Gpu | None) -> tuple[Finding, ...]:
    """Differences between the device and the spec file that the budget was made from."""
    findings: list[Finding] = []

    def say(code: str, message: str, severity: Severity = Severity.WARNING, *detail: str) -> None:
        findings.append(Finding(code, severity, message, detail=detail))

    if spec is not None:
        if hardware.slug is not None and spec.arch != "unlisted" and not _is(hardware.slug, spec):
            say("other-gpu", f"the plan is for {spec.slug}, this is {hardware.slug}", Severity.ERROR)
        for what, ours, theirs in (
            ("the runtime's total", hardware.runtime_total, spec.memory_total_bytes),
            ("NVML's total", hardware.nvml_total, spec.memory_nvml_bytes),
        ):
            if ours is None or theirs is None or abs(ours - theirs) <= _SAME:
                continue
            far = abs(ours - theirs) * _NEAR > theirs
            say(
                "other-memory",
                f"{what} is {gib(ours)}, {_mib(abs(ours - theirs))}"
                f" {'less' if ours < theirs else 'more'} than the spec file of {spec.slug} says",
                Severity.WARNING if far else Severity.NOTE,
                f"measured {ours:,} B, spec {theirs:,} B, {ours - theirs:+,} B",
            )
        capability = hardware.compute_capability
        if None not in (capability, spec.compute_capability) and capability != spec.compute_capability:
            say(
                "other-capability",
                f"compute capability {capability}, the spec says {spec.compute_capability}",
            )
        if hardware.unified_memory is not None and hardware.unified_memory != spec.is_unified_memory:
            say("unified-memory", "the device and its spec file disagree on unified memory")
    if hardware.ecc is False:
        say("ecc-off", "ECC is switched off: GPUs of this kind with ECC may have less memory", Severity.NOTE)
    if hardware.mig:
        say("mig-on", "MIG is switched on: the figures are those of the slice", Severity.NOTE)
    if hardware.persistence is False:
        say(
            "no-persistence",
            "persistence mode is off: the first start on an idle GPU is slower",
            Severity.NOTE,
        )
    return tuple(findings)


def _is(slug: str, spec: Gpu) -> bool:
    """Whether the device's spec file is the plan's; under WSL the driver says the name of the card alone."""
    return spec.slug in (slug, under_wsl(load_gpu(slug)).slug)


def refuse_others(gpu: NvmlGpu, *, shared: bool) -> None:
    """Raises CannotRunHere(gpu-in-use) where others run on the device, unless told to share it.

    In a container the driver names no process of others, but what they hold counts as used, and so does what
    the driver reserves for itself.
    """
    others = [one for one in gpu.processes if one.pid != os.getpid()]
    held = max(0, (gpu.used_bytes or 0) - _reserved(gpu))
    if shared or not (others or held * IDLE > gpu.memory_bytes):
        return
    rows = [f"process {one.pid}: {_mib(one.used_bytes)}" for one in others]
    what = f"{len(others)} other process{'es run' if len(others) > 1 else ' runs'} on {gpu.name}"
    raise CannotRunHere(
        "gpu-in-use",
        what if others else f"{gib(held)} of {gpu.name} are taken by processes that the driver does not name",
        detail=rows,
        help=("wait until they end, or name another GPU: --gpu 1", "measure beside them: --shared"),
    )


def refuse_used(name: str, used: int, total: int, *, shared: bool) -> None:
    """The same by what the runtime says is used beside torch's own segments: all but this process's context.

    Raises CannotRunHere(gpu-in-use).
    """
    held = used - CONTEXT
    if shared or held * IDLE <= total:
        return
    raise CannotRunHere(
        "gpu-in-use",
        f"{gib(used)} of {name} are taken: by others, for a context of this process takes less",
        help=("wait until they end, or name another GPU: --gpu 1", "measure beside them: --shared"),
    )


def _reserved(gpu: NvmlGpu) -> int:
    """Bytes that the driver keeps of the device: NVML's total less the runtime's, by the spec file of that
    name."""
    try:
        spec = load_gpu(gpu.name)
    except KvplanError:
        return 0
    return 0 if spec.memory_total_bytes is None else max(0, gpu.memory_bytes - spec.memory_total_bytes)


def _mib(amount: int | None) -> str:
    return "memory not told" if amount is None else f"{amount // MIB:,} MiB"
