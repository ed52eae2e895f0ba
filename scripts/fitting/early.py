"""Releases up to 0.19, whose logs print the terms: medians over the rows in which each term decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import mean, median
from typing import Any, NamedTuple

from kvplan.architectures.config.activation_shape import Shape, shape_of
from kvplan.engines.vllm.memory.coefficients import board_of, parts, vllm_coefficients
from kvplan.engines.vllm.memory.decoders import passes_of
from kvplan.engines.vllm.memory.profile_peak import activation_peak, sampled, sampler_peak
from kvplan.engines.vllm.memory.profile_run import Coefficients, Load
from kvplan.engines.vllm.memory.rank_budget import non_torch
from kvplan.engines.vllm.start.runner import V1
from kvplan.units import GIB, MIB
from kvplan.weights.ranks import Parallel
from scripts.field_rows import Row

# The sampler's path decides the bytes per logit: a sort of the whole vocabulary where FlashInfer is not
# installed (to 0.10) or not asked for (vllm-project/vllm#26859 turned it off in 0.11.1), FlashInfer's kernel,
# or Triton's (0.17). Priors: the float32 copies that each path keeps, read in the source.
FUSED, SORT = "fused", "sort"
SAMPLERS = (((0, 8), SORT), ((0, 11), FUSED), ((0, 11, 1), SORT), ((0, 17), FUSED))
PRIORS = {FUSED: 14_000, SORT: 38_000}
COPIES, ENCODER = 4_000, 2_000
TRACED_REST = 64 * MIB
"""Beyond a traced pass: workspaces of matrix products, what the allocator rounds up."""
EARLY, LATE = "early", "late"
"""Non-torch memory was first counted without, then with the buffers of NCCL and all-reduce (0.18)."""
COUNTED = (0, 18)
NON_TORCH = {
    EARLY: {1: 140 * MIB, 2: 560 * MIB, 4: 600 * MIB},
    LATE: {1: 256 * MIB, 2: 2100 * MIB, 4: 2180 * MIB},
}
PIPELINE = 70 * MIB
FIRST, LAST = (0, 11), (0, 20)
"""Releases [first, last) that these rows calibrate."""


class Early(NamedTuple):
    """The coefficients that these rows decide."""

    logit: dict[str, int]
    copies: int
    traced_rest: int
    encoder: int
    non_torch: dict[str, dict[int, int]]
    pipeline: int


START = Early(PRIORS, COPIES, TRACED_REST, ENCODER, NON_TORCH, PIPELINE)


class Question:
    """One row with what kvplan resolves it to."""

    def __init__(self, row: Row) -> None:
        assert row.version is not None
        self.row = row
        settings = row.predict(weights=GIB, kv_cache_memory=GIB).settings
        self.load = Load(
            max_num_seqs=int(settings["max_num_seqs"]),
            max_num_batched_tokens=int(settings["max_num_batched_tokens"]),
            tensor_parallel_size=row.raw["tp"],
            pipeline_parallel_size=row.raw["pp"] or 1,
            gpu_memory_utilization=Fraction(9, 10),
        )
        self.shape: Shape = shape_of(row.model, 4 if settings["dtype"] == "float32" else 2)
        self.passes = passes_of(
            row.model,
            Parallel(tensor_parallel_size=self.load.tensor_parallel_size),
            length=int(settings["max_model_len"]),
            seqs=self.load.max_num_seqs,
            element=self.shape.element_bytes,
        )
        release = parts(row.version)
        self.sampler = next(kind for since, kind in reversed(SAMPLERS) if release >= since)
        self.era = EARLY if release < COUNTED else LATE
        self.known = vllm_coefficients(release, V1, board_of(row.gpu))

    @property
    def hidden(self) -> int:
        return self.load.max_num_batched_tokens * self.shape.hidden_size * self.shape.element_bytes

    def coefficients(self, fitted: Early, **changes: Any) -> Coefficients:
        """The release's, with what the fit says and some set otherwise."""
        values: dict[str, Any] = {
            "logit_millibytes": fitted.logit[self.sampler],
            "hidden_copies_milli": fitted.copies,
            "multimodal_copies_milli": fitted.encoder,
            "non_torch_by_ranks": tuple(sorted(fitted.non_torch[self.era].items())),
            "non_torch_pipeline": fitted.pipeline,
        }
        return replace(self.known, **{**values, **changes})

    def without(self, fitted: Early, **zero: int) -> int:
        """The activation peak with some coefficients set otherwise."""
        return activation_peak(self.shape, self.load, self.coefficients(fitted, **zero))


def usable(rows: Iterable[Row]) -> list[Question]:
    """Rows of these releases with a measured term."""
    return [
        Question(row)
        for row in rows
        if row.version
        and FIRST <= parts(row.version)[:2] < LAST
        and (row.raw["activation_peak_gib"] is not None or row.raw["non_torch_gib"] is not None)
    ]


def fit_early(questions: Sequence[Question]) -> Early:
    """Medians over the rows in which each term decides; priors where there is none."""
    fitted = START
    measured = [
        (question, amount)
        for question in questions
        if (amount := question.row.printed("activation_peak_gib"))
    ]
    for _ in range(3):  # the terms decide together: which of them is the peak depends on the others
        fitted = fitted._replace(copies=_copies(measured, fitted))
        fitted = fitted._replace(logit={kind: _logit(measured, fitted, kind) for kind in PRIORS})
        fitted = fitted._replace(encoder=_encoder(measured, fitted))
    fitted = fitted._replace(traced_rest=_traced_rest(measured, fitted))
    return fitted._replace(
        non_torch={era: _non_torch(questions, era) for era in NON_TORCH},
        pipeline=_middle(
            (
                question.row.printed("non_torch_gib")
                for question in questions
                if question.load.tensor_parallel_size == 1 < question.load.pipeline_parallel_size
            ),
            PIPELINE,
        ),
    )


Measured = Sequence[tuple[Question, int]]


def _copies(measured: Measured, fitted: Early) -> int:
    """Rows of text models whose forward pass is the peak."""
    found = []
    for question, amount in measured:
        rest = question.without(fitted, logit_millibytes=0, hidden_copies_milli=0)
        if question.shape.is_multimodal or question.without(fitted, logit_millibytes=0) < amount * 97 // 100:
            continue
        found.append((amount - rest) * 1000 // question.hidden)
    return _middle(found, fitted.copies)


def _traced_rest(measured: Measured, fitted: Early) -> int:
    """Rows of text models whose forward pass is the peak, and was traced."""
    found = []
    for question, amount in measured:
        tokens = question.load.max_num_batched_tokens
        traced = max((tokens * each + besides for each, besides in question.passes), default=0)
        sampler = question.without(fitted, hidden_copies_milli=0)
        decides = sampler < amount * 97 // 100 and amount * 3 // 4 < traced < amount
        if decides and not question.shape.is_multimodal:
            found.append(amount - traced)
    return _middle(found, fitted.traced_rest)


def _logit(measured: Measured, fitted: Early, sampler: str) -> int:
    """Rows of text models whose sampler is the peak."""
    found = []
    for question, amount in measured:
        forward = question.without(fitted, logit_millibytes=0)
        if question.shape.is_multimodal or question.sampler != sampler or forward > amount * 97 // 100:
            continue
        kept = forward - question.without(fitted, logit_millibytes=0, workspace_milli=0)
        workspace = kept if question.known.workspace_kept else 0
        beside = sampler_peak(
            question.shape, question.load, question.coefficients(fitted, logit_millibytes=0)
        )
        logits = sampled(question.load) * question.shape.vocab_size
        found.append((amount - beside - workspace) * 1000 // logits)
    return _middle(found, fitted.logit[sampler])


def _encoder(measured: Measured, fitted: Early) -> int:
    """Rows of multimodal models: what is beyond the text model's peak."""
    return _middle(
        (
            (amount - question.without(fitted, multimodal_copies_milli=0)) * 1000 // question.hidden
            for question, amount in measured
            if question.shape.is_multimodal
        ),
        fitted.encoder,
    )


def _non_torch(questions: Sequence[Question], era: str) -> dict[int, int]:
    found = {}
    for ways, prior in NON_TORCH[era].items():
        amounts = (
            question.row.printed("non_torch_gib")
            for question in questions
            if question.era == era
            and question.load.tensor_parallel_size == ways
            and question.load.pipeline_parallel_size == 1
        )
        found[ways] = _middle(amounts, prior)
    return found


def _middle(amounts: Iterable[int | None], prior: int) -> int:
    known = [amount for amount in amounts if amount]
    return int(median(known)) if known else prior


class Errors(NamedTuple):
    """Differences of the test half: bytes of the activation peak and of non-torch memory."""

    activation: list[int]
    non_torch: list[int]

    def words(self) -> str:
        shown = []
        for name, values in (("activations", self.activation), ("non-torch", self.non_torch)):
            if values:
                average, worst = mean(values) / GIB, max(values) / GIB
                shown.append(f"{name} mean {average:.3f}, largest {worst:.3f} GiB ({len(values)} rows)")
        return ", ".join(shown)


def errors(questions: Sequence[Question], fitted: Early) -> Errors:
    """Predicted against printed, row by row."""
    activation, rest = [], []
    for question in questions:
        known = question.coefficients(fitted)
        amount = question.row.printed("activation_peak_gib")
        if amount is not None:
            activation.append(abs(activation_peak(question.shape, question.load, known) - amount))
        amount = question.row.printed("non_torch_gib")
        if amount is not None:
            rest.append(abs(non_torch(question.shape, question.load, known) - amount))
    return Errors(activation, rest)


def halves(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """By model: the names in order, dealt into two."""
    names = sorted({question.row.model.id for question in questions})
    first = set(names[::2])
    return (
        [question for question in questions if question.row.model.id in first],
        [question for question in questions if question.row.model.id not in first],
    )


def early_report(questions: Sequence[Question]) -> list[str]:
    """Both halves, fitted and tested on each other."""
    lines = []
    first, second = halves(questions)
    for name, train, test in (("first", first, second), ("second", second, first)):
        fitted = fit_early(train)
        models = len({question.row.model.id for question in train})
        lines.append(
            f"fitted on the {name} half ({models} models): its own rows: {errors(train, fitted).words()}"
        )
        lines.append(f"  the other half: {errors(test, fitted).words()}")
    lines.append(f"fitted on all rows, as shipped: {errors(questions, fit_early(questions)).words()}")
    return lines
