"""A stage set on which vLLM believes that it runs on an NVIDIA or AMD GPU: no driver, no kernels, no weights.

Only for asking its planner: model classes are built on torch's meta device, nothing is ever launched.
Imported by `vllm_ask` inside a process of its own, because none of this can be undone.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

GIB = 2**30
WITH_FLASHINFER = ("cutlass", "cuda", "quack", "tilelang", "deep_gemm", "flashinfer", "flashinfer_cubin")
AMD_ONLY = ("aiter", "flash_attn")
"""Packages of the image for AMD GPUs."""


@dataclass(frozen=True)
class Card:
    """What vLLM asks of a device. flash_attention: the FlashAttention builds that run there; target: AMD's
    name of the architecture, empty for NVIDIA; packages: whose imports succeed and bring nothing."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    flash_attention: tuple[int, ...]
    target: str = ""
    packages: tuple[str, ...] = ("cutlass", "cuda", "quack", "tilelang", "deep_gemm")


CARDS = {
    "h100": Card("NVIDIA H100 80GB HBM3", (9, 0), 79 * GIB, (2, 3)),
    "a100": Card("NVIDIA A100-SXM4-80GB", (8, 0), 79 * GIB, (2,)),
    "a100-flashinfer": Card("NVIDIA A100-SXM4-80GB", (8, 0), 79 * GIB, (2,), packages=WITH_FLASHINFER),
    "rtx-3090": Card("NVIDIA GeForce RTX 3090", (8, 6), 23 * GIB, (2,), packages=WITH_FLASHINFER),
    "t4": Card("Tesla T4", (7, 5), 14 * GIB, (), packages=WITH_FLASHINFER),
    "v100": Card("Tesla V100-SXM2-32GB", (7, 0), 31 * GIB, (), packages=WITH_FLASHINFER),
    "rtx-pro-6000": Card("NVIDIA RTX PRO 6000 Blackwell", (12, 0), 95 * GIB, (2,), packages=WITH_FLASHINFER),
    "l40s": Card("NVIDIA L40S", (8, 9), 44 * GIB, (2,)),
    "b200": Card("NVIDIA B200", (10, 0), 178 * GIB, (2, 4)),
    "b200-flashinfer": Card("NVIDIA B200", (10, 0), 178 * GIB, (2, 4), packages=WITH_FLASHINFER),
    "h100-flashinfer": Card("NVIDIA H100 80GB HBM3", (9, 0), 79 * GIB, (2, 3), packages=WITH_FLASHINFER),
    "h200": Card("NVIDIA H200", (9, 0), 139 * GIB, (2, 3), packages=WITH_FLASHINFER),
    "b300": Card("NVIDIA B300 SXM6 AC", (10, 3), 268 * GIB, (2, 4), packages=WITH_FLASHINFER),
    "gb10": Card("NVIDIA GB10", (12, 1), 60 * GIB, (2,), packages=WITH_FLASHINFER),
    "rtx-4090": Card("NVIDIA GeForce RTX 4090", (8, 9), 23 * GIB, (2,), packages=WITH_FLASHINFER),
    "mi250x": Card("AMD Instinct MI250X", (9, 0), 63 * GIB, (), "gfx90a", AMD_ONLY),
    "rx-7900": Card("AMD Radeon RX 7900 XTX", (11, 0), 23 * GIB, (), "gfx1100", AMD_ONLY),
    "mi300x": Card("AMD Instinct MI300X", (9, 4), 191 * GIB, (), "gfx942", AMD_ONLY),
    "mi355x": Card("AMD Instinct MI355X", (9, 5), 287 * GIB, (), "gfx950", AMD_ONLY),
}
COMPILED = (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm._flashmla_C",
    "vllm._flashkda_C",
    "vllm._flashmla_extension_C",
    "vllm.third_party.flashmla.flash_mla_interface",
    "vllm.third_party.deep_gemm",
)


class _PropType(type):
    """A class whose unknown attributes are such classes too: it can be called, subscripted and inherited."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        prop = make_prop(name)
        setattr(cls, name, prop)
        return prop


def make_prop(name: str) -> Any:
    def called(_self: object, *args: object, **_kwargs: object) -> object:
        return args[0] if args else None

    body = {
        "__init__": lambda self, *a, **k: None,
        "__call__": called,
        "__class_getitem__": classmethod(lambda cls, _item: cls),
    }
    return _PropType(name, (), body)


class PropModule(types.ModuleType):
    """A module that has every attribute."""

    def __init__(self, name: str, **given: object) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        prop = make_prop(name)
        setattr(self, name, prop)
        return prop


class _PropFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports of packages that need a GPU succeed and bring nothing."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] in self.packages:
            return importlib.machinery.ModuleSpec(fullname, self)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return PropModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def _put_modules(card: Card) -> None:
    for name in COMPILED:
        sys.modules.setdefault(name, PropModule(name))
    flash: dict[str, object] = {
        "is_fa_version_supported": lambda version, device=None: version in card.flash_attention,
        "fa_version_unsupported_reason": lambda version, device=None: None,
        "FA2_AVAILABLE": True,
        "FA3_AVAILABLE": 3 in card.flash_attention,
        "FA4_AVAILABLE": 4 in card.flash_attention,
    }
    root = "vllm.vllm_flash_attn"
    leaves = (
        "",
        ".flash_attn_interface",
        ".layers",
        ".layers.rotary",
        ".ops",
        ".ops.triton",
        ".ops.triton.rotary",
    )
    for leaf in leaves:
        sys.modules[root + leaf] = PropModule(root + leaf, **flash)
    sys.meta_path.append(_PropFinder(card.packages))
    if "flashinfer" in card.packages:
        sized = PropModule("flashinfer.utils", get_trtllm_gen_multi_ctas_kv_counter_bytes=lambda *a, **k: 0)
        sys.modules["flashinfer.utils"] = sized
    try:
        importlib.import_module("torchvision")
    except Exception:
        for leaf in ("", ".io", ".ops", ".utils", ".transforms", ".transforms.v2", ".transforms.functional"):
            sys.modules["torchvision" + leaf] = PropModule("torchvision" + leaf, __version__="0")
        sys.modules["torchvision.transforms.v2.functional"] = PropModule(
            "torchvision.transforms.v2.functional"
        )


def _quiet_operators() -> None:
    """Operators that only the compiled wheel has: declared fakes are ignored, calls answer False."""
    import torch
    import torch._ops
    import torch.library

    # Which experts a rank has is worked out on the device.
    shapes: Any = importlib.import_module("torch.fx.experimental._config")
    shapes.meta_nonzero_assume_all_nonzero = True
    declare = torch.library.register_fake

    def register(op: Any, func: Any = None, **kwargs: Any) -> Any:
        if func is None:
            return lambda later: register(op, later, **kwargs) or later
        try:
            declare(op, func, **kwargs)
        except RuntimeError:
            return func
        return func

    torch.library.register_fake = register

    class Operator:
        def __call__(self, *args: object, **kwargs: object) -> bool:
            return False

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return self

    real = torch._ops._OpNamespace.__getattr__

    def lookup(self: Any, name: str) -> Any:
        try:
            return real(self, name)
        except AttributeError:
            if name.startswith("__") or not self.name.startswith(("_C", "_moe_C", "_flash")):
                raise
            return Operator()

    torch._ops._OpNamespace.__getattr__ = lookup


def _no_distributions(card: Card) -> None:
    """transformers asks which distribution a package it can import comes from: a prop from none."""
    real = importlib.metadata.packages_distributions

    def distributions() -> dict[str, list[str]]:
        return {**{name: ["prop"] for name in card.packages}, **real()}

    importlib.metadata.packages_distributions = distributions


def _device_answers(card: Card) -> None:
    import torch

    class Idle:
        def __init__(self, *args: object, **kwargs: object) -> None:
            return None

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *args, **kwargs: None

    properties = types.SimpleNamespace(
        multi_processor_count=132,
        major=card.capability[0],
        minor=card.capability[1],
        name=card.name,
        total_memory=card.memory_bytes,
        is_integrated=False,
        gcnArchName=card.target,
        shared_memory_per_block_optin=232448,
        warp_size=32,
    )
    answers: dict[str, object] = {
        "Stream": Idle,
        "Event": Idle,
        "current_stream": lambda *a, **k: Idle(),
        "default_stream": lambda *a, **k: Idle(),
        "get_device_properties": lambda *a, **k: properties,
        "get_device_capability": lambda *a, **k: card.capability,
        "get_device_name": lambda *a, **k: card.name,
        "current_device": lambda: 0,
        "device_count": lambda: 64,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.Stream = torch.Event = Idle
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.empty_cache = lambda *a, **k: None
    torch.accelerator.synchronize = lambda *a, **k: None


def _triton_driver(card: Card) -> None:
    """Triton wants a driver when kernels are declared."""
    import torch

    backends = importlib.import_module("triton.backends").backends
    target = importlib.import_module("triton.backends.compiler").GPUTarget
    driver = importlib.import_module("triton.runtime.driver").driver
    for name, backend in backends.items():
        own = name == ("amd" if card.target else "nvidia")
        backend.driver.is_active = staticmethod(lambda own=own: own)
    facts = {"max_shared_mem": 232448, "multiprocessor_count": 132, "max_num_regs": 65536, "warpSize": 32}
    stand_in = types.SimpleNamespace(
        utils=types.SimpleNamespace(get_device_properties=lambda device: facts),
        get_current_target=lambda: (
            target("hip", card.target, 64)
            if card.target
            else target("cuda", card.capability[0] * 10 + card.capability[1], 32)
        ),
        get_current_device=lambda: 0,
        get_device_capability=lambda *args: card.capability,
        get_active_torch_device=lambda: torch.device("meta"),
        get_benchmarker=lambda: lambda *args, **kwargs: 0.0,
        get_empty_cache_for_benchmark=lambda: None,
    )
    driver.set_active(stand_in)


def _named_vllm() -> None:
    """The CPU wheel's metadata is called otherwise; releases before 0.31 take that for a want of Triton."""
    real = importlib.metadata.version

    def version(distribution_name: str) -> str:
        return "0" if distribution_name == "vllm" else real(distribution_name)

    importlib.metadata.version = version


def _platform_of(card: Card) -> type[Any]:
    """vLLM's own class for the vendor; AMD's asks its management library as it is imported."""
    if not card.target:
        return importlib.import_module("vllm.platforms.cuda").CudaPlatformBase  # type: ignore[no-any-return]
    sys.modules["amdsmi"] = PropModule(
        "amdsmi",
        AmdSmiException=type("AmdSmiException", (Exception,), {}),
        amdsmi_init=lambda *args: None,
        amdsmi_shut_down=lambda *args: None,
        amdsmi_get_processor_handles=lambda: [0],
        amdsmi_get_gpu_asic_info=lambda handle: {"target_graphics_version": card.target},
        amdsmi_get_gpu_memory_total=lambda handle, kind: card.memory_bytes,
    )
    return importlib.import_module("vllm.platforms.rocm").RocmPlatform  # type: ignore[no-any-return]


def set_stage(card_name: str) -> None:
    """Before anything else of vLLM is imported."""
    card = CARDS[card_name]
    _named_vllm()
    _no_distributions(card)
    _quiet_operators()
    _put_modules(card)
    import vllm.platforms as platforms

    platforms.vllm_version_matches_substr = lambda text: False
    _triton_driver(card)
    for name in ("_C", "_moe_C", "_rocm_C"):  # older platform files import them
        if importlib.util.find_spec(f"vllm.{name}") is None:
            sys.modules[f"vllm.{name}"] = types.ModuleType(f"vllm.{name}")
    _device_answers(card)
    base = _platform_of(card)
    from vllm.platforms.interface import DeviceCapability

    def at_least(wanted: tuple[int, int] | int) -> bool:
        if isinstance(wanted, tuple):
            return card.capability >= wanted
        return card.capability[0] * 10 + card.capability[1] >= wanted

    answers: dict[str, Callable[..., object]] = {
        "get_device_capability": lambda cls, device_id=0: DeviceCapability(*card.capability),
        "has_device_capability": lambda cls, capability, device_id=0: at_least(capability),
        "get_device_name": lambda cls, device_id=0: card.name,
        "get_device_uuid": lambda cls, device_id=0: f"GPU-{device_id}",
        "get_device_total_memory": lambda cls, device_id=0: card.memory_bytes,
        "is_fully_connected": lambda cls, device_ids: True,
        "device_count": lambda cls: 64,
        "num_compute_units": lambda cls, device_id=0: 132,
        "is_integrated_gpu": lambda cls, device_id=0: False,
        "get_cuda_runtime_major": lambda cls: 13,
        "is_pin_memory_available": lambda cls: False,
        "set_device": lambda cls, device: None,
        "import_kernels": lambda cls: None,
        "is_arch_support_pdl": lambda cls: False,
    }
    platform = type("StagePlatform", (base,), {n: classmethod(f) for n, f in answers.items()})
    platforms._current_platform = platform()
    for place in ("vllm.utils.import_utils", "vllm.utils"):  # before 0.11.1
        with suppress(ImportError):
            importlib.import_module(place).has_deep_gemm = lambda: True  # type: ignore[attr-defined]
            break
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda look: look()
