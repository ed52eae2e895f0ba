"""A torch.cuda that is not there: tensors lie in host memory, a model of the allocator counts them.

It fakes the surface that kvplan uses (torch.cuda.*, factories with ``device="cuda:0"``, pynvml), so that the
paths of a GPU run where there is none. It proves that they run and add up, not what a GPU does. A GPU's other
traits are here too: a workspace of the matrix library, kept until it is cleared; faults after which every
call fails.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvplan.weights.caching_allocator import Allocator, rounded, segment_of

MIB, GIB = 1 << 20, 1 << 30
FACTORIES = ("empty", "zeros", "ones", "full", "arange", "randint", "randn", "rand", "tensor", "randperm")


WORKSPACE = 8_519_680
"""cuBLAS's by default (2 · 4,096 KiB and 16 · 8 KiB), a block of its own in a segment of 20 MiB."""


class FakeCuda:
    """One device: ``total`` bytes as the runtime reports them, ``others`` taken by other processes."""

    def __init__(
        self,
        *,
        total: int = 8 * GIB,
        others: int = 0,
        name: str = "NVIDIA Fake GPU",
        extra: int = 0,
        workspace: int = WORKSPACE,
    ) -> None:
        self.total, self.others, self.name = total, others, name
        self.extra = extra  # segments that the model of the allocator does not know of
        self.context = 0
        self.allocator = Allocator()
        self.workspace = workspace
        self.workspaces: list[tuple[Allocator, int]] = []
        self.fault: str | None = None
        self.processes: list[SimpleNamespace] = []

    @property
    def requested(self) -> int:
        return self.allocator.requested

    @property
    def reserved(self) -> int:
        return self.allocator.reserved + self.extra

    @property
    def used(self) -> int:
        return self.others + self.context + self.reserved

    def check(self) -> None:
        """What every call of the runtime does first: a fault stays."""
        if self.fault is not None:
            raise RuntimeError(f"CUDA error: {self.fault}")

    def malloc(self, size: int) -> tuple[Allocator, int]:
        """A block; OutOfMemoryError where the device has no room."""
        import torch

        self.check()
        allocator = self.allocator
        self.context = self.context or 500 * MIB
        block = segment_of(rounded(size)) if size else 0
        before = allocator.reserved
        handle = allocator.malloc(size)
        grown = allocator.reserved - before
        if grown and self.used > self.total:
            allocator.free(handle)
            self.empty_cache()
            if self.used + block > self.total:
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
            handle = allocator.malloc(size)
        return allocator, handle

    def take(self, tensor: Any) -> Any:
        """Count a tensor as long as it lives."""
        allocator, handle = self.malloc(int(tensor.numel()) * int(tensor.element_size()))
        weakref.finalize(tensor, allocator.free, handle)
        return tensor

    def multiply(self) -> None:
        """What the matrix library does before the first product."""
        if not self.workspaces:
            self.workspaces.append(self.malloc(self.workspace))

    def clear_workspaces(self) -> None:
        for allocator, handle in self.workspaces:
            allocator.free(handle)
        self.workspaces.clear()

    def empty_cache(self) -> None:
        self.check()
        self.allocator.empty_cache()

    def snapshot(self) -> list[dict[str, Any]]:
        """As torch.cuda.memory_snapshot has it."""
        return list(segments_of(self.allocator))

    def stats(self, _: object = None) -> dict[str, int]:
        return {
            "requested_bytes.all.current": self.requested,
            "allocated_bytes.all.current": self.allocator.allocated,
            "reserved_bytes.all.current": self.reserved,
        }

    def memory(self, _: object = None) -> tuple[int, int]:
        self.check()
        return self.total - self.used, self.total


def segments_of(allocator: Allocator) -> Iterator[dict[str, Any]]:
    for first in sorted(allocator._at.values(), key=lambda block: block.address):
        if first.before is not None:
            continue
        blocks, block = [], first
        while block is not None:
            state = "inactive" if block.free else "active_allocated"
            blocks.append({"address": block.address, "size": block.size, "state": state})
            block = block.after  # type: ignore[assignment]
        yield {
            "device": 0, "address": first.address, "total_size": sum(one["size"] for one in blocks),
            "segment_type": "small" if first.small else "large", "stream": 0, "segment_pool_id": (0, 0),
            "blocks": blocks,
        }  # fmt: skip


def install(patch: pytest.MonkeyPatch, cuda: FakeCuda) -> FakeCuda:
    """Put the fake in the place of torch.cuda and of pynvml."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    fakes: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "set_device": lambda index: None,
        "synchronize": lambda index=None: cuda.check(),
        "mem_get_info": cuda.memory,
        "memory_snapshot": cuda.snapshot,
        "memory_stats": cuda.stats,
        "empty_cache": cuda.empty_cache,
        "get_device_properties": lambda index: SimpleNamespace(
            name=cuda.name, major=9, minor=0, uuid="fake", is_integrated=False
        ),
    }
    for name, fake in fakes.items():
        patch.setattr(torch.cuda, name, fake)
    for name in FACTORIES:
        patch.setattr(torch, name, _factory(getattr(torch, name), cuda))
    patch.setattr(torch._C, "_cuda_clearCublasWorkspaces", cuda.clear_workspaces, raising=False)

    def mm(left: Any, right: Any, out: Any = None) -> Any:
        """What it takes, and no product: nobody looks at it, and a CPU needs seconds for one in bfloat16."""
        cuda.multiply()
        return left.new_zeros((left.shape[0], right.shape[1])) if out is None else out.zero_()

    patch.setattr(torch, "mm", mm)
    to = torch.Tensor.to
    patch.setattr(
        torch.Tensor,
        "to",
        lambda self, *where, **how: self if _is_cuda(where[:1]) else to(self, *where, **how),
    )
    patch.setitem(sys.modules, "pynvml", _pynvml(cuda))
    return cuda


def _is_cuda(words: Any) -> bool:
    return any(isinstance(word, str) and word.startswith("cuda") for word in words)


def _factory(make: Callable[..., Any], cuda: FakeCuda) -> Callable[..., Any]:
    def made(*words: Any, **how: Any) -> Any:
        how.pop("pin_memory", None)
        if not _is_cuda([how.get("device")]):
            return make(*words, **how)
        del how["device"]
        return cuda.take(make(*words, **how))

    return made


def _pynvml(cuda: FakeCuda) -> ModuleType:
    module = ModuleType("pynvml")
    memory = SimpleNamespace
    members: dict[str, Any] = {
        "NVMLError": type("NVMLError", (Exception,), {}),
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: cuda.name,
        "nvmlDeviceGetMemoryInfo": lambda handle: memory(total=cuda.total + 400 * MIB, used=cuda.used),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: cuda.processes,
        "nvmlDeviceGetUUID": lambda handle: "GPU-fake",
        "nvmlDeviceGetEccMode": lambda handle: [1, 1],
        "nvmlDeviceGetPersistenceMode": lambda handle: 0,
    }
    for name, member in members.items():
        setattr(module, name, member)
    return module


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A device of 8 GiB that nobody else uses."""
    return install(monkeypatch, FakeCuda())
