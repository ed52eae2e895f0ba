"""A stage set on which SGLang 0.5.23 believes that it runs on an NVIDIA or AMD GPU: no driver or kernels.

Only for asking its planner (`sglang_ask`): arguments are resolved and pools sized, nothing is launched.
Kernel packages are props of version 99.0, so backends are chosen as where all of them are installed. SGLang
keeps the compute capability while it is imported: a process asks about one.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import subprocess
import sys
import types
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

make_prop: Any = importlib.import_module("vllm_stage").make_prop
"""A class with every attribute, which lies beside this file: both stages are sets of programs."""


@dataclass(frozen=True)
class Card:
    """What SGLang asks of a device; memory as nvidia-smi or rocminfo says it. target: an AMD GPU's."""

    name: str
    capability: tuple[int, int]
    memory_mib: int
    processors: int
    target: str = ""


CARDS = {
    "h100": Card("NVIDIA H100 80GB HBM3", (9, 0), 81559, 132),
    "h200": Card("NVIDIA H200", (9, 0), 143771, 132),
    "a100": Card("NVIDIA A100-SXM4-80GB", (8, 0), 81920, 108),
    "l40s": Card("NVIDIA L40S", (8, 9), 46068, 142),
    "l4": Card("NVIDIA L4", (8, 9), 23034, 58),
    "b200": Card("NVIDIA B200", (10, 0), 183359, 148),
    "b300": Card("NVIDIA B300 SXM6 AC", (10, 3), 275040, 148),
    "gb200": Card("NVIDIA GB200", (10, 0), 189471, 148),
    "h20": Card("NVIDIA H20", (9, 0), 97871, 78),
    "a100_40": Card("NVIDIA A100-SXM4-40GB", (8, 0), 40960, 108),
    "a10": Card("NVIDIA A10", (8, 6), 23028, 72),
    "rtx4090": Card("NVIDIA GeForce RTX 4090", (8, 9), 24564, 128),
    "rtx3060": Card("NVIDIA GeForce RTX 3060", (8, 6), 12288, 28),
    "rtx5090": Card("NVIDIA GeForce RTX 5090", (12, 0), 32607, 170),
    "pro6000": Card("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0), 97887, 188),
    "t4": Card("Tesla T4", (7, 5), 15360, 40),
    "thor": Card("NVIDIA Thor", (11, 0), 125747, 20),
    "mi300x": Card("AMD Instinct MI300X", (9, 4), 196592, 304, "gfx942:sramecc+:xnack-"),
    "mi355x": Card("AMD Instinct MI355X", (9, 5), 294896, 256, "gfx950:sramecc+:xnack-"),
    "gb10": Card("NVIDIA GB10", (12, 1), 124610, 48),
}
KERNELS = frozenset(
    "aiter sgl_kernel flashinfer deep_gemm cutlass cuda quack torchvision tvm_ffi xgrammar".split()
)
"""Packages that are built for CUDA: props here, installed or not."""


class _Prop(types.ModuleType):
    """A module in which everything is to be found, and nothing does anything."""

    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # A request's field is of that type.
        prop = Any if name == "StructuralTag" else make_prop(name)
        setattr(self, name, prop)
        return prop


class _Props:
    """Finds every module of KERNELS."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in KERNELS:
            return None
        return importlib.machinery.ModuleSpec(name, _Props, is_package=True)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: Any) -> types.ModuleType:
        module = _Prop(spec.name)
        module.__path__ = []
        return module

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        """Nothing is in a prop."""


class Ranks:
    """A process group of which this process is the first rank; collectives give back what they were given."""

    def __init__(self, size: int = 1) -> None:
        self.world_size, self.rank, self.rank_in_group, self.local_rank = size, 0, 0, 0
        self.ranks = list(range(size))
        self.first_rank, self.last_rank = 0, size - 1
        self.is_first_rank, self.is_last_rank = True, size == 1
        self.cpu_group = self.device_group = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda value=None, *args, **kwargs: value


class Stage:
    """torch and nvidia-smi say that this machine has the card."""

    def __init__(self, gpu: str) -> None:
        self.card = CARDS[gpu]
        import torch
        import transformers.models.auto.processing_auto  # noqa: F401  before torchvision is a prop

        _quiet_operators()
        _older_names()
        places: Any = sys.meta_path
        places.append(_Props)
        torch.version.hip = "7.0.0" if self.card.target else None
        torch.version.cuda = None if self.card.target else "13.0"
        processor: Any = torch._C._cpu
        if not hasattr(processor, "_is_amx_tile_supported"):  # releases before 0.5.3 ask for it
            processor._is_amx_tile_supported = lambda: False
        cuda: Any = torch.cuda
        answers = {
            "is_available": True, "is_initialized": True, "device_count": 64, "current_device": 0,
            "memory_allocated": 0, "memory_reserved": 0, "max_memory_allocated": 0, "set_device": None,
            "empty_cache": None, "synchronize": None, "_lazy_init": None,
        }  # fmt: skip
        for name, value in answers.items():
            setattr(cuda, name, lambda *_args, _value=value, **_kwargs: _value)
        cuda.get_device_properties = lambda *_args, **_kwargs: self._properties()
        cuda.get_device_capability = lambda *_args, **_kwargs: self.card.capability
        cuda.get_device_name = lambda *_args, **_kwargs: self.card.name
        cuda.mem_get_info = lambda *_args, **_kwargs: (self.card.memory_mib << 20,) * 2
        cuda.Stream = cuda.Event = make_prop("Stream")
        cuda.current_stream = cuda.default_stream = lambda *_args, **_kwargs: make_prop("Stream")()
        cuda.stream = lambda *_args, **_kwargs: nullcontext()
        ones: Any = torch.ones  # a 4-bit cache's method makes its scales before it is asked
        torch.ones = lambda *args, **named: ones(*args, **{**named, "device": None})
        run = subprocess.run
        started: Any = subprocess
        started.run = lambda command, *args, **kwargs: (
            self._smi(command) if _is_smi(command) else run(command, *args, **kwargs)
        )

    def _properties(self) -> Any:
        major, minor = self.card.capability
        return types.SimpleNamespace(
            name=self.card.name, major=major, minor=minor, total_memory=self.card.memory_mib << 20,
            multi_processor_count=self.card.processors, is_integrated=False, warp_size=32,
            gcnArchName=self.card.target,
            shared_memory_per_block_optin=232_448, shared_memory_per_multiprocessor=233_472, uuid="GPU-0",
            L2_cache_size=50 << 20, regs_per_multiprocessor=65_536, max_threads_per_multi_processor=2_048,
        )  # fmt: skip

    def _smi(self, command: Sequence[str]) -> Any:
        words = " ".join(command)
        said = "580.65\n"
        if "rocminfo" in words:
            said = f"{self.card.memory_mib << 10}(0x0)\n"
        elif "memory.total" in words:
            said = f"{self.card.memory_mib}\n" * 8
        elif "compute_cap" in words:
            said = ".".join(str(part) for part in self.card.capability) + "\n"
        return types.SimpleNamespace(returncode=0, stdout=said, stderr="")


def _quiet_operators() -> None:
    """Stand-ins that older releases declare for operators of their kernels are ignored."""
    import torch.library

    library: Any = torch.library
    declare = library.register_fake

    def register(op: Any, func: Any = None, **named: Any) -> Any:
        if func is None:
            return lambda later: register(op, later, **named) or later
        try:
            declare(op, func, **named)
        except RuntimeError:
            return func
        return func

    library.register_fake = register


def _older_names() -> None:
    """What older releases import and today's packages have no more, or only with torchvision."""
    cache: Any = importlib.import_module("triton.runtime.cache")
    for name in ("default_cache_dir", "default_dump_dir", "default_override_dir"):
        if not hasattr(cache, name):
            setattr(cache, name, lambda: "/nowhere")
    library: Any = importlib.import_module("transformers")
    try:
        library.AutoImageProcessor.register  # noqa: B018 - a stand-in refuses every attribute
    except ImportError:
        library.AutoImageProcessor = make_prop("AutoImageProcessor")


def _is_smi(command: Any) -> bool:
    words = isinstance(command, (list, tuple)) and bool(command)
    return words and (command[0] == "nvidia-smi" or command[0].startswith("rocminfo"))
