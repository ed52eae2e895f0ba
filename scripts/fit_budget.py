"""Fit the coefficients of vLLM's memory budget to start-up logs and write the coefficient file.

    python -m scripts.fit_budget FIELD_REPORTS [--write]

Every coefficient is the median over the rows in which its term decides the printed figure. Models are
sorted by name and dealt into two halves: each half is fitted and tested on the other, both errors are
printed; the file is written from all rows. A coefficient without a row keeps its prior, which is a reading
of the engine's source (v1/sample/ops/topk_topp_sampler.py, v1/worker/gpu_model_runner.py).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from kvplan.architectures.config.activation_shape import Shape, shape_of
from kvplan.engines.vllm.coefficients import FILE, parts
from kvplan.engines.vllm.memory import Coefficients, Load, activation_peak, non_torch
from kvplan.units import GIB, MIB
from scripts.field_rows import Row, read_rows

# The sampler's path decides the bytes per logit: FlashInfer's kernel (the default until vllm-project/vllm
# #26859 turned it off in 0.11.1), a sort of the whole vocabulary, a Triton kernel (0.17), FlashInfer again
# (#40376). Priors: the float32 copies that each path keeps, read in the source.
FUSED, SORT = "fused", "sort"
PRIORS = {FUSED: 14_000, SORT: 38_000}
COPIES, ENCODER = 4_000, 2_000
EARLY, LATE = "early", "late"
"""Non-torch memory was first counted without, then with the buffers of NCCL and all-reduce (0.18)."""
NON_TORCH = {
    EARLY: {1: 140 * MIB, 2: 560 * MIB, 4: 600 * MIB},
    LATE: {1: 256 * MIB, 2: 2100 * MIB, 4: 2180 * MIB},
}
PIPELINE = 70 * MIB
GRAPH_LAYER = 18 * MIB


class Range(NamedTuple):
    """Versions [since, until) that share their rules."""

    since: str
    until: str | None
    sampler: str
    non_torch: str
    workspace_kept: bool
    graphs_inside: bool
    calibrated: bool
    why: str


RANGES = (
    Range("0.8", "0.11", FUSED, EARLY, False, False, False, "as 0.11; no rows"),
    Range("0.11", "0.11.1", FUSED, EARLY, False, False, True, "FlashInfer samples by default"),
    Range("0.11.1", "0.17", SORT, EARLY, False, False, True, "the sampler sorts the vocabulary (#26859)"),
    Range("0.17", "0.18", FUSED, EARLY, True, False, True, "a Triton kernel samples; workspaces are kept"),
    Range("0.18", "0.20", FUSED, LATE, True, False, True, "as 0.17; NCCL's buffers are counted"),
    Range("0.20", None, FUSED, LATE, True, True, False, "as 0.19; CUDA graphs are inside the utilisation"),
)


class Fitted(NamedTuple):
    """The coefficients that rows decide."""

    logit: dict[str, int]
    copies: int
    encoder: int
    non_torch: dict[str, dict[int, int]]
    pipeline: int
    graph_layer: int


START = Fitted(PRIORS, COPIES, ENCODER, NON_TORCH, PIPELINE, GRAPH_LAYER)


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
        self.range = next(entry for entry in reversed(RANGES) if parts(row.version) >= parts(entry.since))

    @property
    def hidden(self) -> int:
        return self.load.max_num_batched_tokens * self.shape.hidden_size * self.shape.element_bytes

    def without(self, fitted: Fitted, **zero: int) -> int:
        """The activation peak with some coefficients set otherwise."""
        return activation_peak(self.shape, self.load, coefficients(self.range, fitted, **zero))


def coefficients(entry: Range, fitted: Fitted, **changes: int) -> Coefficients:
    """One range of the file. Uncalibrated ranges have wide intervals: twice the peak, a GiB of the rest."""
    values: dict[str, Any] = {
        "logit_millibytes": fitted.logit[entry.sampler],
        "hidden_copies_milli": fitted.copies,
        "workspace_milli": 1000,
        "multimodal_copies_milli": fitted.encoder,
        "activation_margin": 128 * MIB if entry.calibrated else 512 * MIB,
        "activation_margin_milli": 30 if entry.calibrated else 1000,
        "non_torch_pipeline": fitted.pipeline,
        "non_torch_margin": 224 * MIB if entry.calibrated else GIB,
        "graph_layer_bytes": fitted.graph_layer if entry.graphs_inside else 0,
        "graph_margin": GIB // 2 if entry.graphs_inside else 0,
    }
    return Coefficients(
        since=entry.since,
        until=entry.until,
        calibrated=entry.calibrated,
        workspace_kept=entry.workspace_kept,
        graphs_inside=entry.graphs_inside,
        non_torch_by_tp=tuple(sorted(fitted.non_torch[entry.non_torch].items())),
        **{**values, **changes},
    )


def fit(questions: Sequence[Question]) -> Fitted:
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
    layers = [
        amount // question.shape.num_layers
        for question in questions
        if (amount := question.row.printed("cudagraph_estimated_gib"))
    ]
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
        graph_layer=_middle(layers, GRAPH_LAYER),
    )


Measured = Sequence[tuple[Question, int]]


def _copies(measured: Measured, fitted: Fitted) -> int:
    """Rows of text models whose forward pass is the peak."""
    found = []
    for question, amount in measured:
        rest = question.without(fitted, logit_millibytes=0, hidden_copies_milli=0)
        if question.shape.is_multimodal or question.without(fitted, logit_millibytes=0) < amount * 97 // 100:
            continue
        found.append((amount - rest) * 1000 // question.hidden)
    return _middle(found, fitted.copies)


def _logit(measured: Measured, fitted: Fitted, sampler: str) -> int:
    """Rows of text models whose sampler is the peak."""
    found = []
    for question, amount in measured:
        forward = question.without(fitted, logit_millibytes=0)
        if question.shape.is_multimodal or question.range.sampler != sampler or forward > amount * 97 // 100:
            continue
        kept = question.without(fitted, logit_millibytes=0) - question.without(
            fitted, logit_millibytes=0, workspace_milli=0
        )
        workspace = kept if question.range.workspace_kept else 0
        rows = min(question.load.max_num_seqs, question.load.max_num_batched_tokens)
        found.append((amount - question.hidden - workspace) * 1000 // (rows * question.shape.vocab_size))
    return _middle(found, fitted.logit[sampler])


def _encoder(measured: Measured, fitted: Fitted) -> int:
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
            if question.range.non_torch == era
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


def errors(questions: Sequence[Question], fitted: Fitted) -> Errors:
    """Predicted against printed, row by row."""
    activation, rest = [], []
    for question in questions:
        known = coefficients(question.range, fitted)
        amount = question.row.printed("activation_peak_gib")
        if amount is not None:
            activation.append(abs(activation_peak(question.shape, question.load, known) - amount))
        amount = question.row.printed("non_torch_gib")
        if amount is not None:
            rest.append(abs(non_torch(question.load, known) - amount))
    return Errors(activation, rest)


def usable(rows: Iterable[Row]) -> list[Question]:
    """Rows of a calibrated version with a measured term."""
    found = [
        Question(row)
        for row in rows
        if row.version
        and (row.raw["activation_peak_gib"] is not None or row.raw["non_torch_gib"] is not None)
    ]
    return [question for question in found if question.range.calibrated]


def halves(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """By model: the names in order, dealt into two."""
    names = sorted({question.row.model.id for question in questions})
    first = set(names[::2])
    return (
        [question for question in questions if question.row.model.id in first],
        [question for question in questions if question.row.model.id not in first],
    )


def report(questions: Sequence[Question]) -> list[str]:
    """Both halves, fitted and tested on each other."""
    lines = []
    first, second = halves(questions)
    for name, train, test in (("first", first, second), ("second", second, first)):
        fitted = fit(train)
        models = len({question.row.model.id for question in train})
        lines.append(
            f"fitted on the {name} half ({models} models): its own rows: {errors(train, fitted).words()}"
        )
        lines.append(f"  the other half: {errors(test, fitted).words()}")
    lines.append(f"fitted on all rows, as shipped: {errors(questions, fit(questions)).words()}")
    return lines


def file_text(fitted: Fitted, rows: int) -> str:
    """The coefficient file; the same fit gives the same bytes."""
    ranges = []
    for entry in RANGES:
        known = asdict(coefficients(entry, fitted))
        ranges.append(
            {"since": known.pop("since"), "until": known.pop("until"), "source": entry.why, **known}
        )
    about = (
        "Coefficients of vLLM's memory budget by release: written by scripts/fit_budget.py, not by hand."
        f" {rows} rows of start-up logs were fitted. Names: kvplan/engines/vllm/memory.py, Coefficients."
    )
    return json.dumps({"about": about, "ranges": ranges}, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args()
    rows, _ = read_rows(*options.reports)
    questions = usable(rows)
    print("\n".join(report(questions)))
    fitted = fit(questions)
    print(fitted)
    if options.write:
        FILE.write_bytes(file_text(fitted, len(questions)).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
