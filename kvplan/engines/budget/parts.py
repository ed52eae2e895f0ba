"""Shared by the budgets of all engines: the GPU's memory, the weights, the CUDA context."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

from kvplan.architectures.weights import served_sources
from kvplan.dtypes import Packing
from kvplan.engines.base import Choice, planned_settings, planned_values
from kvplan.engines.budget import Fit
from kvplan.engines.folders import part_of
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError, RefusedError
from kvplan.gpu import APPLE, Gpu
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.results import NO_POOL, BudgetLine, SizeResult, about
from kvplan.settings import Serving, Settings, asked_of
from kvplan.units import GIB, MIB, ceil_div
from kvplan.weights.facts import WeightFacts, WeightSources, weights_by_kernel
from kvplan.weights.ranks import Parallel

if TYPE_CHECKING:
    from kvplan.weights.formats import Kernel

UNCALIBRATED = "estimate, uncalibrated"
_REPACKED = 20
REPACKED = "repacked weights"
_CONTEXT = (GIB * 7 // 10, GIB // 2)
_CONTEXT_SEVERAL = (GIB * 3 // 2, GIB * 6 // 5)


class Start(NamedTuple):
    """A start that the engine would make on the GPU: its answer, the memory in bytes, the lines that are
    taken beforehand, and what was said of them."""

    gpu: Gpu
    result: SizeResult
    total: int
    reserved: tuple[BudgetLine, ...]
    warnings: tuple[str, ...]


def once_a_start(
    compute: Callable[[Model, Choice, Serving, Start], Fit],
) -> Callable[[Model, Choice, Settings], Fit]:
    """A budget is remembered by what decides it: a request's shape does not.

    Where the engine would not start, or the GPU's memory is not known, there is none to compute.
    """

    @lru_cache(maxsize=4096)
    def kept(model: Model, rules: tuple[Any, ...], values: tuple[Any, ...]) -> Fit:
        engine, version, asked = rules
        choice, settings = Choice(engine, version, asked=asked), planned_settings(values)
        assert settings.gpu is not None
        result = choice.engine.size(model, asked_of(settings, tokens=1), choice.version)
        if result.refusal is not None:
            return Fit(None, None)
        total, reserved, warnings = memory_of(settings.gpu)
        if total is None:
            return Fit(None, None, warnings)
        return compute(model, choice, settings, Start(settings.gpu, result, total, reserved, warnings))

    @wraps(compute)
    def fit(model: Model, choice: Choice, settings: Settings) -> Fit:
        return kept(model, (choice.engine, choice.version, choice.asked), planned_values(settings))

    return fit


def no_pool(error: KvplanError) -> str:
    """Why there is no pool, and the ways out, as one sentence."""
    ways = "; ".join(error.help) or "--weights 15GiB"
    return f"{NO_POOL}: {error.message}. Ways out: {ways}"


AMD, NVIDIA = "amd", "nvidia"
_WIRED = ((8, 67), (16, 74), (32, 78), (64, 81), (128, 84), (256, 87), (512, 90))
"""GB from which on macOS 26 lets the GPU wire so many hundredths of the memory. Public llama.cpp logs: 18 GB
14302.25 MB, 32 GB 26800.60, 36 GB 30150.67, 48 GB 40200.90, 64 GB 55662.79, 128 GB 115448.73; 512 GB
498216.21 (a little more); 256 GB by raullenchai/Rapid-MLX pull request 183."""
SMALL_MAC = 32
"""GB, up to which older releases let it wire two thirds, three quarters from there on: 16 GB 11453.25 MB,
32 GB 22906.50, 36 GB 28991.03, 48 GB 38654.71, 64 GB 51539.61."""
_KEPT: Mapping[str, tuple[int, int]] = {
    "": (330, 5250),
    "Volta": (206, 1830),
    "Hopper": (260, 2500),
    "Blackwell": (425, 2200),
    "Blackwell Ultra": (0, 1830),
}
"""The part of nvidia-smi's total that NVIDIA's driver keeps, by architecture: MiB, and millionths of it,
fitted to the cards of which both totals are known (tests/budget/test_totals.py holds them to the interval).
"""
_KEPT_LEAST = 240 * MIB


_KEPT_OF_SOLD = {"amd": (1, 0, 60), "intel": (400, 20, 620), NVIDIA: (150, 80, 820)}
"""(likely, least, most) in ten-thousandths of the GiB that a card is sold with: 16 MiB of Instinct, RDNA 3,
80 of 16 GiB of RDNA 4; 0.3 (Arc Pro B70) to 5.7 hundredths (Arc A770, B580); of NVIDIA's announced ones as of
those of data centres that are sold, 0.8 (H200) to 8.1 hundredths (L4): tests/budget/test_totals.py."""
_NO_CARD = ("Gaudi",)
KEPT_BY_DRIVER, KEPT_BY_VGPU = "kept by the driver", "kept by the vGPU"
KEPT_BY_KERNEL = "kept by the kernel's limit"


def wired_by_macos(gpu: Gpu) -> tuple[int, int]:
    """Bytes that a Mac's GPU may use: by macOS 26, and by the releases before it.

    recommendedMaxWorkingSetSize, which llama.cpp's Metal backend takes as the total (ggml/src/ggml-metal)."""
    amount = re.fullmatch(r"(\d{1,4}) GB", gpu.memory_marketing)
    size = int(amount[1]) if amount else 16
    share = max((share for least, share in _WIRED if size >= least), default=_WIRED[0][1])
    older = size * GIB * 2 // 3 if size <= SMALL_MAC else size * GIB * 3 // 4
    return max(size * GIB * share // 100, older), older


def kept_by_driver(shown: int, arch: str = "") -> tuple[int, int, int]:
    """(likely, least, most) bytes of nvidia-smi's total that the CUDA runtime does not report, on Linux.
    arch: of the GPU, "" where it is not known."""
    base, share = _KEPT.get(arch, _KEPT[""])
    likely = base * MIB + shown * share // 1_000_000
    return likely, min(_KEPT_LEAST, likely * 3 // 4), likely * 3 // 2


def kept_of_a_vgpu(profile: int) -> tuple[int, int, int]:
    """(likely, least, most) bytes of a vGPU's profile that the guest's runtime does not report: the manager's
    64 MiB for each GiB and one more, and what the driver keeps."""
    reserved, driver = (profile // GIB + 1) * 64 * MIB, kept_by_driver(profile)[0]
    return reserved + driver, 0, reserved * 11 // 10 + driver * 3 // 2


def memory_of(gpu: Gpu) -> tuple[int | None, tuple[BudgetLine, ...], tuple[str, ...]]:
    """The total as the runtime reports it; else by the law of its class, with the lines that say what of it
    may be kept."""
    warnings: list[str] = []
    if gpu.arch == "unlisted":
        warnings.append(
            f"{gpu.name}: taken for a current NVIDIA GPU (compute capability"
            f" {'.'.join(map(str, gpu.compute_capability or (9, 0)))}); the batch defaults follow its memory"
        )
    if gpu.is_unified_memory and gpu.vendor in (NVIDIA, APPLE):
        warnings.append(
            f"{gpu.name} shares its memory with the CPU: page cache and loaders count, and equal starts"
            " differ by several GiB; --kv-cache-memory pins the cache"
        )
    if gpu.memory_total_bytes is not None and gpu.memory_settable_bytes is not None:
        return _settable(gpu, gpu.memory_total_bytes, gpu.memory_settable_bytes)
    if gpu.memory_total_bytes is not None:
        return gpu.memory_total_bytes, _held(gpu, gpu.memory_total_bytes), tuple(warnings)
    if gpu.vendor == APPLE:
        return _of_a_mac(gpu, warnings)
    total = gpu.memory_nvml_bytes
    if total is None and (shown := _as_sold(gpu)) is not None:
        return shown
    if total is None:
        return None, (), (
            f"{NO_POOL}: the memory of {gpu.slug} as its runtime reports it is not published."
            " Ways out: --gpu 79.2GiB (its size); --kv-cache-memory 16GiB",
        )  # fmt: skip
    warnings.append(f"the runtime's total of {gpu.slug} is not published: nvidia-smi's was taken")
    kept: tuple[BudgetLine, ...] = ()
    if gpu.is_vgpu:
        warnings[-1] = f"what a guest sees of {gpu.slug} is not published: nvidia-smi in the guest says it"
        how = "vGPU manager and driver, of the profile's frame buffer"
        kept = (BudgetLine(KEPT_BY_VGPU, *kept_of_a_vgpu(total), how),)
    elif not gpu.is_mig_slice and gpu.vendor == NVIDIA:
        how = "of what nvidia-smi shows, as on cards of which both are known; nothing on Windows and WSL"
        kept = (BudgetLine(KEPT_BY_DRIVER, *kept_by_driver(total, gpu.arch), how),)
    return total, (*kept, *_held(gpu, total)), tuple(warnings)


def of_share(lines: tuple[BudgetLine, ...], share: Fraction) -> tuple[BudgetLine, ...]:
    """The lines of an engine that asks for a share of the total: of what its runtime does not report it
    misses that share alone."""
    kept = (KEPT_BY_DRIVER, KEPT_BY_VGPU, KEPT_BY_KERNEL)
    return tuple(_times(line, share) if line.name in kept else line for line in lines)


def _times(line: BudgetLine, share: Fraction) -> BudgetLine:
    def part(amount: int) -> int:
        return ceil_div(amount * share.numerator, share.denominator)

    asked = f"{line.source}; {float(share * 100):g} % of it: the engine asks for that share of the total"
    source = line.source if share == 1 else asked
    return BudgetLine(line.name, part(line.bytes), part(line.low_bytes), part(line.high_bytes), source)


def _as_sold(gpu: Gpu) -> tuple[int, tuple[BudgetLine, ...], tuple[str, ...]] | None:
    """A discrete AMD or Intel card, or an announced one of NVIDIA's, of which nothing but the memory it is
    sold with is known."""
    amount = re.fullmatch(r"(\d{1,4}) GB", gpu.memory_marketing)
    if gpu.vendor == NVIDIA and not gpu.is_announced:
        return None
    if gpu.vendor not in _KEPT_OF_SOLD or amount is None or gpu.is_unified_memory or gpu.arch in _NO_CARD:
        return None
    if not gpu.slug.endswith(f"-{amount[1]}gb"):  # a package of several dies
        return None
    total = int(amount[1]) * GIB
    likely, least, most = (total * share // 10_000 for share in _KEPT_OF_SOLD[gpu.vendor])
    line = BudgetLine(KEPT_BY_DRIVER, likely, least, most, "as on the maker's cards whose total is known")
    why = "has only been announced" if gpu.is_announced else "is not published"
    said = f"the runtime's total of {gpu.slug} {why}: as on other {gpu.vendor.upper()} cards"
    return total, (line,), (said,)


def _settable(gpu: Gpu, usual: int, most: int) -> tuple[int, tuple[BudgetLine, ...], tuple[str, ...]]:
    """A GPU that may use what the kernel lets it: half of the machine's memory unless its owner sets another
    limit (Linux drivers/gpu/drm/ttm/ttm_module.c: pages_limit)."""
    kept = most - usual
    said = (
        f"the kernel decides how much of the memory {gpu.slug} may use: {usual / GIB:.1f} GiB where nobody"
        f" set it, up to {most / GIB:.0f} GiB by ttm.pages_limit or the firmware; yours:"
        f" --gpu '{gpu.slug} 96GiB'"
    )
    line = BudgetLine(KEPT_BY_KERNEL, kept, 0, kept, "half of the memory, Linux' default; a limit may be set")
    return most, (line, *_held(gpu, usual)), (said,)


def _of_a_mac(gpu: Gpu, warnings: list[str]) -> tuple[int, tuple[BudgetLine, ...], tuple[str, ...]]:
    total, older = wired_by_macos(gpu)
    said = (
        f"macOS decides how much of its memory {gpu.slug} may use: {total / GIB:.1f} GiB by macOS 26,"
        f" {older / GIB:.1f} GiB before it (sysctl iogpu.wired_limit_mb sets it); llama.cpp prints yours as"
        " recommendedMaxWorkingSetSize"
    )
    line = BudgetLine("kept by older macOS", 0, 0, total - older, "releases before macOS 26")
    return total, (line,), (*warnings, said)


PAGE_CACHE = "page cache, loaders"


def _held(gpu: Gpu, total: int) -> tuple[BudgetLine, ...]:
    # Elsewhere the driver's figure counts, of a part of the memory that is set aside (vLLM 0.32
    # platforms/interface.py, is_integrated_gpu; a Strix Halo that kept 0.56 GiB beside its weights).
    if not gpu.is_unified_memory or gpu.vendor != NVIDIA:
        return ()
    bounds = (total // 50, total // 200, total // 25)
    how = "unified memory: what processes take of the host's; equal starts differ by 3.4 GiB"
    return (BudgetLine(PAGE_CACHE, *bounds, how),)


IN_USE = "in use by others"


def in_use_line(gpu: Gpu) -> tuple[BudgetLine, ...]:
    """Memory of a discrete GPU that others hold before the start, where somebody saw it (``--gpu auto``) or
    its system is known to: of an RTX 5090 Windows and its desktop held 1.64 GiB."""
    base = gpu.memory_nvml_bytes or gpu.memory_total_bytes
    if not gpu.memory_free_seen or base is None or gpu.is_unified_memory:
        return ()
    least, most = (max(base - free, 0) for free in (max(gpu.memory_free_seen), min(gpu.memory_free_seen)))
    how = "as this machine shows it now" if least == most else "Windows and its desktop, of one such start"
    return (BudgetLine(IN_USE, (least + most) // 2, least, most, how),) if most else ()


def context_line(ranks: int) -> BudgetLine:
    """The CUDA context, and with several ranks NCCL's buffers. Nobody's logs stand behind the figures."""
    amount, margin = _CONTEXT if ranks == 1 else _CONTEXT_SEVERAL
    what = "CUDA context" if ranks == 1 else "CUDA context, NCCL"
    return about("context, buffers", amount, margin, f"{what}; {UNCALIBRATED}")


def sources_for(model: Model, settings: Serving) -> WeightSources:
    """Sources for the weights, as stated or as read. Raises KvplanError(no-weights | bad-setting …)."""
    if settings.weights is not None:
        return WeightSources(stated_bytes=settings.weights)
    return served_sources(model, settings.quantization)


def kernels_of(choice: Choice, model: Model, settings: Serving) -> tuple[Kernel, ...]:
    """The kernels that may keep experts in blocks, as the engine's ``expert_kernels`` names them."""
    look = getattr(part_of(choice.engine.name, "engine"), "expert_kernels", None)
    return look(model, settings, choice.asked or choice.version) if look else ()


def parallel_for(model: Model, choice: Choice, settings: Settings, started: SizeResult) -> Parallel:
    """How the engine divides the weights over its ranks, as its budget does. started: its answer for these
    settings. Raises RefusedError(no-weights) for a class whose division is not described,
    KvplanError(bad-setting)."""
    own = getattr(part_of(choice.engine.name, "budget"), "divided", None)
    if settings.weights is None and own is not None:
        divided: Parallel = own(model, settings, started)
        return divided
    gpu = settings.gpu
    return Parallel(
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        data_parallel_size=settings.data_parallel_size if traits_of(choice.engine.name).axes.data else 1,
        enable_expert_parallel=settings.enable_expert_parallel,
        compute_capability=None if gpu is None else gpu.compute_capability,
    )


def weight_lines(
    sources: WeightSources,
    model: Model,
    settings: Serving,
    parallel: Parallel,
    dtype: Packing,
    kernels: tuple[Kernel, ...] = (),
) -> tuple[WeightFacts, tuple[BudgetLine, ...], tuple[str, ...]]:
    """Weights of the fullest rank, what kernels may add as they load, and the draft's; what to say of them.

    Stages that are not equal may be divided elsewhere than the figure assumes: a layer more or less.
    Raises RefusedError(no-weights) for a draft whose weights nobody stated.
    """
    facts = weights_by_kernel(sources, parallel, dtype, kernels)
    source = f"{facts.source}: {facts.detail}" if facts.detail else facts.source
    amount, stated = facts.bytes_per_gpu, settings.weights is not None
    stages = settings.pipeline_parallel_size
    uneven = not stated and model.num_layers % stages
    margin = ceil_div(sum(facts.bytes_per_rank), model.num_layers) if uneven else 0
    bounds = [facts.bounds(stage) for stage in range(len(facts.bytes_per_rank))]
    low = max(0, min(amount, max(low for low, _ in bounds)) - margin)
    high = max(amount, *(high for _, high in bounds)) + margin
    lines = [BudgetLine("weights", amount, low, high, source)]
    if not stated:
        lines.append(
            BudgetLine(REPACKED, 0, 0, amount // _REPACKED, "what kernels add as they load; not known")
        )
    draft = settings.speculative_model
    if draft is not None and parallel.groups:
        raise RefusedError(
            "no-weights",
            f"how data-parallel attention divides a draft model, {draft.id}, is not known",
            help="give the weights of one GPU, draft included: --weights 15GiB",
        )
    if settings.speculative_method is None:
        return facts, tuple(lines), ()
    from kvplan.engines.budget.drafts import draft_lines

    own = bool(model.draft_layers)
    drafts, said = draft_lines(model, settings, facts, sources, parallel, dtype, own=own)
    return facts, (*lines, *drafts), said
