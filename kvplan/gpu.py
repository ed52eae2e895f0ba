"""One GPU (or other accelerator, or slice of one). Values only; no file is read here."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.record import field, record, replace
from kvplan.shown import Shown
from kvplan.units import parse_bytes

UNVERIFIED = "unverified"
APPLE = "apple"
"""The vendor of Macs' GPUs."""
_WSL = "-wsl"
_OF_WINDOWS = 1_760_936_592
"""Bytes that Windows and its desktop held of an RTX 5090: vLLM 0.27.1 found 30.2 of 31.84 GiB free."""


@record(kw_only=True, guarded=True)  # handed to users
class Gpu(Shown):
    """One device as the engine sees it.

    Memory has several figures, which differ by up to several GiB: only `memory_total_bytes` is the base of an
    engine's memory budget. Rates are whole bytes per second, decimal (1 GB/s = 10**9 B/s).
    """

    slug: str
    name: str
    vendor: str
    arch: str
    memory_marketing: str
    """what the seller says, for example ``80 GB``; never used in arithmetic"""
    memory_total_bytes: int | None
    """what the CUDA (or HIP) runtime reports as total; None where nobody published it"""
    memory_nvml_bytes: int | None
    """what nvidia-smi (or the vendor's tool) shows, of a vGPU its profile's frame buffer"""
    bandwidth_bytes_per_second: int | None
    dense_tflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    """``fp16``, ``bf16``, ``fp8``, ``fp4``, ``int8`` → 10**12 operations per second without sparsity; absent:
    not known"""
    compute_capability: tuple[int, int] | None = None
    """(major, minor) for NVIDIA and None elsewhere"""
    multiprocessors: int | None = None
    """as CUDA counts them (SMs)"""
    device_target: str | None = None
    """the other vendors' compute capability (``gfx942``)"""
    fp8_tensor_cores: bool | None = None
    fp4_tensor_cores: bool | None = None
    nvlink_bytes_per_second: int | None = None
    """both directions of the scale-up link of one device (NVLink, Infinity Fabric, ICI, Ethernet)"""
    pcie_generation: int | None = None
    pcie_bytes_per_second: int | None = None
    """one direction"""
    gpus_per_node: int | None = None
    power_watts: float | None = None
    """the board's or module's limit (TDP); of a laptop's GPU the usual one"""
    is_unified_memory: bool = False
    is_announced: bool = False
    """only its maker's announcement is known; a plan that names no GPU does not choose it"""
    is_vgpu: bool = False
    """a share of a board by NVIDIA's vGPU software"""
    mig_parent: str | None = None
    mig_profile: str | None = None
    aliases: tuple[str, ...] = ()
    nvml_names: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()
    row: tuple[Gpu, ...] = ()
    """the GPUs of a server that has several kinds, in order; such a value has the figures of its first"""
    note: str | None = None
    market: str | None = None
    """whom it is made for: datacenter, workstation, desktop, laptop, embedded, or regional (sold in one
    country alone); a plan that names no GPU chooses among the first two"""
    memory_totals_seen: tuple[int, ...] = ()
    """what the runtime reports of the same device under other drivers"""
    memory_settable_bytes: int | None = None
    """the most that owners have set the total to, where it is a setting of the kernel or the firmware"""
    memory_free_seen: tuple[int, ...] = ()
    """what machines of the kind had free before anything was loaded, where it is much less than the total"""
    provenance: Mapping[str, str] = field(default_factory=dict, hash=False)
    """a figure's name, such as ``dense_tflops.bf16`` → its source; ``unverified``: nobody checked it"""
    notes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """a figure's name → remarks"""

    def __hash__(self) -> int:
        # Settings with a GPU are the key of every engine's memory; two GPUs of one name are compared.
        return hash((self.slug, self.memory_total_bytes))

    @property
    def is_a_machine(self) -> bool:
        """Whether it is one with the machine around it, which has no second: a Mac, an APU, a laptop."""
        return not self.row and (self.is_unified_memory or self.market == "laptop")

    @property
    def is_mig_slice(self) -> bool:
        """True for a part of a GPU that acts as a device of its own."""
        return self.mig_parent is not None

    @property
    def memory_stated_bytes(self) -> int:
        """The best figure that anybody states: the runtime's total, nvidia-smi's, the seller's."""
        return self.memory_total_bytes or self.memory_nvml_bytes or parse_bytes(self.memory_marketing)

    def is_verified(self, figure: str) -> bool:
        """True where the figure is known and somebody's output or page was read for it."""
        return self.provenance.get(figure, UNVERIFIED) != UNVERIFIED


def under_wsl(gpu: Gpu) -> Gpu:
    """The GPU as Linux on Windows sees it: the runtime reports all that nvidia-smi shows, where Linux alone
    keeps a part of it back (23.64 of an RTX 4090's 23.99 GiB). Unchanged where nobody said what that is, and
    where it is such a GPU already."""
    seen = gpu.slug.endswith(_WSL)
    if seen or gpu.vendor != "nvidia" or not gpu.memory_nvml_bytes or gpu.is_vgpu or gpu.is_mig_slice:
        return gpu
    return replace(
        gpu, slug=f"{gpu.slug}{_WSL}", name=f"{gpu.name} (WSL)", memory_total_bytes=gpu.memory_nvml_bytes,
        memory_totals_seen=(), memory_free_seen=(gpu.memory_nvml_bytes - _OF_WINDOWS, gpu.memory_nvml_bytes),
        aliases=(), default_for=(), note=f"{gpu.slug} under WSL",
    )  # fmt: skip
