"""The screens of several lengths: a grid by number of requests, or how many a GPU holds at each."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.deployment.lengths import rung_of
from kvplan.deployment.rows import Row
from kvplan.report.budget import capped_cell, short_memory
from kvplan.report.layout import (
    BLANK,
    Piece,
    Screen,
    Span,
    line,
    shorten,
    table,
    wrapped,
)
from kvplan.report.notes import (
    basis_line,
    help_lines,
    more_line,
    next_line,
    short_warnings,
    source_lines,
    too_few,
    warning_lines,
)
from kvplan.report.size_sentence import deployment_words, length_flag, limit_flag
from kvplan.report.words import (
    Unit,
    count,
    engine_title,
    gpus_in_replica,
    gpus_of_request,
    size_words,
)
from kvplan.results import SizeResult

_LONGEST_NAME = 34


def shared_warnings(results: Sequence[SizeResult]) -> Screen:
    texts = tuple(
        dict.fromkeys(
            text
            if len({r.model.id for r in results}) == 1
            else f"{shorten(result.model.id, _LONGEST_NAME)}: {text}"
            for result in results
            for text in result.warnings
        )
    )
    return [BLANK, *warning_lines(texts)] if texts else []


def grid_screen(rows: Sequence[Row], *, rules_file: str | None = None, step: str = "") -> Screen:
    """Lengths down, numbers of requests across; what the fullest GPU holds in each place.

    rules_file: shown with every setting, where all is asked for. step: the command that comes next.
    """
    results = [row.result for row in rows if row.result is not None]
    first = results[0]
    unit = Unit(result.per_gpu.kv_bytes for result in results)
    counts = list(dict.fromkeys(result.request.count for result in results))
    by_place = {(row.result.request.tokens, row.result.request.count): row for row in rows if row.result}
    lengths = dict.fromkeys(result.request.tokens for result in results)
    header: list[Piece] = [
        Span("tokens", "dim"),
        *(Span(count(number, "request"), "dim") for number in counts),
    ]
    cells: list[list[Piece]] = [
        header,
        *([f"{tokens:,}", *(_place(by_place[tokens, one], unit) for one in counts)] for tokens in lengths),
    ]
    gpus = gpus_of_request(first)
    where = "one GPU" if gpus == 1 else f"the fullest of {gpus} GPUs"
    screen = wrapped(
        f"KV cache of {first.model.id} on {where}, in {unit.name}, by length and number of requests."
    )
    screen += [BLANK, *table(cells, "r" * len(cells[0])), BLANK]
    memory = rows[0].question.settings.kv_cache_memory
    if memory is not None:
        words = (
            f"no: more than {size_words(memory)} of cache hold"
            if any(_is_overfull(row) for row in by_place.values())
            else f"All fit {size_words(memory)}"
        )
        screen += [line(f"{words}.", indent=1), BLANK]
    if refused := _refused(results):
        screen += [*refused, BLANK]
    screen += shared_warnings(results)[1:] + ([BLANK] if any(result.warnings for result in results) else [])
    return screen + grid_basis(first, rules_file, step)


def _place(row: Row, unit: Unit) -> Piece:
    """The bytes of one length and number of requests, and whether the memory holds so many."""
    assert row.result is not None
    if not row.result.sized:
        return Span("refused", "bad")
    shown = unit.show(row.result.per_gpu.kv_bytes)
    return (
        Span(f"no {shown}", "bad") if _is_overfull(row) else Span(shown, "good" if row.max_requests else "")
    )


def _is_overfull(row: Row) -> bool:
    result = row.result
    if result is None or not result.sized or row.max_requests is None:
        return False
    return row.max_requests < result.request.count


def grid_basis(result: SizeResult, rules_file: str | None, step: str = "") -> Screen:
    following = next_line(step) if step else []
    if rules_file is not None:
        return [*source_lines(result, rules_file), *following]
    return [*basis_line(result), *following, *more_line("-v, --json")]


def fit_grid_screen(rows: Sequence[Row], *, rules_file: str | None = None) -> Screen:
    """Lengths down; what one request takes, and how many the GPU's likely and safe pool hold of them."""
    answers = [row.found for row in rows if row.found is not None]
    results = [one.result for one in answers]
    first, steps = answers[0], [rung_of(one) for one in answers]
    assert first.result.budget is not None
    unit = Unit(one.kv_bytes_per_request for one in steps)
    gpus = gpus_in_replica(first.result)
    heads = ("tokens", f"{unit.name} each" if gpus == 1 else f"{unit.name} a GPU", "likely", "safe")
    cells: list[list[Piece]] = [[Span(head, "dim") for head in heads]]
    wanted = rows[0].question.settings.requests
    for one in steps:
        numbers = [
            Span(too_few(f"{number:,}", number, wanted), "good" if number >= wanted else "bad")
            for number in (one.likely, one.safe)
        ]
        each, limit = unit.show(one.kv_bytes_per_request), limit_flag(first.result)
        cells.append([f"{one.tokens:,}", each, *numbers, *capped_cell(one, limit)])
    screen = [*wrapped(f"Requests at once: {deployment_words(first)}."), BLANK, *table(cells, "rrrrl"), BLANK]
    if refused := _refused(results):
        screen += [*refused, BLANK]
    screen += short_memory(first.result, first.result.budget)
    lengths = {one.deployment.chosen_length: one.deployment for one in answers}
    if len(lengths) == 1 and (length := next(iter(lengths))) is not None:
        screen += [BLANK, *wrapped(f"started with {length_flag(lengths[length], length)}", indent=1)]
    elif len(lengths) > 1:
        screen += [
            BLANK,
            *wrapped("each length is sized with a server of its own: none starts for all", indent=1),
        ]
    screen += [BLANK, *grid_basis(first.result, rules_file)]
    warnings = tuple(dict.fromkeys(text for result in results for text in result.warnings))
    return screen + short_warnings(warnings, 3)


def _refused(results: Sequence[SizeResult]) -> Screen:
    """The first refusal, with what would help."""
    for result in results:
        if result.refusal is not None:
            text = f"{engine_title(result.engine)} would not serve it: {result.refusal.message}"
            return [*wrapped(text, first="No: "), *help_lines(result.refusal.help)]
    return []
