"""Screens of the library's other values: a model, a GPU, a plan, a server's report."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.engines.observed import Observation
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.report.catalog import gpu_figures
from kvplan.report.layout import BLANK, Piece, Screen, Span, line, table, wrapped
from kvplan.report.notes import short_warnings
from kvplan.report.words import count, engine_title
from kvplan.results import EngineRef

_WARNINGS = 3


def model_lines(model: Model) -> Screen:
    """Its layers, its longest request, where it was read."""
    longest = f", requests up to {model.max_model_len:,} tokens" if model.max_model_len else ""
    dtype = f", {model.dtype}" if model.dtype else ""
    screen = wrapped(f"{model.id}: {count(model.num_layers, 'layer')} ({model.model_type}){longest}{dtype}.")
    for layer, number in model.distinct().items():
        screen.append(line(f"{number:,} × {layer.family}", indent=1))
    screen += wrapped(model.source, style="dim", indent=1, first="from: ")
    return [*screen, *short_warnings(model.warnings, _WARNINGS)]


def gpu_lines(gpu: Gpu) -> Screen:
    """Its figures; ``kvplan list gpus NAME`` has the sources."""
    rows: list[Sequence[Piece]] = [(name, shown) for name, shown in gpu_figures(gpu)]
    return [line(Span(gpu.name, "bold"), Span(f"   {gpu.slug}", "dim")), *table(rows, "ll")]


def plan_lines(plan: Plan) -> Screen:
    """The engines of a plan with their flags, and its requirements."""
    gpu = plan.settings.gpu
    where = f"{plan.gpus} × {gpu.slug}" if gpu is not None else f"{plan.gpus} GPUs"
    screen = wrapped(f"{plan.name}: {plan.model} under {plan.engine} on {where}.")
    flags = ", ".join(f"{name} {value}" for name, value in plan.serve)
    if flags:
        screen += wrapped(flags, indent=1, first="serve:    ")
    need = plan.require
    if need.requests is not None:
        tokens = f" of {need.tokens:,} tokens" if need.tokens else ""
        screen += wrapped(f"{count(need.requests, 'request')}{tokens}", indent=1, first="require:  ")
    return screen


def observation_lines(seen: Observation) -> Screen:
    """The engine and what it printed of its pools."""
    title = engine_title(EngineRef(seen.engine, seen.engine_version or ""))
    where = f"{seen.source} of {seen.lines:,} lines" if seen.lines else seen.source
    screen = wrapped(f"{title.strip()}, from its {where}: {count(len(seen.settings), 'setting')}.")
    rows: list[Sequence[Piece]] = [
        (str(row["rank"]), str(row["figure"]).replace("_", " "), str(row["printed"]))
        for row in seen.to_rows()
    ]
    if rows:
        screen += [BLANK, *table(rows, "llr")]
    if seen.refusal is not None:
        screen += wrapped(seen.refusal.text, style="bad", indent=1, first="refused: ")
    for note in seen.notes[:_WARNINGS]:
        screen += wrapped(note.text, style="dim", indent=1, first="note: ")
    return screen
