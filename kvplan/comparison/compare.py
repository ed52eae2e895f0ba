"""Prediction beside report: what an engine said of its cache, and what its rules say of it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kvplan.comparison.explain import explained, unseen_rank, why
from kvplan.comparison.figures import (
    MEMORY_REFUSALS,
    cache_rows,
    infer_axis,
    layout_rows,
    pool_figures,
    pool_rows,
    refusal_rows,
    unpredicted,
)
from kvplan.comparison.memory import (
    BLOCKS_ROW,
    BUDGET_ROWS,
    POOL,
    SHARE_NOT_TOLD,
    UTILISATION,
    Measure,
    blocks_row,
    budget_of,
    budget_rows,
    free_row,
    pool_row,
    pool_unknown,
    printed_weights,
    tells_blocks_alone,
    tokens_row,
)
from kvplan.comparison.predict import (
    BLOCKS,
    BYTES,
    PICKS,
    Axis,
    Predictor,
    allocated,
    axis_of,
    narrow,
    smallest_pool,
)
from kvplan.comparison.recognise import Recognised, recognise, without
from kvplan.comparison.results import ComparedRow, Comparison, Verdict
from kvplan.engines import ENGINES
from kvplan.engines.base import has_kind
from kvplan.engines.observed import Observation, total
from kvplan.engines.observed.reading import reading_of
from kvplan.engines.traits import LENGTH, TOKENS, traits_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.own_options import OwnOptions
from kvplan.record import Json, replace
from kvplan.results import Budget, EngineRef, ModelRef
from kvplan.units import gib

TOLERANCE = Fraction(2, 100)
_SOFT = ("attention_backend",)
"""Settings of a log without which the question can still be asked."""
_POOLS = ("kv_pool_bytes", "num_blocks", "kv_tokens")
"""Rows of a pool that a budget leaves."""
_STATES, _CONTEXT = "mamba_ssm_cache_dtype", "ctx_size"
_CONTEXT_STEP, _MOST_CONTEXTS = 256, 4
"""llama.cpp rounds a context up to so many tokens (GGML_PAD); more contexts of the model's own length than
its default of slots are not looked for."""
BY_CACHE = "(by the size of the cache)"
_OF_A_POOL = ("kv_tokens", "num_blocks", "max_concurrency", "swa_tokens")
_SAID = (
    "weights_bytes",
    "activation_peak_bytes",
    "transient_peak_bytes",
    "non_torch_bytes",
    "cuda_graph_bytes",
    "available_kv_bytes",
)


def compare(
    model: Model,
    observation: Observation,
    overrides: Json | None = None,
    *,
    engine: str | None = None,
    gpu: Gpu | None = None,
    gpu_words: str | None = None,
    card: Gpu | None = None,
    with_budget: bool = False,
    budget: Budget | None = None,
    tolerance: Fraction = TOLERANCE,
    notes: tuple[str, ...] = (),
    inferred: bool = False,
    other_format: bool = False,
    draft: Model | None = None,
) -> Comparison:
    """Every figure of the observation beside the engine's rules.

    overrides: parsed settings by name (kvplan.settings.Settings) that count before the log's. engine: rules
    to use (``vllm@0.19``), else those of the printed version. gpu: told by the log, gpu_words:
    how; card: one of the printed memory where several kinds have it. with_budget: the memory budget's
    lines are compared too; budget: one made before. tolerance: share by which a figure may be off. notes:
    what is to be said beside. inferred: the GPU follows from the printed pool, which then proves nothing.
    other_format: the model's weights are not those of the log. draft: the model of the draft that it names.
    Raises KvplanError for settings that nobody
    knows.
    """
    if observation.engine not in ENGINES:
        reason = f"the cache rules of {observation.engine} are not known"
        return _cannot(model, observation, reason)
    recognised = recognise(
        observation, overrides or {}, engine=engine, gpu=gpu, gpu_words=gpu_words, draft=draft
    )
    recognised = replace(recognised, notes=(*notes, *recognised.notes))
    if other_format and recognised.settings.kv_cache_dtype == "auto":
        # The checkpoint decides, and it is not the card's.
        recognised = replace(recognised, stated=recognised.stated - {"kv_cache_dtype"})
    try:
        recognised, predictor = _predictor(model, recognised)
        recognised, predictor = _states_told(model, recognised, predictor, observation)
        recognised, predictor = _context_told(model, recognised, predictor, observation)
    except KvplanError as error:
        if any(where.endswith("(given)") for where in recognised.shown.values()):
            raise
        return _cannot(model, observation, error.message, recognised)
    if budget is None and with_budget:
        measure = budget_of(model, recognised, observation, gpu or card, other_format=other_format)
        recognised = replace(recognised, notes=(*recognised.notes, *measure.said))
        told = dict(measure.told)
        if inferred:
            told["kv_pool_bytes"] = (
                "the GPU was told by this figure, so it proves nothing (--gpu NAME compares it)"
            )
        measure = replace(measure, told=told)
    else:
        measure = Measure(budget)
    return _Run(model, observation, recognised, predictor, measure, tolerance).comparison()


def _predictor(model: Model, recognised: Recognised) -> tuple[Recognised, Predictor]:
    """The rules asked once; a soft setting of the log that they do not take is left out."""
    try:
        return recognised, Predictor(model, recognised.choice, recognised.settings)
    except KvplanError:
        soft = [
            name for name in _SOFT if name in recognised.shown and "(given)" not in recognised.shown[name]
        ]
        if not soft:
            raise
    left = without(recognised, *soft)
    return left, Predictor(model, left.choice, left.settings)


def _states_told(
    model: Model, recognised: Recognised, predictor: Predictor, observation: Observation
) -> tuple[Recognised, Predictor]:
    """With the dtype of the recurrent states that makes the printed block, which is as large as a state;
    unchanged where it is said, or where not exactly one makes it."""
    size, own = observation.count("block_size"), predictor.result.settings.get("block_size")
    said = {_STATES, "block_size"} & recognised.stated
    if size is None or own is None or size.contains(int(own)) or said or not has_kind(model, Kind.STATE):
        return recognised, predictor
    found = []
    for name in ("float32", "bfloat16", "float16"):
        settings = replace(recognised.settings, mamba_ssm_cache_dtype=name)
        try:
            other = Predictor(model, recognised.choice, settings)
        except KvplanError:
            continue
        if size.contains(int(other.result.settings.get("block_size", 0))):
            found.append((settings, other))
    # bfloat16 and float16 are of one size: the model's own comes first.
    if not found or len(found) == 3:
        return recognised, predictor
    settings, other = found[0]
    where = f"{settings.mamba_ssm_cache_dtype} (by the block of {size.printed} tokens, line {size.line})"
    shown = {**recognised.shown, _STATES: where}
    stated = recognised.stated | {_STATES}
    return replace(recognised, settings=settings, shown=shown, stated=stated), other


def _context_told(
    model: Model, recognised: Recognised, predictor: Predictor, observation: Observation
) -> tuple[Recognised, Predictor]:
    """With the context whose cache has the printed bytes, where lengths decide the cache and none is said."""
    why = reading_of(observation.engine).uncounted(recognised.settings, observation)
    parts = (observation.count("kv_bytes"), observation.count("state_bytes"))
    printed = total(part for part in parts if part is not None)
    if why is None or printed is None or traits_of(observation.engine).printed_pool != LENGTH:
        return recognised, predictor

    def at(steps: int) -> Predictor:
        own = recognised.settings.own | OwnOptions.of({_CONTEXT: steps * _CONTEXT_STEP})
        return Predictor(model, recognised.choice, replace(recognised.settings, own=own))

    low, high = 1, max(1, (model.max_model_len or 0) * _MOST_CONTEXTS // _CONTEXT_STEP)
    while low < high:
        middle = (low + high) // 2
        if at(middle).result.total.kv_bytes >= printed.low:
            high = middle
        else:
            low = middle + 1
    found = at(low)
    if not printed.contains(found.result.total.kv_bytes):
        return recognised, predictor
    shown = {**recognised.shown, _CONTEXT: f"{low * _CONTEXT_STEP} {BY_CACHE}"}
    return replace(recognised, settings=found.settings, shown=shown), found


class _Run:
    """One comparison while it is being made."""

    def __init__(
        self,
        model: Model,
        observation: Observation,
        recognised: Recognised,
        predictor: Predictor,
        measure: Measure,
        tolerance: Fraction,
    ) -> None:
        self.model, self.observation, self.tolerance = model, observation, tolerance
        self.recognised, self.predictor, self.budget = recognised, predictor, measure.budget
        self.told, self.no_budget, self.shared = measure.told, measure.why, measure.shared
        self.predicts_blocks = False
        self.notes = [*recognised.notes, *(note.text for note in observation.notes)]

    def comparison(self) -> Comparison:
        rows = self._rows()
        compared = [row for row in rows if row.exact_predicted is not None]
        refusal = self.observation.refusal
        if refusal is not None and refusal.kind not in MEMORY_REFUSALS:
            self.notes.append(f"the engine stopped: {refusal.text}")
        if self.no_budget is not None and all(row.explanation != self.no_budget for row in rows):
            self.notes.append(self.no_budget)
        if not compared:
            verdict, reason = Verdict.CANNOT_COMPARE, self._why_not(rows)
        else:
            verdict, reason = self._verdict(compared)
        self.notes += self._capacity()
        result = self.predictor.result
        return Comparison(
            model=result.model,
            engine=result.engine,
            settings=result.settings,
            recognised=self.recognised.shown,
            rows=tuple(rows),
            verdict=verdict,
            reason=reason,
            notes=tuple(dict.fromkeys([*self.notes, *result.warnings])),
        )

    def _capacity(self) -> list[str]:
        """The meaning of a reported number of blocks that no budget predicts, so that it was not compared."""
        blocks = self.observation.count(BLOCKS_ROW)
        if blocks is None or self.predicts_blocks or smallest_pool(self.observation) is not None:
            return []
        alone = tells_blocks_alone(self.observation)
        if self.budget is not None and not alone:
            return []
        pool = self.predictor.sized(BLOCKS, blocks.value).pool
        whole = self.predictor.full_request_bytes
        if pool is None or not pool.num_blocks or not whole:
            return []
        held = pool.num_blocks * pool.bytes_per_block
        why = "no memory budget says how many blocks there should be"
        if self.budget is not None:
            why = pool_unknown(self.recognised, self.observation) or why
        elif alone and self.recognised.settings.gpu is None:
            why += " (--gpu h100 makes one)"
        return [
            f"capacity was not compared: {why};"
            f" {pool.num_blocks:,} blocks = {pool.kv_tokens:,} tokens = {gib(held)} on each GPU ="
            f" {held / whole:,.1f} requests of full length"
        ]

    def _rows(self) -> list[ComparedRow]:
        observation = self.observation
        budget, known = self._budget()
        axis = self._axis(known)
        # The context decides llama.cpp's cells, no pool does.
        by_length = traits_of(observation.engine).printed_pool == LENGTH
        pool = [] if by_length else unpredicted(observation, tuple(PICKS))
        if axis is not None:
            axis, pool = self._pool(axis)
        if known is not None and tells_blocks_alone(observation):
            pool = self._blocks(known, pool)
        if known is not None and traits_of(observation.engine).printed_pool == TOKENS:
            more, pool = self._allocated(known, pool)
            budget += [row for row in more if row.name not in {one.name for one in budget}]
        named = {POOL if row.name == "kv_pool_bytes" else row.name for row in budget}
        said = [name for name in _SAID if name not in named]
        return [
            *budget,
            *self._unsaid(said),
            *layout_rows(self.predictor, observation),
            *pool,
            *self._caches(axis),
            *self._refused(axis),
        ]

    def _caches(self, axis: Axis | None) -> Iterator[ComparedRow]:
        """The bytes of the caches; those that the context was taken from prove nothing."""
        told = self.recognised.shown.get(_CONTEXT, "").endswith(BY_CACHE)
        for row in cache_rows(self.predictor, axis, self.observation):
            told_row = told and row.name == "kv_bytes"
            yield _unpredicted(row, "the context was taken from this figure") if told_row else row

    def _refused(self, axis: Axis | None) -> list[ComparedRow]:
        """The rows of a refusal; of a cache that is not counted whole they are no prediction."""
        known = "max_num_seqs" in self.recognised.shown
        rows = refusal_rows(self.predictor, axis, self.observation, seqs_known=known)
        why = reading_of(self.observation.engine).uncounted(self.recognised.settings, self.observation)
        if why is None:
            return rows
        return [row if row.overlaps else _unpredicted(row, why) for row in rows]

    def _allocated(
        self, budget: Budget, rows: list[ComparedRow]
    ) -> tuple[list[ComparedRow], list[ComparedRow]]:
        """Of an engine that prints what it allocates: free memory, caches and tokens as the budget has
        them."""
        observation, predictor, tolerance = self.observation, self.predictor, self.tolerance
        more = [
            *free_row(budget, observation, tolerance),
            *pool_row(budget, observation, lambda pool: sum(allocated(predictor, pool).values()), tolerance),
        ]
        tokens = observation.count("kv_tokens")
        why = reading_of(observation.engine).uncounted(self.recognised.settings, observation)
        if why is not None:
            return more, [_unpredicted(row, why) if row.name in _OF_A_POOL else row for row in rows]
        estimated = [
            tokens_row(row, budget, lambda pool: predictor.at(BYTES, pool).tokens, tokens, tolerance)
            if tokens is not None and row.name == "kv_tokens" and row.exact_predicted is None
            else row
            for row in rows
        ]
        if self.shared:
            # What another process takes while this one starts is nobody's rule.
            why = "another process holds a part of the GPU, and what it takes meanwhile is not known"
            more, estimated = (
                [
                    row if row.overlaps or row.exact_predicted is None else _unpredicted(row, why)
                    for row in rows
                ]
                for rows in (more, estimated)
            )
        return more, estimated

    def _unsaid(self, names: list[str]) -> Iterator[ComparedRow]:
        """The rows of memory that nothing is predicted of, and why not."""
        own = reading_of(self.observation.engine).not_budgeted
        for row in unpredicted(self.observation, tuple(names)):
            if row.name == "weights_bytes" and (most := printed_weights(self.observation)) is not None:
                row = replace(row, exact_reported=most.value, printed=most.printed, line=most.line)
            why = self.no_budget
            if why is None and self.budget is not None:
                why = own.get(row.name, "the budget has no line of its own for it")
            if why is None and row.name == POOL:
                why = pool_unknown(self.recognised, self.observation)
            yield replace(row, explanation=why)

    def _blocks(self, budget: Budget, rows: list[ComparedRow]) -> list[ComparedRow]:
        """The blocks of metrics beside those that the budget leaves."""
        if UTILISATION not in self.recognised.shown:
            own = f"{self.recognised.choice.engine.name}'s own was taken (--gpu-memory-utilization 0.9)"
            self.notes.append(f"the metrics do not tell {UTILISATION}: {own}")
        self.predicts_blocks = True
        row = blocks_row(
            budget, self.observation, lambda pool: self.predictor.at(BYTES, pool).blocks, self.tolerance
        )
        return [row, *(other for other in rows if other.name != BLOCKS_ROW)]

    def _budget(self) -> tuple[list[ComparedRow], Budget | None]:
        """The rows of the budget, and the budget where the engine's pool is what it leaves."""
        if self.budget is None:
            return [], None
        unknown = pool_unknown(self.recognised, self.observation)
        share = unknown is not None and unknown.endswith(SHARE_NOT_TOLD)
        if unknown is not None and not share and self.observation.count(POOL) is not None:
            self.notes.append(f"the pool is not compared with the budget: {unknown}")
        rows = budget_rows(
            self.budget,
            self.observation,
            self.tolerance,
            pool=unknown is None or share,
            assumed=unknown if share else None,
            told=self.told,
        )
        return list(rows), self.budget if unknown is None else None

    def _axis(self, budget: Budget | None) -> Axis | None:
        """The printed pool; without one the budget's where it prints the first figure, else that figure's."""
        settings = self.recognised.settings
        printed = axis_of(self.observation, settings)
        expected = None if budget is None else axis_of(self.observation, settings, budget)
        if printed is not None or expected is None:
            return printed or infer_axis(self.predictor, self.observation)
        first = next(iter(pool_figures(self.observation).items()), None)
        if first is None or narrow(self.predictor, expected, *first) is not None:
            return expected
        told = infer_axis(self.predictor, self.observation)
        if told is not None:
            ends = f"{gib(expected.low)} … {gib(expected.high)}"
            self.notes.append(f"the pool of the memory budget, {ends}, does not hold the reported figures")
        return told or expected

    def _pool(self, axis: Axis) -> tuple[Axis, list[ComparedRow]]:
        """The rows of the pool, and the pool: another one where a hypothesis explains every figure."""
        rows = pool_rows(self.predictor, axis, self.observation)
        if all(row.overlaps or row.exact_predicted is None for row in rows):
            return axis, self._reasoned(rows, axis)
        why = reading_of(self.observation.engine).uncounted(self.recognised.settings, self.observation)
        if why is not None:
            return axis, [_unpredicted(row, why) for row in rows]
        found = explained(self.model, self.recognised, axis, self.observation)
        if found is not None:
            guess, predictor, anew, theirs = found
            if not set(guess.names) & self.recognised.stated:
                text = f"with {guess.text}, which the {self.observation.source} does not say"
                self.predictor = predictor
                return anew, [replace(row, explanation=text) for row in theirs]
            text = f"these are the figures of {guess.text}"
        else:
            settings = self.recognised.settings
            ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size
            told = unseen_rank(self.predictor, axis, self.observation, ranks)
            if told is None:
                return axis, self._reasoned(rows, axis)
            text = told
        first = next(row for row in rows if row.exact_predicted is not None and not row.overlaps)
        reasoned = self._reasoned(rows, axis)
        return axis, [replace(row, explanation=text) if row is first else row for row in reasoned]

    def _reasoned(self, rows: list[ComparedRow], axis: Axis) -> list[ComparedRow]:
        return [
            replace(row, explanation=why(row, self.predictor, axis, self.observation))
            if row.overlaps
            else row
            for row in rows
        ]

    def _verdict(self, compared: list[ComparedRow]) -> tuple[Verdict, str]:
        off = [row for row in compared if not row.overlaps]
        # A row of the budget has its tolerance in its interval, and none where the release is uncalibrated.
        strict = {"starts"} | (BUDGET_ROWS if self.budget is not None else frozenset())
        strict |= {BLOCKS_ROW} if self.predicts_blocks else frozenset()
        beyond = [row for row in off if row.off_by() > self.tolerance or row.name in strict]
        if beyond:
            return Verdict.DIFFERS, self._difference(off, beyond)
        percent = _percent(self.tolerance)
        pool = next((row for row in compared if row.inside and row.name in _POOLS), None)
        if pool is not None:
            others = "" if len(compared) == 1 else "; the others are what the rules print, or inside too"
            far = f"{_percent(pool.inside_by())}, more than {percent}"
            return Verdict.INSIDE, f"{pool.label} is off by {far}, inside the estimate's interval{others}"
        if not off:
            return Verdict.AGREES, self._agreement(compared)
        worst = max(off, key=ComparedRow.off_by)
        return Verdict.AGREES, f"all within {percent}; {worst.label} is off by {_percent(worst.off_by())}"

    def _difference(self, off: list[ComparedRow], beyond: list[ComparedRow]) -> str:
        """The sentence where figures do not agree. beyond: those of them that are off by too much."""
        starts = next((row for row in beyond if row.name == "starts"), None)
        if starts is not None:
            return "the engine starts" if starts.exact_reported else "the engine does not start"
        worst = max(off, key=ComparedRow.off_by)
        if worst.off_by() <= self.tolerance:
            return f"{beyond[0].label} is outside the interval of the memory budget"
        ratio = worst.exact_ratio
        shown = worst.off_by() if ratio is None else abs(ratio - 1)  # the table's figure
        return f"{worst.label} is off by {_percent(shown)}, more than {_percent(self.tolerance)}"

    def _agreement(self, compared: list[ComparedRow]) -> str:
        """The sentence where every figure agrees."""
        estimated = any(row.name in BUDGET_ROWS for row in compared) or self.predicts_blocks
        within = ", or lies in the interval of the memory budget" if estimated else ""
        return f"every figure is as predicted{within}"

    def _why_not(self, rows: list[ComparedRow]) -> str:
        source = self.observation.source
        if not rows:
            return f"the {source} says nothing of the cache's size"
        if all(row.name not in PICKS for row in rows):
            return f"the {source} says neither tokens, blocks nor concurrency"
        return f"the {source} does not say how many bytes the pool has"


def _unpredicted(row: ComparedRow, why: str) -> ComparedRow:
    return row.without_prediction(why)


def _percent(share: Fraction) -> str:
    text = f"{float(share * 100):.2f}".rstrip("0").rstrip(".")
    return f"{text or '0'} %"


def _cannot(
    model: Model, observation: Observation, reason: str, recognised: Recognised | None = None
) -> Comparison:
    version = recognised.choice.version if recognised else observation.engine_version or ""
    return Comparison(
        model=ModelRef(model.id, model.source),
        engine=EngineRef(observation.engine, version),
        settings={},
        recognised=recognised.shown if recognised else {},
        rows=tuple(unpredicted(observation, (*_SAID, *PICKS))),
        verdict=Verdict.CANNOT_COMPARE,
        reason=reason,
        notes=tuple(note.text for note in observation.notes),
    )
