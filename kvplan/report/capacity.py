"""The screen of several machines: GPU and ways of dividing down, lengths across."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.deployment.counts import MAX_REQUESTS
from kvplan.deployment.lengths import Rung
from kvplan.deployment.machines import Machine
from kvplan.engines.base import Choice
from kvplan.engines.traits import traits_of
from kvplan.model import Model
from kvplan.report.layout import BLANK, Piece, Screen, Span, table, wrapped
from kvplan.report.notes import next_line, short_warnings, too_few
from kvplan.report.size_sentence import length_flag
from kvplan.report.words import count, engine_title, size_words
from kvplan.results import EngineRef

_MOST_WARNINGS = 3


def capacity_screen(
    model: Model,
    choice: Choice,
    lines: Sequence[Machine],
    lengths: Sequence[int],
    wanted: int,
    *,
    step: str = "",
) -> Screen:
    """One line a machine; those without an answer below, with the reason. step: what comes next."""
    title = engine_title(EngineRef(choice.engine.name, choice.version))
    asked = f" ({wanted:,} asked for)" if wanted > 1 else ""
    screen = wrapped(
        f"{model.id}, {title}: requests at once{asked}, likely and (safe), by tokens of a request."
    )
    ranks = traits_of(choice.engine.name).spread is None  # else all that it sees
    several = any(one.replicas > 1 for one in lines)
    heads = [
        *("GPUs", *(["replicas"] if several else []), *(["TP"] if ranks else []), "weights a GPU"),
        *(f"{length:,}" for length in lengths),
    ]
    cells: list[list[Piece]] = [[Span(head, "dim") for head in heads]]
    cells += (
        [*_machine(one, ranks=ranks, several=several), *(_cell(cell, wanted) for cell in one.cells)]
        for one in lines
        if one.why is None
    )
    if len(cells) > 1:
        screen += [BLANK, *table(cells, "l" + "r" * (len(heads) - 1), spare=("weights a GPU",))]
    for note in _notes(lines):
        screen += wrapped(note, indent=1, hang=2)
    said = tuple(dict.fromkeys(text for one in lines for text in one.warnings))
    if said:
        screen += [BLANK, *short_warnings(said, _MOST_WARNINGS)]
    return [*screen, BLANK, *next_line(step)] if step else screen


def _notes(lines: Sequence[Machine]) -> list[str]:
    """Machines without an answer, lengths that servers start with, GPUs that idle."""
    notes = [f"{_name(one)}, TP {one.tensor_parallel_size}: {one.why}" for one in lines if one.why]
    if any(one.alone for one in lines):
        notes.append(
            "*: does not start for the longest length; each length is sized with a server of its own"
        )
    lengths_chosen = {one.chosen_length: one for one in lines if one.chosen_length}
    notes += [
        f"started with {length_flag(one.answers[0].deployment, told)}" for told, one in lengths_chosen.items()
    ]
    for one in lines:
        idle = one.answers[0].deployment.idle_gpus if one.answers else 0
        notes += [f"{_name(one)}, TP {one.tensor_parallel_size}: {count(idle, 'GPU')} idle"] if idle else []
    return notes


def _name(one: Machine) -> str:
    return one.gpu.slug if one.gpu.row else f"{one.gpus} × {one.gpu.slug}"


def _machine(one: Machine, *, ranks: bool, several: bool) -> list[Piece]:
    weights = "" if one.weights is None else size_words(one.weights)
    parallel = [f"{one.tensor_parallel_size}"] if ranks else []
    parallel = [f"{one.replicas:,}", *parallel] if several else parallel
    return [_name(one) + ("*" if one.alone else ""), *parallel, weights]


def _cell(cell: Rung | None, wanted: int) -> Piece:
    if cell is None:
        return Span("too long", "dim")
    likely, safe = ("any" if number >= MAX_REQUESTS else f"{number:,}" for number in (cell.likely, cell.safe))
    return Span(
        too_few(f"{likely} ({safe})", cell.likely, wanted),
        "good" if cell.safe >= wanted else "bad" if cell.likely < wanted else "",
    )
