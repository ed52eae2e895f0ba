"""Why figures are as they are. Nothing is said that was not recomputed.

Two kinds: what makes a figure agree (without this rule it would be another number), and what would make it
agree (with this setting every figure of the pool is the reported one).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.comparison.figures import infer_axis, pool_figures, pool_rows
from kvplan.comparison.predict import BLOCKS, BUDGET, BYTES, PICKS, Axis, Predictor, narrow, ranks_of
from kvplan.comparison.recognise import Recognised, choose
from kvplan.comparison.results import ComparedRow
from kvplan.engines.base import has_kind
from kvplan.engines.observed import Observation
from kvplan.engines.observed.reading import Guessing, Hypothesis, reading_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import with_settings
from kvplan.units import ceil_div, gib

# figures that agree


def why(row: ComparedRow, predictor: Predictor, axis: Axis, observation: Observation) -> str | None:
    """The reason for an agreeing pool figure; None where plain arithmetic gives it."""
    found = list(_reasons(row, predictor, axis, observation))
    return "; ".join(found) if found else None


def _reasons(row: ComparedRow, predictor: Predictor, axis: Axis, observation: Observation) -> Iterator[str]:
    if row.name == "kv_tokens":
        yield from reading_of(observation.engine).tokens_line(predictor, axis)
    if row.name in ("num_blocks", "kv_tokens"):
        yield from _override(row, predictor, axis)
    yield from _smallest_rank(row, predictor, axis, observation)
    if row.name == "running_requests":
        yield from _slots(row, predictor, axis)
    if row.name in ("num_blocks", "kv_tokens"):
        yield from _padding(row, predictor, axis)
    if row.exact_predicted != row.exact_reported and not _prints(row, predictor, axis):
        rounded = "an estimate" if axis.source == BUDGET else "rounded"
        low, high = (
            PICKS[row.name](predictor.at(axis.kind, axis.low)),
            PICKS[row.name](predictor.at(axis.kind, axis.high)),
        )
        if row.name != "max_concurrency":
            yield f"{axis.source} is {rounded}: {low:,} … {high:,} {row.unit}"
        else:
            yield f"{axis.source} is {rounded}: {float(low):,.2f} … {float(high):,.2f}"


def _prints(row: ComparedRow, predictor: Predictor, axis: Axis) -> bool:
    """The nominal figure itself is printed like the report (two decimals of a concurrency)."""
    value = PICKS[row.name](predictor.at(axis.kind, axis.value))
    return row.name == "max_concurrency" and f"{float(value):.2f}" == f"{float(row.exact_reported):.2f}"


def _override(row: ComparedRow, predictor: Predictor, axis: Axis) -> Iterator[str]:
    override = predictor.settings.num_gpu_blocks_override
    if override is None or axis.kind == BLOCKS:
        return
    plain = Predictor(
        predictor.model, predictor.choice, replace(predictor.settings, num_gpu_blocks_override=None)
    )
    without = plain.at(axis.kind, axis.value)
    if PICKS[row.name](without) != row.exact_predicted:
        yield f"num_gpu_blocks_override {override:,} replaces the {without.blocks:,} blocks of the memory"


def _smallest_rank(
    row: ComparedRow, predictor: Predictor, axis: Axis, observation: Observation
) -> Iterator[str]:
    """Other ranks have more, and with theirs the figure would not be the reported one."""
    ranked = ranks_of(observation)
    if axis.kind == BLOCKS or len(ranked) < 2:
        return
    least = min(ranked, key=lambda pair: pair[1].value)
    most = max(ranked, key=lambda pair: pair[1].value)
    figure = pool_figures(observation).get(row.name)
    if figure is None or most[1].value == least[1].value:
        return
    theirs = Axis(axis.kind, most[1].low, most[1].value, most[1].high, "")
    if narrow(predictor, theirs, row.name, figure) is None:
        who = least[0].label or "one rank"
        yield f"the smallest rank decides: {who} has {least[1].printed}, others up to {most[1].printed}"


def _slots(row: ComparedRow, predictor: Predictor, axis: Axis) -> Iterator[str]:
    """Fewer requests may run than slots are there: SGLang keeps states of finished ones for reuse."""
    slots = predictor.at(axis.kind, axis.value).slots
    each = predictor.result.settings.get("state_slots_per_request", 1)
    if each > 1 and row.exact_predicted == slots // each:
        yield f"a running request takes {each} of the {slots:,} state slots"


def _padding(row: ComparedRow, predictor: Predictor, axis: Axis) -> Iterator[str]:
    """Groups that pay for layers that the model does not have."""
    pool = predictor.sized(axis.kind, axis.value).pool
    if pool is None or len(pool.groups) < 2 or len({group.page_bytes for group in pool.groups}) != 1:
        return
    width = max(group.layers for group in pool.groups)
    paid, real = width * len(pool.groups), sum(group.layers for group in pool.groups)
    if pool.bytes_per_block == width * pool.groups[0].page_bytes and paid > real:
        yield f"{len(pool.groups)} groups of {width} layers pay for {paid:,}; the model has {real:,}"


# figures that do not agree


def hypotheses(model: Model, recognised: Recognised, observation: Observation) -> Iterator[Hypothesis]:
    """Hypotheses worth trying, most likely first."""
    settings, choice = recognised.settings, recognised.choice
    one = Guessing(choice, settings).one
    latent = has_kind(model, Kind.MLA, Kind.COMPRESSED)
    for name in ("auto", "bfloat16", "fp8", "nvfp4", "float32", *(("fp8_ds_mla",) if latent else ())):
        yield from one("kv_cache_dtype", name, f"a cache in {_dtype(name)}")
    for size in (1, 2, 4, 8, 16):
        yield from one("tensor_parallel_size", size)
    printed = choose(observation, None)[0]
    yield from reading_of(observation.engine).guesses(
        choice, printed, settings, recognised.shown, observation
    )


def _dtype(name: str) -> str:
    return "the model's own dtype" if name == "auto" else name


def explained(
    model: Model, recognised: Recognised, axis: Axis, observation: Observation
) -> tuple[Hypothesis, Predictor, Axis, list[ComparedRow]] | None:
    """The first hypothesis under which every figure of the pool is the reported one; None where none is.

    Nothing is tried where the pool is open by more than a hundredth: too much would fit by chance; nor where
    its bytes were inferred from the only figure there is. Inferred bytes are inferred anew.
    """
    anew = axis.inferred and axis.kind == BYTES
    if not axis.tight or (anew and len(pool_figures(observation)) < 2):
        return None
    for guess in hypotheses(model, recognised, observation):
        try:
            predictor = Predictor(
                model, guess.choice, with_settings(recognised.settings, dict(guess.changes))
            )
            theirs = infer_axis(predictor, observation) if anew else axis
            rows = [] if theirs is None else pool_rows(predictor, theirs, observation)
        except KvplanError:
            continue
        compared = [row for row in rows if row.exact_predicted is not None]
        if theirs is not None and compared and all(row.overlaps for row in compared):
            return guess, predictor, theirs, rows
    return None


def unseen_rank(
    predictor: Predictor, axis: Axis, observation: Observation, settings_ranks: int
) -> str | None:
    """The smaller pool of a rank that the log does not show, where it would print every figure."""
    ranked = ranks_of(observation)
    if axis.kind == BLOCKS or axis.inferred or settings_ranks <= max(len(ranked), 1):
        return None
    left: Axis | None = replace(axis, low=ceil_div(axis.value, 2), value=axis.low, high=axis.low)
    for name, figure in pool_figures(observation).items():
        left = narrow(predictor, left, name, figure) if left is not None else None
    if left is None:
        return None
    return (
        f"a rank with a pool of {gib(left.value)} prints these; the log shows "
        f"{max(len(ranked), 1)} of {settings_ranks} ranks, and the smallest decides"
    )
