"""Where a validation runs, and the three meters that read its memory.

``CudaDevice`` also serves ROCm, whose torch has the same ``torch.cuda`` (nobody has run it there yet).
``CpuDevice`` is host memory: what it counts is a rehearsal, never the capacity of a GPU.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kvplan.errors import CannotRunHere
from kvplan.files.gpus.nvml import NvmlGpu, read_nvml
from kvplan.proof.validate import host
from kvplan.record import record

CPU = "cpu"
_SHORTAGE = ("out of memory", "alloc_failed", "erroroutofmemory", "defaultcpuallocator")
"""Words of a RuntimeError where memory ran out, in small letters."""


@record()
class Meters:
    """One reading, bytes; None where the device has no such meter.

    requested: of the tensors as asked for. allocated, reserved: torch's blocks and segments. device: used on
    the device by everyone, as the runtime says (total - free); nvml: as the driver says. others: used by
    other processes, where the driver names them. process: of this process in host memory.
    """

    requested: int
    allocated: int | None = None
    reserved: int | None = None
    device: int | None = None
    nvml: int | None = None
    others: int | None = None
    process: int | None = None


class Device(Protocol):
    """The interface of the place where the stages run."""

    name: str
    is_gpu: bool

    def read(self) -> Meters:
        """The meters now, after all work has ended."""

    def free_bytes(self) -> int | None:
        """Bytes that nobody holds."""

    def count(self, amount: int) -> None:
        """So many bytes of tensors were made (or, below zero, dropped); a GPU's allocator counts itself."""

    def synchronize(self) -> None:
        """Wait for all work."""

    def release(self) -> None:
        """Give what the allocator keeps back to the device."""

    def segments(self) -> Sequence[Mapping[str, object]]:
        """Memory that torch's allocator holds of the device now."""


class CpuDevice:
    """Host memory, shared evenly by the ranks on this machine. Bytes are counted by those who make and drop
    tensors."""

    name = CPU
    is_gpu = False

    def __init__(self, sharers: int = 1) -> None:
        self._sharers = sharers
        self._held = 0

    def read(self) -> Meters:
        return Meters(self._held, process=host.resident_bytes())

    def free_bytes(self) -> int | None:
        free = host.free_bytes()
        return None if free is None else free // self._sharers

    def count(self, amount: int) -> None:
        self._held += amount

    def synchronize(self) -> None:
        """Host memory has no queue of work."""

    def release(self) -> None:
        """Host memory goes back with its tensors."""

    def segments(self) -> Sequence[Mapping[str, object]]:
        return ()


class CudaDevice:
    """One CUDA (or HIP) device, by its number among those that this process sees."""

    is_gpu = True

    def __init__(self, index: int) -> None:
        import torch

        self.index, self.name = index, f"cuda:{index}"
        self._cuda = torch.cuda

    def open(self) -> None:
        """The context and the handles of the matrix library: one small product, whose workspace goes back."""
        import torch

        torch.cuda.set_device(self.index)
        one = torch.zeros((64, 64), dtype=torch.float16, device=self.name)
        torch.mm(one, one)
        del one
        self.synchronize()
        self.release()

    def read(self) -> Meters:
        self.synchronize()
        stats = self._stats()
        free, total = self._cuda.mem_get_info(self.index)
        entry = nvml_entry(self.index)
        return Meters(
            stats.get("requested_bytes.all.current", stats.get("allocated_bytes.all.current", 0)),
            stats.get("allocated_bytes.all.current", 0),
            stats.get("reserved_bytes.all.current", 0),
            int(total) - int(free),
            None if entry is None else entry.used_bytes,
            None if entry is None else of_others(entry),
            host.resident_bytes(),
        )

    def runtime_total(self) -> int:
        """The device's memory as the runtime reports it, bytes."""
        return int(self._cuda.mem_get_info(self.index)[1])

    def free_bytes(self) -> int | None:
        return int(self._cuda.mem_get_info(self.index)[0])

    def count(self, amount: int) -> None:
        """torch's allocator counts for itself."""

    def synchronize(self) -> None:
        self._cuda.synchronize(self.index)

    def release(self) -> None:
        """Also the matrix library's workspaces, which torch would keep, so that every reading begins alike.

        Never raises: after a fault every call of the runtime fails, and the first error is what counts.
        """
        import gc

        gc.collect()
        with contextlib.suppress(RuntimeError):
            clear_workspaces()
            self._cuda.empty_cache()

    def segments(self) -> Sequence[Mapping[str, object]]:
        """Memory that torch's allocator holds now, segment by segment (torch.cuda.memory_snapshot)."""
        found: Sequence[Mapping[str, object]] = self._cuda.memory_snapshot()
        return [one for one in found if one.get("device", self.index) == self.index]

    def _stats(self) -> Mapping[str, int]:
        """torch.cuda.memory_stats: requested_bytes is there since 2.1."""
        found: Mapping[str, int] = self._cuda.memory_stats(self.index)
        return found


def of_others(entry: NvmlGpu) -> int | None:
    """Bytes of other processes on a GPU; None where this process is not among those that the driver names (in
    a container), or where one's memory is not told."""
    held = [one.used_bytes for one in entry.processes if one.pid != os.getpid()]
    if len(held) == len(entry.processes) or None in held:
        return None
    return sum(one or 0 for one in held)


def clear_workspaces() -> None:
    """Give back the workspaces that cuBLAS keeps, one for each handle and stream: 8,519,680 B by default, 32
    MiB on compute capability 9.0 (pytorch/pytorch 2.11 aten/src/ATen/cuda/CublasHandlePool.cpp)."""
    import torch

    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()


def is_out_of_memory(error: BaseException | None) -> bool:
    """Memory that ran out, under whatever name: torch.OutOfMemoryError and MemoryError, torch's allocator of
    host memory, CUBLAS_STATUS_ALLOC_FAILED and its like, "CUDA error: out of memory" (graphs, pinned memory,
    kernels that load late), also behind the error that it led to."""
    import torch

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _SHORTAGE):
            return True
        error = error.__cause__ or error.__context__
    return False


def open_device(name: str, *, sharers: int = 1) -> CpuDevice | CudaDevice:
    """``cpu`` (which so many ranks share) or ``cuda:N``. Raises CannotRunHere(missing-extra | no-gpu)."""
    torch = need_torch()
    if name == CPU:
        return CpuDevice(sharers)
    index = int(name.partition(":")[2] or 0)
    if not torch.cuda.is_available():
        raise CannotRunHere(
            "no-gpu",
            "torch sees no CUDA device on this machine",
            help="rehearse on host memory: --device cpu",
        )
    there = int(torch.cuda.device_count())
    if index >= there:
        raise CannotRunHere("no-gpu", f"there is no GPU {index}: torch sees {there}, counted from 0")
    return CudaDevice(index)


def need_torch() -> Any:
    """The torch module. Raises CannotRunHere(missing-extra)."""
    try:
        import torch
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra",
            "validating needs torch, which is not installed",
            help="pip install 'kvplan[gpu]'",
        ) from error
    return torch


def nvml_entry(index: int) -> NvmlGpu | None:
    """NVML's entry of torch's device ``index``, matched by UUID, else by name and place; None without NVML.

    CUDA_VISIBLE_DEVICES and CUDA's own order make torch's numbers differ from NVML's.
    """
    import torch

    try:
        gpus = read_nvml().gpus
    except CannotRunHere:
        return None
    properties = torch.cuda.get_device_properties(index)
    uuid = str(getattr(properties, "uuid", "")).removeprefix("GPU-")
    for gpu in gpus:
        if uuid and gpu.uuid is not None and gpu.uuid.removeprefix("GPU-") == uuid:
            return gpu
    return gpus[index] if index < len(gpus) and gpus[index].name == str(properties.name) else None
