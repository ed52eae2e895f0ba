"""A torch.cuda that is not there: tensors lie in host memory, a model of the allocator counts them.

It fakes the surface that kvplan uses (torch.cuda.*, factories with ``device="cuda:0"``, pynvml), so that the
paths of a GPU run where there is none. It proves that they run and add up, not what a GPU does.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvplan.validate.allocator import Allocator, rounded, segment_of

MIB, GIB = 1 << 20, 1 << 30
FACTORIES = ("empty", "zeros", "ones", "full", "arange", "randint", "randn", "rand", "tensor", "randperm")


class FakeCuda:
    """One device: ``total`` bytes as the runtime reports them, ``others`` taken by other processes."""

    def __init__(
        self, *, total: int = 8 * GIB, others: int = 0, name: str = "NVIDIA Fake GPU", extra: int = 0
    ) -> None:
        self.total, self.others, self.name = total, others, name
        self.extra = extra  # segments that the model of the allocator does not know of
        self.context = 0
        self.allocator = Allocator()
        self.processes: list[SimpleNamespace] = []
        self.requested_peak = 0
        self.calls: list[str] = []

    @property
    def used(self) -> int:
        return self.others + self.context + self.allocator.reserved + self.extra

    def take(self, tensor: Any) -> Any:
        """Count a tensor as long as it lives; OutOfMemoryError where the device has no room."""
        import torch

        size = int(tensor.numel()) * int(tensor.element_size())
        self.context = self.context or 500 * MIB
        block = segment_of(rounded(size)) if size else 0
        before = self.allocator.reserved
        handle = self.allocator.malloc(size)
        grown = self.allocator.reserved - before
        if grown and self.used > self.total:
            self.allocator.free(handle)
            self.allocator.empty_cache()
            if self.used + block > self.total:
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
            handle = self.allocator.malloc(size)
        self.requested_peak = max(self.requested_peak, self.allocator.requested)
        weakref.finalize(tensor, self.allocator.free, handle)
        return tensor

    def stats(self, _: object = None) -> dict[str, int]:
        return {
            "requested_bytes.all.current": self.allocator.requested,
            "requested_bytes.all.peak": self.requested_peak,
            "allocated_bytes.all.current": self.allocator.allocated,
            "reserved_bytes.all.current": self.allocator.reserved + self.extra,
        }

    def reset_peak(self, _: object = None) -> None:
        self.requested_peak = self.allocator.requested


def install(patch: pytest.MonkeyPatch, cuda: FakeCuda) -> FakeCuda:
    """Put the fake in the place of torch.cuda and of pynvml."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    fakes: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "set_device": lambda index: None,
        "synchronize": lambda index=None: None,
        "mem_get_info": lambda index=None: (cuda.total - cuda.used, cuda.total),
        "memory_stats": cuda.stats,
        "reset_peak_memory_stats": cuda.reset_peak,
        "empty_cache": cuda.allocator.empty_cache,
        "get_device_properties": lambda index: SimpleNamespace(
            name=cuda.name, major=9, minor=0, uuid="fake", is_integrated=False
        ),
        "graph_pool_handle": lambda: (0, 1),
        "current_stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "stream": lambda stream: contextlib.nullcontext(),
        "graph": lambda graph, pool=None: contextlib.nullcontext(),
        "CUDAGraph": lambda: _Graph(cuda),
        "Event": _Event,
    }
    for name, fake in fakes.items():
        patch.setattr(torch.cuda, name, fake)
    for name in FACTORIES:
        patch.setattr(torch, name, _factory(getattr(torch, name), cuda))
    patch.setattr(torch, "compile", _no_compiler)
    to = torch.Tensor.to
    patch.setattr(
        torch.Tensor,
        "to",
        lambda self, *where, **how: self if _is_cuda(where[:1]) else to(self, *where, **how),
    )
    patch.setitem(sys.modules, "pynvml", _pynvml(cuda))
    return cuda


def _no_compiler(*_: object, **__: object) -> None:
    raise RuntimeError("no compiler for a device that is not there")


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


class _Graph:
    """Remembers what was done to it."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def replay(self) -> None:
        self.cuda.calls.append("replay")

    def reset(self) -> None:
        self.cuda.calls.append("reset")


class _Event:
    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing

    def record(self) -> None:
        return

    def synchronize(self) -> None:
        return

    def elapsed_time(self, other: object) -> float:
        """Milliseconds."""
        del other
        return 0.5


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
    """A device of 8 GiB that nobody else uses; the speed probes' buffers are small."""
    from kvplan.validate.stages import bandwidth

    monkeypatch.setitem(bandwidth.BUFFER, True, 4 * MIB)
    return install(monkeypatch, FakeCuda())
