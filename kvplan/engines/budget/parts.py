"""What the budgets of all engines have in common: the GPU's memory, the weights, what the context takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Any, NamedTuple

from kvplan.architectures.weights import served_sources
from kvplan.dtypes import Packing
from kvplan.engines.base import Choice, planned_settings, planned_values
from kvplan.engines.budget import Fit
from kvplan.engines.budget.lines import about
from kvplan.engines.folders import part_of
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError, RefusedError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.results import BudgetLine, SizeResult
from kvplan.settings import Settings
from kvplan.units import GIB, ceil_div
from kvplan.weights.facts import WeightFacts, WeightSources, weights_by_kernel
from kvplan.weights.formats import Kernel
from kvplan.weights.ranks import Parallel

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
    compute: Callable[[Model, Choice, Settings, Start], Fit],
) -> Callable[[Model, Choice, Settings], Fit]:
    """A budget is remembered by what decides it: a request's shape does not.

    Where the engine would not start, or the GPU's memory is not known, there is none to compute.
    """

    @lru_cache(maxsize=4096)
    def kept(model: Model, rules: tuple[Any, ...], values: tuple[Any, ...]) -> Fit:
        engine, version, asked = rules
        choice, settings = Choice(engine, version, asked=asked), planned_settings(values)
        assert settings.gpu is not None
        result = choice.engine.size(model, replace(settings, tokens=1), choice.version)
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
    return f"no pool was computed: {error.message}. Ways out: {ways}"


APPLE = "apple"
SMALL_MAC = 32
"""GB, up to which macOS lets the GPU wire two thirds."""


def _of_a_mac(gpu: Gpu) -> str:
    """What macOS lets a GPU wire differs by its release: llama.cpp prints it (ggml/src/ggml-metal,
    recommendedMaxWorkingSetSize); logs show two thirds of up to 32 GB, and three quarters of 36 to 192 GB."""
    amount = re.fullmatch(r"(\d{1,4}) GB", gpu.memory_marketing)
    size = int(amount[1]) if amount else 128
    usual, share = (size * 2 // 3, "two thirds") if size <= SMALL_MAC else (size * 3 // 4, "three quarters")
    return (
        f"no pool was computed: macOS decides how much of its memory {gpu.slug} may use."
        f" Ways out: --gpu {usual}GiB ({share} of {size} GB, the usual default; llama.cpp"
        " prints yours as recommendedMaxWorkingSetSize); --kv-cache-memory 16GiB"
    )


def memory_of(gpu: Gpu) -> tuple[int | None, tuple[BudgetLine, ...], tuple[str, ...]]:
    """The total as the runtime reports it, or what nvidia-smi shows with what the runtime may keep of it."""
    warnings: list[str] = []
    if gpu.arch == "unlisted":
        warnings.append(
            f"{gpu.name}: taken for a current NVIDIA GPU (compute capability"
            f" {'.'.join(map(str, gpu.compute_capability or (9, 0)))}); the batch defaults follow its memory"
        )
    if gpu.is_unified_memory:
        warnings.append(
            f"{gpu.name} shares its memory with the CPU: page cache and loaders count, and equal starts"
            " differ by several GiB; --kv-cache-memory pins the cache"
        )
    total = gpu.memory_total_bytes or gpu.memory_nvml_bytes
    if total is None and gpu.vendor == APPLE:
        return None, (), (_of_a_mac(gpu),)
    if total is None:
        return None, (), (
            f"no pool was computed: the memory of {gpu.slug} as its runtime reports it is not published."
            " Ways out: --gpu 79.2GiB (its size); --kv-cache-memory 16GiB",
        )  # fmt: skip
    reserved: list[BudgetLine] = []
    if gpu.memory_total_bytes is None:
        warnings.append(f"the runtime's total of {gpu.slug} is not published: nvidia-smi's was taken")
        if not gpu.is_mig_slice:
            margin = total // 200
            reserved.append(about("kept by the driver", margin, margin, "up to 1 % of what nvidia-smi shows"))
    if gpu.is_unified_memory:
        held = total // 50
        reserved.append(
            BudgetLine(
                *("page cache, loaders", held, total // 200, total // 25),
                "unified memory; equal starts differ by 2.6 GiB",
            )
        )
    return total, tuple(reserved), tuple(warnings)


def context_line(ranks: int) -> BudgetLine:
    """The CUDA context, and with several ranks NCCL's buffers. Nobody's logs stand behind the figures."""
    amount, margin = _CONTEXT if ranks == 1 else _CONTEXT_SEVERAL
    what = "CUDA context" if ranks == 1 else "CUDA context, NCCL"
    return about("context, buffers", amount, margin, f"{what}; {UNCALIBRATED}")


def sources_for(model: Model, settings: Settings) -> WeightSources:
    """What is known of the weights, as stated or as read. Raises KvplanError(no-weights | bad-setting …)."""
    if settings.weights is not None:
        return WeightSources(stated_bytes=settings.weights)
    return served_sources(model, settings.quantization)


def kernels_of(choice: Choice, model: Model, settings: Settings) -> tuple[Kernel, ...]:
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
    settings: Settings,
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
