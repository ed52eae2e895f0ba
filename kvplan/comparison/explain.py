"""Why figures are as they are. Nothing is said that was not recomputed.

Two kinds: what makes a figure agree (without this rule it would be another number), and what would make it
agree (with this setting every figure of the pool is the reported one).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvplan.comparison.figures import infer_axis, pool_figures, pool_rows
from kvplan.comparison.predict import BLOCKS, BUDGET, BYTES, PICKS, Axis, Predictor, narrow, ranks_of
from kvplan.comparison.recognise import Recognised, choose, cpu_defaults
from kvplan.comparison.results import ComparedRow
from kvplan.engines import choose_engine
from kvplan.engines.base import Choice, has_kind
from kvplan.engines.observed import Observation
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.record import record
from kvplan.units import ceil_div, gib

TOKENS_CHANGED = "0.21"
"""vLLM release since which the tokens line is concurrency × length (v1/core/kv_cache_utils.py)."""

RULES_CHANGED = ("0.20", "0.22", "0.26", "0.28", "0.29", "0.33", "0.10", "0.8")


@record()
class Hypothesis:
    """Other rules or settings. names: what it changes; text: what it says where it holds."""

    names: tuple[str, ...]
    text: str
    choice: Choice
    changes: tuple[tuple[str, Any], ...] = ()


# figures that agree


def why(row: ComparedRow, predictor: Predictor, axis: Axis, observation: Observation) -> str | None:
    """What makes an agreeing pool figure what it is; None where the plain arithmetic gives it."""
    found = list(_reasons(row, predictor, axis, observation))
    return "; ".join(found) if found else None


def _reasons(row: ComparedRow, predictor: Predictor, axis: Axis, observation: Observation) -> Iterator[str]:
    if row.name == "kv_tokens" and observation.engine == "vllm":
        yield from _tokens_line(row, predictor, axis)
    if row.name in ("num_blocks", "kv_tokens"):
        yield from _override(row, predictor, axis)
    yield from _smallest_rank(row, predictor, axis, observation)
    if row.name == "running_requests":
        yield from _slots(row, predictor, axis)
    if row.name in ("num_blocks", "kv_tokens"):
        yield from _padding(row, predictor, axis)
    if row.predicted != row.reported and not _prints(row, predictor, axis):
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
    return row.name == "max_concurrency" and f"{float(value):.2f}" == f"{float(row.reported):.2f}"


def _tokens_line(row: ComparedRow, predictor: Predictor, axis: Axis) -> Iterator[str]:
    """The line's two meanings, where they are two numbers here."""
    rules = rules_of(predictor.choice.version)
    figures = predictor.at(axis.kind, axis.value)
    dcp = predictor.settings.decode_context_parallel_size
    if rules.tokens_times_dcp and dcp > 1:
        own = figures.tokens // dcp
        yield f"the line is multiplied by decode_context_parallel_size {dcp}: {own:,} × {dcp}"
        return
    # The same blocks and the same settings, with the other release's line only.
    other = Choice(predictor.choice.engine, "0.20" if rules.tokens_from_concurrency else "0.22")
    try:
        alike = Predictor(predictor.model, other, predictor.settings).at(BLOCKS, figures.blocks).tokens
    except KvplanError:
        return
    if alike in (0, figures.tokens):
        return
    pool = predictor.sized(BLOCKS, figures.blocks).pool
    groups = len(pool.groups) if pool is not None else 0
    if rules.tokens_from_concurrency:
        length = predictor.result.settings.get("max_model_len")
        yield f"since {TOKENS_CHANGED} this line is concurrency × length {length:,}, not what is stored"
    elif groups > 1:
        yield f"before {TOKENS_CHANGED} this line is one group's share: blocks // {groups} groups × block"


def _override(row: ComparedRow, predictor: Predictor, axis: Axis) -> Iterator[str]:
    override = predictor.settings.num_gpu_blocks_override
    if override is None or axis.kind == BLOCKS:
        return
    plain = Predictor(
        predictor.model, predictor.choice, replace(predictor.settings, num_gpu_blocks_override=None)
    )
    without = plain.at(axis.kind, axis.value)
    if PICKS[row.name](without) != row.predicted:
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
    if each > 1 and row.predicted == slots // each:
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
    """What is worth trying, most likely first."""
    settings, choice = recognised.settings, recognised.choice

    def one(name: str, value: Any, text: str | None = None) -> Iterator[Hypothesis]:
        if getattr(settings, name) != value:
            shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _word(value)
            yield Hypothesis((name,), text or f"{name} {shown}", choice, ((name, value),))

    latent = has_kind(model, Kind.MLA, Kind.COMPRESSED)
    for name in ("auto", "bfloat16", "fp8", "nvfp4", "float32", *(("fp8_ds_mla",) if latent else ())):
        yield from one("kv_cache_dtype", name, f"a cache in {_dtype(name)}")
    for size in (1, 2, 4, 8, 16):
        yield from one("tensor_parallel_size", size)
    if observation.engine == "sglang":
        older = dict(settings.engine_options) | {"mamba_padding_slot": False}
        text = "no state slot set aside for padding, as before July 2026"
        yield Hypothesis(
            ("mamba_padding_slot",), text, choice, (("engine_options", tuple(sorted(older.items()))),)
        )
    if observation.engine != "vllm":
        return
    printed = choose(observation, None)[0]
    for other in (printed, *(choose_engine(f"vllm@{version}") for version in RULES_CHANGED)):
        if rules_of(other.version) != rules_of(choice.version):
            yield Hypothesis(("version",), f"the rules of vLLM {other.version}", other)
    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size
    for size in (128, 16):
        fresh = {
            name: value
            for name, value in cpu_defaults(ranks, block_size=size, usage=settings.usage).items()
            if name not in recognised.shown
        }
        yield Hypothesis(tuple(fresh), "the defaults of vLLM's CPU build", choice, tuple(fresh.items()))
    reported = observation.count("block_size")
    for size in dict.fromkeys([*([reported.value] if reported else []), 16, 32, 64, 128, 256]):
        yield from one("block_size", size)
    yield from one("mamba_ssm_cache_dtype", "float32", "recurrent states in float32")
    for tokens in (2048, 4096, 8192, 16384, 32768, 65536):
        yield from one("max_num_batched_tokens", tokens)
    for flag in (True, False):
        yield from one("async_scheduling", flag)
        yield from one("enable_prefix_caching", flag)
        yield from one("disable_hybrid_kv_cache_manager", flag)
    for size in (1, 2, 4, 8):
        yield from one("decode_context_parallel_size", size)
    for number in range(1, 5):
        drafts = (("speculative_method", "mtp"), ("num_speculative_tokens", number))
        names = ("speculative_method", "num_speculative_tokens")
        yield Hypothesis(names, f"speculative decoding mtp:{number}", choice, drafts)


def _word(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


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
            predictor = Predictor(model, guess.choice, replace(recognised.settings, **dict(guess.changes)))
            theirs = infer_axis(predictor, observation) if anew else axis
            rows = [] if theirs is None else pool_rows(predictor, theirs, observation)
        except KvplanError:
            continue
        compared = [row for row in rows if row.predicted is not None]
        if theirs is not None and compared and all(row.agrees for row in compared):
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
