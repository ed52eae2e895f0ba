"""The memory budget beside the log: weights, activations, the rest, and the pool that they leave.

The budget is the engine's own for the GPU that the log or the user names, with the settings of the
observation. It is an estimate with an interval, and it decides nothing else: tokens and concurrency are
those of the printed pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

from kvplan.comparison.predict import smallest_pool
from kvplan.comparison.recognise import GIVEN, Recognised
from kvplan.comparison.results import ComparedRow, row_of
from kvplan.engines.budget import BUDGETS, fitted
from kvplan.engines.observed import Count, Observation, total
from kvplan.engines.observed.reading import reading_of
from kvplan.engines.traits import TOKENS, traits_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu, under_wsl
from kvplan.model import Model
from kvplan.record import field, record, replace
from kvplan.results import Budget, BudgetLine, SizeResult, left_over
from kvplan.settings import Settings, with_settings
from kvplan.units import gib

POOL = "available_kv_bytes"
BLOCKS_ROW, UTILISATION, METRICS = "num_blocks", "gpu_memory_utilization", "metrics"
WEIGHT_LINES = ("weights", "beside the weights", "rotary", "draft", "lora", "absorbed")
_SHARES = frozenset((UTILISATION, "mem_fraction_static", "free_gpu_memory_fraction"))
SHARE_NOT_TOLD = "(--gpu-memory-utilization 0.9)"
"""How a reason ends that is no more than a share which nobody said."""
BEFORE_LINES = ("context", "page cache", "kept by")
"""GPU memory that a process takes before it first looks at the free memory."""
AFTER_POOL = "after the pool"
_PEAK = ("activation", "cold compile", "encoder")
_ESTIMATED = "cuda_graph_estimated_bytes"
_LINES = (
    # The printed weights hold rotary tables, adapters' buffers and the layers of a drafter too.
    ("weights_bytes", WEIGHT_LINES, ("weights_bytes",)),
    ("activation_peak_bytes", _PEAK, ("activation_peak_bytes",)),
    ("transient_peak_bytes", (*_PEAK, "cuda graph"), ("transient_peak_bytes",)),
    ("non_torch_bytes", ("non-torch",), ("non_torch_bytes",)),
    ("compute_bytes", ("compute",), ("compute_bytes",)),
    ("unaccounted_bytes", ("context",), ("unaccounted_bytes",)),
    # What the budget takes off is the estimate before the capture.
    ("cuda_graph_bytes", ("cuda graph",), (_ESTIMATED, "cuda_graph_bytes")),
)
"""Row, how the names of the budget's lines begin, figures of the log in the order of preference."""
_MEASURED = ("cuda_graph_bytes", "transient_peak_bytes", "non_torch_bytes")
_OWN, _SHARED = "buffers of its own", "page cache"
BUDGET_ROWS = frozenset((*(name for name, _, _ in _LINES), "kv_pool_bytes"))
BUDGET_ROWS |= {"free_before_bytes", "peak_bytes"}
_FIGURES = (*(figure for _, _, figures in _LINES for figure in figures), POOL, "kv_bytes", "peak_bytes")


@record()
class Measure:
    """A budget beside a log. why: there is none. shared: another process holds a part of the GPU. told: rows
    whose figures were taken from the log, and why they prove nothing."""

    budget: Budget | None = None
    said: tuple[str, ...] = ()
    why: str | None = None
    shared: bool = False
    told: Mapping[str, str] = field(default_factory=dict)


SAME_WEIGHTS = Fraction(3, 100)
"""Weights that a log prints are those of a card's tensors to less than this share (half of it is usual)."""
DRAFTED = Fraction(25, 100)
"""By how much the printed weights may lie above those of the target where a draft is loaded too."""


def budget_of(
    model: Model,
    recognised: Recognised,
    observation: Observation,
    gpu: Gpu | None,
    *,
    other_format: bool = False,
) -> Measure:
    """The budget of the engine that the log is of, and what is to be said of it; None: and why not.

    gpu: the one of the log, where its memory tells only the size. Nothing is said where the engine printed
    none of the figures, or runs on a CPU. Metrics tell blocks alone: theirs needs a GPU that is told. The
    weights that the log prints stand in for a card's where its format is another, or is not known.
    other_format: the card is known to be of another one.
    """
    if observation.engine not in BUDGETS or observation.setting("device") == "cpu":
        return Measure()
    card = recognised.settings.gpu or gpu
    printed_any = any(observation.count(name) is not None for name in _FIGURES)
    if not printed_any and (card is None or not tells_blocks_alone(observation)):
        return Measure()
    if card is None:
        text = f"no memory budget: the {observation.source} does not tell the GPU (--gpu h100, --gpu 80GiB)"
        return Measure(why=text)
    card, seen = _as_logged(card, recognised, observation)
    recognised = _placed(recognised, observation)
    card, filled = _free(model, recognised, card, observation)
    result = _asked(model, recognised, card, None)
    budget = result.budget if isinstance(result, SizeResult) else None
    other = _with_printed_weights(model, recognised, card, budget, observation)
    if other is not None:
        why = "no tensors of the model in this format are known"
        if budget is not None and not other_format:
            lines = (line for line in budget.lines if line.name.lower().startswith(WEIGHT_LINES))
            why = f"the tensors that are known come to {gib(sum(line.bytes for line in lines))}"
        told = {"weights_bytes": f"{why}: the budget takes the printed ones"}
        return Measure(other.budget, (*seen, *filled, *other.warnings), None, bool(filled), told)
    if isinstance(result, KvplanError):
        return Measure(why=f"no memory budget: {result.message}")
    if budget is None:
        refused = None if result.refusal is None else f"no memory budget: {result.refusal.message}"
        return Measure(said=result.warnings, why=refused)
    return Measure(budget, (*seen, *filled, *result.warnings), shared=bool(filled))


def _with_printed_weights(
    model: Model, recognised: Recognised, card: Gpu, budget: Budget | None, observation: Observation
) -> SizeResult | None:
    """The answer with the weights that the log prints, where those of the budget are others; else None."""
    weights = printed_weights(observation)
    if weights is None or recognised.settings.weights is not None:
        return None
    if budget is not None and weights_off(weights, budget, observation) <= SAME_WEIGHTS:
        return None
    other = _asked(model, recognised, card, weights.value)
    return other if isinstance(other, SizeResult) and other.budget is not None else None


def _as_logged(card: Gpu, recognised: Recognised, observation: Observation) -> tuple[Gpu, tuple[str, ...]]:
    """The GPU with the memory that the log tells, unless somebody said which it is; under WSL all of it."""
    printed = observation.count("total_memory_bytes")
    if printed is not None and printed.value > 0 and GIVEN not in recognised.shown.get("gpu", ""):
        return replace(card, memory_total_bytes=printed.value), ()
    if observation.setting("wsl") is not None and (whole := under_wsl(card)) is not card:
        return whole, (f"WSL: its runtime reports all {gib(whole.memory_total_bytes or 0)} of the card",)
    return card, ()


def _placed(recognised: Recognised, observation: Observation) -> Recognised:
    """With what the log tells of where weights lie, unless somebody said it."""
    settings = recognised.settings
    offload = observation.setting("cpu_offload_gb")
    if not settings.cpu_offload_gb and isinstance(offload, (int, Fraction)):
        settings = replace(settings, cpu_offload_gb=Fraction(offload))
    seen = reading_of(observation.engine).budget_changes(observation)
    more = {
        name: value
        for name, value in seen.items()
        if name not in settings.own and getattr(settings, name, None) == getattr(_PLAIN, name, None)
    }
    return replace(recognised, settings=with_settings(settings, more))


_PLAIN = Settings()


def _free(
    model: Model, recognised: Recognised, card: Gpu, observation: Observation
) -> tuple[Gpu, tuple[str, ...]]:
    """The GPU without what other processes hold, where the engine divides what it finds free (SGLang)."""
    free = observation.count("free_before_bytes")
    if traits_of(observation.engine).printed_pool != TOKENS or free is None or free.value <= 0:
        return card, ()
    budget = budget_with(model, recognised, card, 1)
    if budget is None:
        return card, ()
    own = [line for line in budget.lines if line.name.lower().startswith(BEFORE_LINES)]
    if free.high + sum(line.high_bytes for line in own) >= budget.total_bytes:
        return card, ()
    found = free.value + sum(line.bytes for line in own)
    held = gib(budget.total_bytes - found)
    text = f"another process holds about {held} of the GPU: what is divided is {gib(free.value)}"
    return replace(card, memory_total_bytes=found), (text,)


def printed_weights(observation: Observation) -> Count | None:
    """The weights on the fullest GPU as the engine printed them, those of its draft with them."""
    amount = reading_of(observation.engine).weights(observation)
    draft = observation.count("draft_weights_bytes")
    if amount is None or amount.value <= 0:
        return None
    return amount if draft is None else total([amount, draft])


def weights_off(printed: Count, budget: Budget, observation: Observation) -> Fraction:
    """How far the printed weights lie outside what a budget has for them, as a share of them."""
    lines = [line for line in budget.lines if line.name.lower().startswith(WEIGHT_LINES)]
    low, high = sum(line.low_bytes for line in lines), sum(line.high_bytes for line in lines)
    likely = sum(line.bytes for line in lines)
    if observation.setting("speculative_method") is None:
        return Fraction(max(likely - printed.high, printed.low - likely, 0), printed.value)
    most = max(high, likely + int(likely * DRAFTED))
    return Fraction(max(low - printed.high, printed.low - most, 0), printed.value)


def budget_with(model: Model, recognised: Recognised, gpu: Gpu, weights: int) -> Budget | None:
    """The budget on a GPU with weights of that size; None where the engine would not start there."""
    result = _asked(model, recognised, gpu, weights)
    return result.budget if isinstance(result, SizeResult) else None


def _asked(model: Model, recognised: Recognised, gpu: Gpu, weights: int | None) -> SizeResult | KvplanError:
    # What printed a pool has started: enough was free.
    settings = replace(recognised.settings, gpu=replace(gpu, memory_free_seen=()), kv_cache_memory=None)
    if weights is not None:
        settings = replace(settings, weights=weights, quantization=None)
    try:
        return _with_a_pool(fitted(model, recognised.choice, settings))
    except KvplanError as error:
        return error


def _with_a_pool(result: SizeResult) -> SizeResult:
    """The answer without what keeps a start from living on once it has its pool: that one was printed."""
    budget = result.budget
    if budget is None or all(line.name != AFTER_POOL for line in budget.lines):
        return result
    lines = tuple(line for line in budget.lines if line.name != AFTER_POOL)
    usable = budget.total_bytes - budget.unused_bytes
    anew = left_over(budget.gpu, budget.total_bytes, usable, lines, calibrated=budget.calibrated)
    return replace(result, budget=replace(anew, beside=budget.beside))


def tells_blocks_alone(observation: Observation) -> bool:
    """Whether the blocks are all that is told of the pool: a running server's metrics."""
    return observation.source == METRICS and observation.count(BLOCKS_ROW) is not None


def pool_unknown(recognised: Recognised, observation: Observation) -> str | None:
    """Why the printed pool is not the one that a budget leaves; None where it is."""
    if recognised.settings.kv_cache_memory is not None or observation.setting("kv_cache_memory_bytes"):
        return "the pool was asked for by its size"
    if observation.setting("max_total_tokens"):
        return "the pool was asked for by its tokens"
    if observation.setting("num_gpu_blocks_override"):
        return "the pool was asked for by its blocks"
    # Arguments that were printed leave out the ones with their default.
    printed = any(setting.source == "args" for setting in observation.settings.values())
    if printed or tells_blocks_alone(observation) or not _SHARES.isdisjoint(recognised.shown):
        return None
    return f"the {observation.source} does not tell {UTILISATION} {SHARE_NOT_TOLD}"


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
    budget: Budget,
    observation: Observation,
    tolerance: Fraction,
    *,
    pool: bool = True,
    assumed: str | None = None,
    told: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[ComparedRow]:
    """The lines of a budget beside those of the log. A row agrees where the report lies in its interval, or
    within the tolerance of it (an estimate only where its coefficients were fitted on this release).

    pool: the printed pool is what the budget leaves. assumed: why that is not sure, where the engine's
    default share was taken; a pool that is another one proves nothing then. told: figures that the budget has
    from the log, and why.
    """
    for name, begins, figures in _LINES:
        lines = [line for line in budget.lines if line.name.lower().startswith(begins)]
        reported = next((count for each in figures if (count := observation.count(each)) is not None), None)
        if name == "weights_bytes" and reported is not None:
            reported = printed_weights(observation) or reported
        if reported is not None and name in told:
            yield _told_row(name, reported, told[name])
        elif lines and reported is not None:
            likely, low, high = _summed(lines)
            if name == "cuda_graph_bytes" and observation.count(_ESTIMATED) is None:
                low = 0  # captured: half of the estimate and less (0.45 of 0.92 GiB on an H100)
            row = _judged(row_of(name, "bytes", reported, likely, low, high), budget, tolerance)
            reason = _unsure(name, budget) if not _others(row) else OTHERS
            yield row if reason is None else _unforeseen(row, reason)
    yield from _peak_row(budget, observation, tolerance)
    if pool:
        yield from _pool_row(budget, observation, tolerance, assumed, told.get("kv_pool_bytes"))


def _peak_row(budget: Budget, observation: Observation, tolerance: Fraction) -> Iterator[ComparedRow]:
    """Everything that is taken at once, where the engine prints it."""
    peak = observation.count("peak_bytes")
    if peak is not None and reading_of(observation.engine).prints_peak:
        yield _judged(row_of("peak_bytes", "bytes", peak, *_summed(budget.lines)), budget, tolerance)


def _pool_row(
    budget: Budget, observation: Observation, tolerance: Fraction, assumed: str | None, told: str | None
) -> Iterator[ComparedRow]:
    """The bytes left for the cache, where the engine prints them."""
    left = smallest_pool(observation) if observation.count(POOL) is not None else None
    if left is not None and told is not None:
        yield _told_row("kv_pool_bytes", left, told)
    elif left is not None:
        ends = (budget.kv_pool_bytes, budget.kv_pool_low_bytes, budget.kv_pool_high_bytes)
        row = _judged(row_of("kv_pool_bytes", "bytes", left, *ends), budget, tolerance)
        if assumed is not None and row.overlaps:
            row = replace(row, explanation=f"with the release's default share of the memory: {assumed}")
        yield row if assumed is None or row.overlaps else _unforeseen(row, assumed)


def _summed(lines: Sequence[BudgetLine]) -> tuple[int, int, int]:
    """Likely, low and high bytes of lines together."""
    likely, low, high = (
        sum(getattr(line, end) for line in lines) for end in ("bytes", "low_bytes", "high_bytes")
    )
    return likely, low, high


def _told_row(name: str, reported: Count, why: str) -> ComparedRow:
    """A figure that the budget has from the log."""
    return ComparedRow(name, "bytes", reported.value, reported.printed, line=reported.line, explanation=why)


def _unforeseen(row: ComparedRow, why: str) -> ComparedRow:
    return row.without_prediction(why)


OTHERS = "CUDA's own and whatever other programs hold on the GPU"


def _others(row: ComparedRow) -> bool:
    """Whether more is taken than the engine's own, of what is taken by all programs together."""
    over = (
        row.exact_reported is not None
        and row.exact_predicted is not None
        and row.exact_reported > row.exact_predicted
    )
    return row.name == "unaccounted_bytes" and not row.overlaps and over


def _unsure(name: str, budget: Budget) -> str | None:
    """Why a line cannot be foreseen beside the pool, which has the same bytes; None: it can."""
    names = [line.name.lower() for line in budget.lines]
    if name == "cuda_graph_bytes" and any(other.startswith(_OWN) for other in names):
        return "what this type keeps while graphs are captured stands in the budget's line of its own buffers"
    if name in _MEASURED and any(other.startswith(_SHARED) for other in names):
        return "measured by what is free, which the CPU shares: what it takes or gives back meanwhile counts"
    return None


def free_row(budget: Budget, observation: Observation, tolerance: Fraction) -> Iterator[ComparedRow]:
    """Memory free before the weights, where an engine prints it and divides it (SGLang)."""
    free = observation.count("free_before_bytes")
    own = [line for line in budget.lines if line.name.lower().startswith(BEFORE_LINES)]
    if free is None or not own or traits_of(observation.engine).printed_pool != TOKENS:
        return
    likely, low, high = (
        budget.total_bytes - sum(getattr(line, end) for line in own)
        for end in ("bytes", "high_bytes", "low_bytes")
    )
    yield _judged(row_of("free_before_bytes", "bytes", free, likely, low, high), budget, tolerance)


def pool_row(
    budget: Budget, observation: Observation, allocated_of: Callable[[int], int], tolerance: Fraction
) -> Iterator[ComparedRow]:
    """The engine's allocation next to the bytes that the budget leaves, by its own rules for a pool: caches
    and states together. allocated_of: bytes of the caches in a pool of so many bytes."""
    parts = [observation.count(name) for name in ("kv_bytes", "mamba_conv_bytes", "mamba_ssm_bytes")]
    reported = total(part for part in parts if part is not None)
    ends = (budget.kv_pool_bytes, budget.kv_pool_low_bytes, budget.kv_pool_high_bytes)
    likely, low, high = (allocated_of(end) for end in ends)
    if reported is not None and likely:
        yield _judged(row_of("kv_pool_bytes", "bytes", reported, likely, low, high), budget, tolerance)


def tokens_row(
    row: ComparedRow, budget: Budget, tokens_of: Callable[[int], int], figure: Count, tolerance: Fraction
) -> ComparedRow:
    """Tokens that the budget leaves room for beside those that were printed."""
    ends = (budget.kv_pool_bytes, budget.kv_pool_low_bytes, budget.kv_pool_high_bytes)
    likely, low, high = (tokens_of(end) for end in ends)
    if not likely:
        return row
    found = _judged(row_of(row.name, row.unit, figure, likely, low, high), budget, tolerance)
    return replace(found, explanation=f"estimated: {low:,} … {high:,}")


def _judged(row: ComparedRow, budget: Budget, tolerance: Fraction) -> ComparedRow:
    # Weights have no coefficients, so nothing of theirs is uncalibrated.
    lenient = budget.calibrated or row.exact_low == row.exact_high
    agrees = row.overlaps or (lenient and row.off_by() <= tolerance)
    text = None
    if isinstance(row.exact_low, int) and isinstance(row.exact_high, int) and row.exact_low != row.exact_high:
        text = f"estimated: {gib(row.exact_low)} … {gib(row.exact_high)}"
    judged = replace(row, overlaps=agrees, explanation=text)
    return replace(judged, inside=judged.inside_by() > tolerance)
