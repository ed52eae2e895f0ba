"""Prediction beside report: what an engine said of its cache, and what its rules say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvplan.comparison.explain import explained, unseen_rank, why
from kvplan.comparison.figures import (
    MEMORY_REFUSALS,
    budget_rows,
    cache_rows,
    infer_axis,
    layout_rows,
    pool_rows,
    refusal_rows,
    unpredicted,
)
from kvplan.comparison.predict import PICKS, Axis, Predictor, axis_of
from kvplan.comparison.recognise import Recognised, recognise, without
from kvplan.comparison.results import ComparedRow, Comparison, Verdict
from kvplan.engines import ENGINES
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.observation import Observation
from kvplan.results import EngineRef, ModelRef

TOLERANCE = Fraction(2, 100)
_SOFT = ("attention_backend",)
"""Settings of a log without which the question can still be asked."""
_SAID = (
    "weights_bytes",
    "activation_peak_bytes",
    "non_torch_bytes",
    "cuda_graph_bytes",
    "available_kv_bytes",
)


def compare(
    model: Model,
    observation: Observation,
    overrides: Mapping[str, Any] | None = None,
    *,
    engine: str | None = None,
    gpu: Gpu | None = None,
    budget: object | None = None,
    tolerance: Fraction = TOLERANCE,
) -> Comparison:
    """Every figure of the observation beside the engine's rules.

    overrides: parsed settings by name (kvplan.settings.Settings) that count before the log's. engine: rules
    to use (``vllm@0.19``), else those of the printed version. gpu: told by the printed memory. budget: a
    memory budget whose lines are compared too. tolerance: share by which a figure may be off.
    Raises KvplanError for settings that nobody knows.
    """
    if observation.engine not in ENGINES:
        reason = f"the cache rules of {observation.engine} are not known"
        return _cannot(model, observation, reason)
    recognised = recognise(observation, overrides or {}, engine=engine, gpu=gpu)
    try:
        recognised, predictor = _predictor(model, recognised)
    except KvplanError as error:
        if any(where.endswith("(given)") for where in recognised.shown.values()):
            raise
        return _cannot(model, observation, error.message, recognised)
    # A GPU and the weights' size make the engine's answer hold a budget of its own.
    budget = budget if budget is not None else getattr(predictor.result, "budget", None)
    return _Run(model, observation, recognised, predictor, budget, tolerance).comparison()


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


class _Run:
    """One comparison while it is being made."""

    def __init__(
        self,
        model: Model,
        observation: Observation,
        recognised: Recognised,
        predictor: Predictor,
        budget: object | None,
        tolerance: Fraction,
    ) -> None:
        self.model, self.observation, self.tolerance = model, observation, tolerance
        self.recognised, self.predictor, self.budget = recognised, predictor, budget
        self.notes = [*recognised.notes, *(note.text for note in observation.notes)]

    def comparison(self) -> Comparison:
        rows = self._rows()
        compared = [row for row in rows if row.predicted is not None]
        refusal = self.observation.refusal
        if refusal is not None and refusal.kind not in MEMORY_REFUSALS:
            self.notes.append(f"the engine stopped: {refusal.text}")
        if not compared:
            verdict, reason = Verdict.CANNOT_COMPARE, self._why_not(rows)
        else:
            verdict, reason = self._verdict(compared)
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

    def _rows(self) -> list[ComparedRow]:
        observation = self.observation
        axis = axis_of(observation, self.recognised.settings, self.budget)
        axis = axis or infer_axis(self.predictor, observation)
        pool = self._pool(axis) if axis is not None else unpredicted(observation, tuple(PICKS))
        budget = [] if self.budget is None else list(budget_rows(self.budget, observation))
        named = {row.name for row in budget}
        said = [name for name in _SAID if name not in named and not (name == "available_kv_bytes" and named)]
        return [
            *budget,
            *(row for row in unpredicted(observation, tuple(said))),
            *layout_rows(self.predictor, observation),
            *pool,
            *cache_rows(self.predictor, axis, observation),
            *refusal_rows(
                self.predictor, axis, observation, seqs_known="max_num_seqs" in self.recognised.shown
            ),
        ]

    def _pool(self, axis: Axis) -> list[ComparedRow]:
        rows = pool_rows(self.predictor, axis, self.observation)
        if all(row.agrees or row.predicted is None for row in rows):
            return self._reasoned(rows, axis)
        found = explained(self.model, self.recognised, axis, self.observation)
        if found is not None:
            guess, predictor, theirs = found
            if not set(guess.names) & self.recognised.stated:
                text = f"with {guess.text}, which the {self.observation.source} does not say"
                self.predictor = predictor
                return [replace(row, explanation=text) for row in theirs]
            text = f"these are the figures of {guess.text}"
        else:
            settings = self.recognised.settings
            ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size
            told = unseen_rank(self.predictor, axis, self.observation, ranks)
            if told is None:
                return self._reasoned(rows, axis)
            text = told
        first = next(row for row in rows if row.predicted is not None and not row.agrees)
        return [replace(row, explanation=text) if row is first else row for row in self._reasoned(rows, axis)]

    def _reasoned(self, rows: list[ComparedRow], axis: Axis) -> list[ComparedRow]:
        return [
            replace(row, explanation=why(row, self.predictor, axis, self.observation)) if row.agrees else row
            for row in rows
        ]

    def _verdict(self, compared: list[ComparedRow]) -> tuple[Verdict, str]:
        off = [row for row in compared if not row.agrees]
        beyond = [row for row in off if row.off_by() > self.tolerance or row.name == "starts"]
        percent = _percent(self.tolerance)
        if not off:
            return Verdict.AGREES, "every figure is the one that the rules print"
        worst = max(off, key=ComparedRow.off_by)
        if not beyond:
            return Verdict.AGREES, f"all within {percent}; {worst.label} is off by {_percent(worst.off_by())}"
        if any(row.name == "starts" for row in beyond):
            return Verdict.DIFFERS, "the engine starts" if beyond[0].reported else "the engine does not start"
        return Verdict.DIFFERS, f"{worst.label} is off by {_percent(worst.off_by())}, more than {percent}"

    def _why_not(self, rows: list[ComparedRow]) -> str:
        source = self.observation.source
        if not rows:
            return f"the {source} says nothing of the cache's size"
        if all(row.name not in PICKS for row in rows):
            return f"the {source} says neither tokens, blocks nor concurrency"
        return f"the {source} does not say how many bytes the pool has"


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
