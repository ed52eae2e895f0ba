"""SGLang: what is free before loading, times ``mem_fraction_static``, less the weights.

sgl-project/sglang 0.5.23 mem_cache/kv_cache_configurator.py (_profile_available_bytes): free memory after the
weights, less pre_model_load · (1 − mem_fraction_static), less what images reserve; the least of all ranks
counts. Nothing is measured by a forward pass: activations and graphs must fit in the slack.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.architectures.weights import sources_of
from kvplan.dtypes import Packing, scalar
from kvplan.engines.base import Choice
from kvplan.engines.budget import Fit
from kvplan.engines.budget.parts import (
    NVIDIA,
    PAGE_CACHE,
    REPACKED,
    Start,
    kernels_of,
    no_pool,
    once_a_start,
    sources_for,
    weight_lines,
)
from kvplan.engines.sglang.answer_settings import fraction_of, image_reserve
from kvplan.engines.sglang.memory.groups import parallel_of
from kvplan.engines.sglang.options import SglangOptions
from kvplan.engines.sglang.start.arguments import resolve_arguments
from kvplan.errors import KvplanError, RefusedError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import BudgetLine, ModelWeights, SizeResult, about, exact, left_over
from kvplan.settings import Serving, Settings
from kvplan.units import GIB, ceil_div
from kvplan.weights.expanded import projections
from kvplan.weights.facts import WeightSources
from kvplan.weights.ranks import Parallel, elements_on_rank

CONTEXT, NVLS, RINGS, UNKNOWN = (
    (GIB * 55 // 100, GIB // 4),
    (GIB * 125 // 100, GIB // 2),
    (GIB * 35 // 100, GIB // 5),
    (GIB * 9 // 2, GIB * 9 // 2),
)
"""Bytes and half-width of a CUDA context with its libraries; of NCCL's buffers where NVLink's switches reduce
(NVLS: compute capability 9.0 and later), elsewhere, and on GPUs of other vendors.

Printed by servers of 2026 ("Init torch distributed ends. mem usage"): 1.17 (2 GB300), 1.34 (4 GB300), 1.23 (8
H200); 0.26 (2 RTX 4090), 0.39 (4 RTX PRO 6000); of 2025, with an older NCCL, 2.01 (8 H200) and 2.50 (8 B200).
Two MI355X have 8.0 GiB less free with two ranks than one has alone (RCCL 2.27, AITER's all-reduce).
What is free then is 0.47 to 0.62 less than the rest of the total.
"""
_GRACE = (GIB * 12 // 10, GIB * 3 // 10)
"""The same context on GB200 and GB300, whose memory the CPU sees as its own: 1.15 to 1.34 printed."""
_SWITCHED = (9, 0)
_EXTRA = (3, 12)
"""Thousandths of the weights that loading takes beside their tensors, likely and at most: 79.80 GiB printed
for 79.55 of tensors (DeepSeek-R1), 63.38 for 62.75 (MiniMax-M2.5 in NVFP4), 3.25 for 3.25."""


def context_of(gpu: Gpu, ranks: int) -> BudgetLine:
    """Memory taken before the weights are loaded: the CUDA context, and NCCL's buffers between several ranks.

    sgl-project/sglang 0.5.23 model_executor/model_runner.py (init_torch_distributed): free memory is looked
    at before and after the process groups; the pool is divided of what is free after them.
    """
    grace = gpu.slug.startswith("gb") and not gpu.is_unified_memory
    amount, margin = _GRACE if grace else CONTEXT
    how = "CUDA context"
    if ranks > 1:
        switched = gpu.nvlink_bytes_per_second and (gpu.compute_capability or (0, 0)) >= _SWITCHED
        more, open_by = (NVLS if switched else RINGS) if gpu.vendor == "nvidia" else UNKNOWN
        amount, margin = amount + more, margin + open_by
        how += ", NCCL with NVLink's switches" if switched else ", NCCL"
    return about("context, buffers", amount, margin, f"{how}; as servers print it")


_SHARED_MILLI = (75, 45, 92)
"""Of the total, in thousandths, likely, least and most: gone before the weights on GB10 beside the context.
Seven starts show 110.0 to 115.4 GiB free of 121.69 ("Load weight begin. avail mem"): SGLang asks the host
what is free (utils/common.py, get_available_gpu_memory, psutil), and its processes count."""


def _shared_with_the_host(gpu: Gpu, total: int, reserved: tuple[BudgetLine, ...]) -> tuple[BudgetLine, ...]:
    """The lines before the weights, with the host's share as SGLang sees it on unified memory."""
    if not gpu.is_unified_memory or gpu.vendor != NVIDIA:
        return reserved
    likely, least, most = (total * milli // 1000 for milli in _SHARED_MILLI)
    how = "unified memory: not free on the host before the weights; seven starts on GB10"
    own = BudgetLine(PAGE_CACHE, likely, least, most, how)
    return (*(line for line in reserved if line.name != PAGE_CACHE), own)


@once_a_start
def fit(model: Model, choice: Choice, settings: Serving, start: Start) -> Fit:
    """The budget of the fullest rank. Raises KvplanError(bad-setting)."""
    gpu, started, total, reserved, warnings = start
    reserved = _shared_with_the_host(gpu, total, reserved)
    options = SglangOptions.of(settings)
    arguments = resolve_arguments(
        model, settings, options, int(started.settings["context_len"]), choice.version
    )
    dtype = scalar(str(started.settings["dtype"]))
    try:
        sources = sources_for(model, settings)
        parallel = (
            Parallel(arguments.tp, arguments.pp)
            if settings.weights is not None
            else parallel_of(model, arguments, settings, options)
        )
        kernels = kernels_of(choice, model, settings)
        facts, loaded, said = weight_lines(sources, model, settings, parallel, dtype, kernels)
        loaded = (
            *(line for line in loaded if line.name != REPACKED),
            *_beside(facts.bytes_per_gpu, settings),
        )
        loaded += _absorbed_lines(sources, parallel, dtype)
        loaded += _adapter_lines(model, settings, options, parallel, dtype)
    except KvplanError as error:
        if error.code == "bad-setting":
            raise
        return Fit(None, None, (no_pool(error),))
    shape = shape_of(model, dtype.bytes)
    images = image_reserve(model, arguments)
    fraction = fraction_of(model, arguments)
    context = context_of(gpu, arguments.tp * arguments.pp)
    before = total - sum(line.bytes for line in (context, *reserved))
    lines = [*loaded, context, *reserved]
    if shape.rotary_bytes and settings.weights is None:
        lines.append(
            exact("rotary tables", shape.rotary_bytes, "positions · rotary_dim · element, of the config")
        )
    if images:
        lines.append(exact("image cache", images, "SGLANG_VLM_CACHE_SIZE_MB, or Qwen3-VL's feature pool"))
    lines.append(_slack(before, fraction, given=arguments.mem_fraction_static is not None))
    budget = left_over(gpu.slug, total, total, tuple(lines), calibrated=False)
    budget = replace(
        budget,
        kv_pool_low_bytes=_left(total, lines[:-1], (context, *reserved), fraction, "high_bytes"),
        kv_pool_high_bytes=_left(total, lines[:-1], (context, *reserved), fraction, "low_bytes"),
    )
    taken = sum(line.bytes for line in lines[:-1]) - context.bytes - sum(line.bytes for line in reserved)
    smallest = Fraction(ceil(Fraction(taken * 1000, before)) if before > 0 else 1000, 1000)
    help_ = (f"--mem-fraction-static {float(smallest):g}",) if fraction < smallest < 1 else ()
    weights = ModelWeights(facts.bytes_per_gpu, facts.total_bytes, facts.source)
    warnings += (*said, "SGLang's memory before the weights is an estimate: mind the interval of the pool")
    shown: tuple[tuple[str, object], ...] = (("mem_fraction_static", round(float(fraction), 6)),)
    if options.enable_lora:
        names = ("enable_lora", "max_lora_rank", "max_loras_per_batch")
        shown += tuple((name, value) for name, value in settings.own.items() if name in names)
    return Fit(budget, weights, warnings, shown, help_)


def divided(model: Model, settings: Settings, started: SizeResult) -> Parallel:
    """How the weights are divided over the ranks (`kvplan.engines.budget.parts.parallel_for`)."""
    options = SglangOptions.of(settings)
    length, version = int(started.settings["context_len"]), started.engine.version
    arguments = resolve_arguments(model, settings, options, length, version)
    return parallel_of(model, arguments, settings, options)


def _beside(weights: int, settings: Serving) -> tuple[BudgetLine, ...]:
    """Memory that loading takes beyond the tensors; stated weights include it."""
    if settings.weights is not None:
        return ()
    likely, most = (weights * share // 1000 for share in _EXTRA)
    return (BudgetLine(REPACKED, likely, 0, most, "scales and layouts of kernels, as servers print it"),)


def _absorbed_lines(sources: WeightSources, parallel: Parallel, dtype: Packing) -> tuple[BudgetLine, ...]:
    """The key and value parts of MLA's kv_b_proj, copied in 16 bit beside it for decoding.

    sgl-project/sglang 0.5.23 models/deepseek_common/deepseek_weight_loader.py (w_kc, w_vc): always so for 16
    bit and for FP8 in blocks of 128 × 128, in one byte or two for other formats.
    """
    if sources.inventory is None or sources.stated_bytes is not None:
        return ()
    counts = projections(sources.inventory)[0]
    if not counts:
        return ()
    numbers = sum(elements_on_rank(tensor, parallel) * count for tensor, count in counts.items())
    # Stages that are not equal: the fullest has this share of the layers or less.
    numbers = numbers * ceil_div(len(sources.inventory.layers), parallel.pipeline_parallel_size)
    numbers = ceil_div(numbers, len(sources.inventory.layers))
    known = all(tensor.form is None or tensor.form.block == (128, 128) for tensor in counts)
    how = "kv_b_proj a second time, for decoding (w_kc, w_vc)"
    amount = dtype.bytes_for(numbers)
    return (about("absorbed projections", amount, 0 if known else numbers, how),)


def _adapter_lines(
    model: Model, settings: Serving, options: SglangOptions, parallel: Parallel, dtype: Packing
) -> tuple[BudgetLine, ...]:
    """The pool of LoRA adapters; none without --enable-lora. Raises KvplanError(bad-setting | lora)."""
    if not options.enable_lora:
        return ()
    from kvplan.engines.sglang.memory.adapters import pool_bytes, slots_of

    slots = slots_of(options, dtype)
    if slots is None:
        return ()
    if parallel.groups:
        raise RefusedError(
            "lora",
            "how data-parallel attention divides the buffers of adapters is not known",
            help=("--kv-cache-memory 16GiB", "leave out --enable-lora"),
        )
    ranks = Parallel(tensor_parallel_size=settings.tensor_parallel_size)
    amount = pool_bytes(model, sources_of(model).inventory, slots, ranks)
    source = f"{slots.count} adapters of rank {slots.rank} for {', '.join(slots.targets)}"
    return (exact("LoRA adapters", amount, source),)


def _left(
    total: int, lines: list[BudgetLine], first: tuple[BudgetLine, ...], fraction: Fraction, end: str
) -> int:
    """The pool with every line at one end of its interval: less free memory is less slack as well."""
    before = total - sum(int(getattr(line, end)) for line in first)
    taken = sum(int(getattr(line, end)) for line in lines)
    return max(0, total - taken - max(0, ceil(before * (1 - fraction))))


def _slack(before: int, fraction: Fraction, *, given: bool) -> BudgetLine:
    """ceil(before · (1 − fraction))."""
    how = "as given" if given else "automatic"
    return exact(
        "activations, graphs",
        max(0, ceil(before * (1 - fraction))),
        f"slack: memory before the weights · (1 − mem_fraction_static {float(fraction):.3f}, {how})",
    )
