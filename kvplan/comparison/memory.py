"""The memory budget beside the log: weights, activations, the rest, and the pool that they leave.

The budget is the engine's own for the GPU that the log or the user names, with the settings of the
observation. It is an estimate with an interval, and it decides nothing else: tokens and concurrency are
those of the printed pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from kvplan.comparison.predict import smallest_pool
from kvplan.comparison.recognise import GIVEN, Recognised
from kvplan.comparison.results import ComparedRow, row_of
from kvplan.engines.budget import fitted
from kvplan.engines.observed import Observation
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.results import Budget
from kvplan.units import gib

POOL = "available_kv_bytes"
BLOCKS_ROW, UTILISATION, METRICS = "num_blocks", "gpu_memory_utilization", "metrics"
_LINES = (
    # The printed weights hold rotary tables, adapters' buffers and the layers of a drafter too.
    ("weights_bytes", ("weights", "rotary", "draft", "lora"), ("weights_bytes",)),
    ("activation_peak_bytes", ("activation",), ("activation_peak_bytes",)),
    ("non_torch_bytes", ("non-torch",), ("non_torch_bytes",)),
    # What the budget takes off is the estimate before the capture.
    ("cuda_graph_bytes", ("cuda graph",), ("cuda_graph_estimated_bytes", "cuda_graph_bytes")),
)
"""Row, how the names of the budget's lines begin, figures of the log in the order of preference."""
BUDGET_ROWS = frozenset((*(name for name, _, _ in _LINES), "kv_pool_bytes"))
_FIGURES = (*(figure for _, _, figures in _LINES for figure in figures), POOL)


def budget_of(
    model: Model, recognised: Recognised, observation: Observation, gpu: Gpu | None
) -> tuple[Budget | None, tuple[str, ...]]:
    """The budget of the engine that the log is of, and what is to be said of it; None: and why not.

    gpu: the one of the log, where its memory tells only the size. Nothing is said where the engine printed
    none of the figures, or runs on a CPU. Metrics tell blocks alone: theirs needs a GPU that is told.
    """
    on_cpu = observation.setting("device") == "cpu"
    printed_any = any(observation.count(name) is not None for name in _FIGURES)
    if on_cpu or not (printed_any or tells_blocks_alone(observation)):
        return None, ()
    settings = recognised.settings
    card = settings.gpu or gpu
    if card is None and not printed_any:
        return None, ()
    if card is None:
        text = f"no memory budget: the {observation.source} does not tell the GPU (--gpu h100, --gpu 80GiB)"
        return None, (text,)
    printed = observation.count("total_memory_bytes")
    if printed is not None and printed.value > 0 and GIVEN not in recognised.shown.get("gpu", ""):
        card = replace(card, memory_total_bytes=printed.value)
    settings = replace(settings, gpu=card, kv_cache_memory=None)
    offload = observation.setting("cpu_offload_gb")
    if not settings.cpu_offload_gb and isinstance(offload, (int, Fraction)):
        settings = replace(settings, cpu_offload_gb=Fraction(offload))
    try:
        result = fitted(model, recognised.choice, settings)
    except KvplanError as error:
        return None, (f"no memory budget: {error.message}",)
    if result.budget is None:
        refused = () if result.refusal is None else (f"no memory budget: {result.refusal.message}",)
        return None, (*refused, *result.warnings)
    return result.budget, result.warnings


def tells_blocks_alone(observation: Observation) -> bool:
    """Whether the blocks are all that is told of the pool: a running server's metrics."""
    return observation.source == METRICS and observation.count(BLOCKS_ROW) is not None


def pool_unknown(recognised: Recognised, observation: Observation) -> str | None:
    """Why the printed pool is not the one that a budget leaves; None where it is."""
    if recognised.settings.kv_cache_memory is not None or observation.setting("kv_cache_memory_bytes"):
        return "the pool was asked for by its size"
    if observation.setting("num_gpu_blocks_override"):
        return "the pool was asked for by its blocks"
    # Arguments that were printed leave out the ones with their default.
    printed = any(setting.source == "args" for setting in observation.settings.values())
    if UTILISATION in recognised.shown or printed or tells_blocks_alone(observation):
        return None
    return f"the {observation.source} does not tell {UTILISATION} (--gpu-memory-utilization 0.9)"


def blocks_row(
    budget: Budget, observation: Observation, blocks_of: Callable[[int], int], tolerance: Fraction
) -> ComparedRow:
    """The blocks that the budget leaves beside those that the metrics tell. blocks_of: a pool's bytes."""
    count = observation.count(BLOCKS_ROW)
    assert count is not None
    ends = (budget.kv_pool_bytes, budget.kv_pool_low_bytes, budget.kv_pool_high_bytes)
    likely, low, high = (blocks_of(end) for end in ends)
    row = _judged(row_of(BLOCKS_ROW, "blocks", count, likely, low, high), budget, tolerance)
    return replace(row, explanation=f"estimated: {low:,} … {high:,}" if low != high else None)


def budget_rows(
    budget: Budget, observation: Observation, tolerance: Fraction, *, pool: bool = True
) -> Iterator[ComparedRow]:
    """The lines of a budget beside those of the log. A row agrees where the report lies in its interval, or
    within the tolerance of it (an estimate only where its coefficients were fitted on this release).

    pool: the printed pool is what the budget leaves.
    """
    for name, begins, figures in _LINES:
        lines = [line for line in budget.lines if line.name.lower().startswith(begins)]
        reported = next((count for each in figures if (count := observation.count(each)) is not None), None)
        if lines and reported is not None:
            low, likely, high = (
                sum(getattr(line, end) for line in lines) for end in ("low_bytes", "bytes", "high_bytes")
            )
            row = row_of(name, "bytes", reported, likely, low, high)
            yield _judged(row, budget, tolerance)
    left = smallest_pool(observation) if observation.count(POOL) is not None else None
    if pool and left is not None:
        ends = (budget.kv_pool_bytes, budget.kv_pool_low_bytes, budget.kv_pool_high_bytes)
        yield _judged(row_of("kv_pool_bytes", "bytes", left, *ends), budget, tolerance)


def _judged(row: ComparedRow, budget: Budget, tolerance: Fraction) -> ComparedRow:
    # Weights have no coefficients, so nothing of theirs is uncalibrated.
    lenient = budget.calibrated or row.low == row.high
    agrees = row.agrees or (lenient and row.off_by() <= tolerance)
    text = None
    if isinstance(row.low, int) and isinstance(row.high, int) and row.low != row.high:
        text = f"estimated: {gib(row.low)} … {gib(row.high)}"
    return replace(row, agrees=agrees, explanation=text)
