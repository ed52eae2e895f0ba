"""The screens of several answers: comparison, grid of lengths and requests, ladder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.deployment.counts import MAX_REQUESTS
from kvplan.deployment.lengths import Ladder
from kvplan.deployment.rows import Row
from kvplan.report.budget import capped_cell
from kvplan.report.grids import grid_basis, shared_warnings
from kvplan.report.layout import (
    BLANK,
    GAP,
    Piece,
    Screen,
    Span,
    columns,
    line,
    shorten,
    table,
    table_width,
    wrapped,
)
from kvplan.report.notes import help_lines, too_few, warning_lines
from kvplan.report.size_sentence import deployment_words, limit_flag
from kvplan.report.words import (
    Unit,
    count,
    engine_title,
    gpus_of_request,
    of_bytes,
    size_words,
)
from kvplan.results import EngineRef, SizeResult

_ALIGN = {"model": "l", "engine": "l", "kv dtype": "l", "tokens": "r", "requests": "r"}


def comparison_screen(rows: Sequence[Row]) -> Screen:
    """One line an answer; columns for what differs between the rows, the rest in the headline."""
    results = [row.result for row in rows if row.result is not None and not _has_no_size(row)]
    names = _varying(rows)
    if [title for title, _ in names] == ["kv dtype"]:
        return _dtype_screen(rows, results)
    keys = [[read(row) for _, read in names] for row in rows]
    notes = [f"{' '.join(key)}: {why}" for key, row in zip(keys, rows) if (why := _why_not(row))]
    return [
        *_headline(rows, results),
        BLANK,
        *_comparison([title for title, _ in names], keys, _figures(rows, results)),
        *([BLANK] if notes else []),
        *[row for note in notes for row in wrapped(note, indent=1, hang=2)],
        *shared_warnings(results),
        *_next_steps(),
    ]


def _comparison(names: list[str], keys: list[list[str]], figures: list[list[Piece]]) -> Screen:
    """The table: models that differ in more stand over their rows."""
    grouped = len(names) > 1 and names[0] == "model"
    shown = names[1:] if grouped else names
    width = 0 if grouped else columns() - table_width(table(figures, "r" * len(figures[0]))) - len(GAP)
    cells: list[list[Piece]] = [[*(Span(title, "dim") for title in shown), *figures[0]]]
    for key, numbers in zip(keys, figures[1:]):
        cells.append([*key[1:], *numbers] if grouped else [shorten(key[0], width), *key[1:], *numbers])
    align = "".join(_ALIGN[title] for title in shown) + "r" * len(figures[0])
    body = table(cells, align, spare=("bytes", "B/token"))
    return _under_headings([key[0] for key in keys], body) if grouped else body


def _dtype_screen(rows: Sequence[Row], results: Sequence[SizeResult]) -> Screen:
    """One model by KV dtype: those that the engine does not take are only named."""
    taken = [row for row in rows if not _has_no_size(row)]
    refused = [row.question.settings.kv_cache_dtype for row in rows if _has_no_size(row)]
    figures = _figures(taken, results)
    names = ["kv dtype", *(row.question.settings.kv_cache_dtype for row in taken)]
    cells = [[Span(name, "" if at else "dim"), *row] for at, (name, row) in enumerate(zip(names, figures))]
    screen = [*_headline(rows, results), BLANK, *table(cells, "l" + "r" * len(figures[0]))]
    if refused:
        title = engine_title(EngineRef(rows[0].question.choice.engine.name, rows[0].question.choice.version))
        screen += [BLANK, *wrapped(", ".join(refused), indent=1, first=f"{title} does not take: ", hang=2)]
    return [*screen, *shared_warnings(results), *_next_steps()]


def _has_no_size(row: Row) -> bool:
    """Refused before anything could be sized: no bytes although there are layers that keep some."""
    result = row.result
    if result is None:
        return True
    return not result.sized


def _next_steps() -> Screen:
    return [
        BLANK,
        line(Span("why:    kvplan explain MODEL", "dim"), indent=1),
        line(Span("more:   --json, --kv-cache-memory 16GiB", "dim"), indent=1),
    ]


def _under_headings(models: Sequence[str], body: Screen) -> Screen:
    """The rows of the table with each model's name on a line of its own before its rows."""
    screen, last = [body[0]], ""
    for model, row in zip(models, body[1:]):
        if model != last:
            screen += [BLANK, line(Span(model, "bold"), indent=1)]
        screen.append(row)
        last = model
    return screen


def _figures(rows: Sequence[Row], results: Sequence[SizeResult]) -> list[list[Piece]]:
    """The columns of numbers with their headers; a row without an answer says so in the first."""
    unit = Unit(result.per_gpu.kv_bytes for result in results)
    gpus = max((gpus_of_request(result) for result in results), default=1)
    with_requests = any(row.max_requests is not None for row in rows)
    heads = [f"{unit.name} a GPU" if gpus > 1 else unit.name, "bytes", "B/token"]
    heads.append("requests fit" if with_requests else "ratio")
    figures: list[list[Piece]] = [[Span(head, "dim") for head in heads]]
    first = next((result.per_gpu.kv_bytes for result in results if result.sized), 0)
    for row in rows:
        if row.result is None or _has_no_size(row):
            figures.append([Span("refused", "bad"), "", "", ""])
            continue
        gpu = row.result.per_gpu
        last = _fits(row) if with_requests else _ratio(gpu.kv_bytes, first)
        per_token = of_bytes(gpu.bytes_per_token).removesuffix(" B")
        figures.append([unit.show(gpu.kv_bytes), f"{gpu.kv_bytes:,}", per_token, last])
    return figures


def _why_not(row: Row) -> str:
    if row.error is not None:
        return row.error.message
    return row.result.refusal.message if row.result is not None and row.result.refusal is not None else ""


def _varying(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("model", lambda row: row.question.model.id),
        (
            "engine",
            lambda row: engine_title(EngineRef(row.question.choice.engine.name, row.question.choice.version)),
        ),
        ("kv dtype", lambda row: row.question.settings.kv_cache_dtype),
        (
            "tokens",
            lambda row: (
                f"{row.result.request.tokens:,}" if row.result else _asked(row.question.settings.tokens)
            ),
        ),
        ("requests", lambda row: f"{row.question.settings.requests:,}"),
    ]
    varying = [column for column in columns if len({column[1](row) for row in rows}) > 1]
    return varying or columns[:1]


def _asked(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,}"


def _fits(row: Row) -> Piece:
    if row.max_requests is None:
        return ""
    if row.max_requests >= MAX_REQUESTS:
        return Span("any", "good")
    fits = row.max_requests >= row.question.settings.requests
    shown = too_few(f"{row.max_requests:,}", row.max_requests, row.question.settings.requests)
    return Span(shown, "good" if fits else "bad")


def _ratio(amount: int, first: int) -> str:
    if first == 0:
        return ""
    hundredths = (amount * 200 + first) // (2 * first)
    return f"{hundredths // 100:,}.{hundredths % 100:02d}x"


def _headline(rows: Sequence[Row], results: Sequence[SizeResult]) -> Screen:
    """The facts common to all rows, as a sentence."""
    if not results:
        return [line("No answer.")]
    first = results[0]
    tokens = {result.request.tokens for result in results}
    counts = {result.request.count for result in results}
    subject = "requests" if len(counts) > 1 or counts != {1} else "one request"
    if len(counts) == 1 and counts != {1}:
        subject = count(first.request.count, "request")
    length = f"of {count(first.request.tokens, 'token')}" if len(tokens) == 1 else "of each length"
    models, engines = {row.question.model.id for row in rows}, {result.engine.name for result in results}
    to = f" to {first.model.id}" if len(models) == 1 else ""
    under = f", {engine_title(first.engine)}" if len(engines) == 1 else ""
    smallest = min(results, key=lambda result: result.per_gpu.kv_bytes)
    amounts = sorted(result.per_gpu.kv_bytes for result in results)
    ends = list(dict.fromkeys((size_words(amounts[0]), size_words(amounts[-1]))))
    spread = " to ".join(ends)
    least = f"; {smallest.model.id} takes the least" if len(models) > 1 and amounts[0] != amounts[-1] else ""
    return wrapped(f"KV cache of {subject} {length}{to}{under}: {spread}{least}.")


def ladder_screen(found: Ladder, *, rules_file: str | None = None) -> Screen:
    """How many requests fit at each length, and how long requests may be."""
    result = found.found.result
    if not found.rungs:
        reason = result.refusal.message if result.refusal else "no length fits"
        helps = result.refusal.help if result.refusal else ()
        return [
            *wrapped(f"{engine_title(result.engine)} would not serve it: {reason}", first="No: "),
            *help_lines(helps),
        ]
    last, first = found.rungs[-1], found.rungs[0]
    shorter = f", or {_number(first.likely)} of {first.tokens:,}" if first != last else ""
    where = deployment_words(found.found)
    screen = wrapped(
        f"{where} holds {_number(last.likely, 'request')} of {count(last.tokens, 'token')}{shorter}."
    )
    unit = Unit(rung.kv_bytes_per_request for rung in found.rungs)
    heads = ("tokens", f"{unit.name} each", "likely", "safe")
    rows: list[list[Piece]] = [[Span(word, "dim") for word in heads]]
    for rung in found.rungs:
        counts = [Span(_number(number), "good" if number else "bad") for number in (rung.likely, rung.safe)]
        each, limit = unit.show(rung.kv_bytes_per_request), limit_flag(result)
        rows.append([f"{rung.tokens:,}", each, *counts, *capped_cell(rung, limit)])
    screen += [BLANK, *table(rows, "rrrrl")]
    if found.longest:
        pairs: list[list[Piece]] = [[Span("requests", "dim"), Span("tokens each, at most", "dim")]]
        for number, tokens in found.longest:
            pairs.append([f"{number:,}", Span(f"{tokens:,}") if tokens else Span("none", "bad")])
        screen += [BLANK, *table(pairs, "rr")]
    if found.max_model_len is not None:
        length = f"--max-model-len {found.max_model_len}"
        note = f"started with {length}: one request of the model's own length does not fit"
        screen += [BLANK, *warning_lines((note,))]
    if result.warnings:
        screen += [BLANK, *warning_lines(result.warnings)]
    return [*screen, BLANK, *grid_basis(result, rules_file)]


def _number(number: int, noun: str = "") -> str:
    if number >= MAX_REQUESTS:
        return f"any number of {noun}s" if noun else "any"
    return count(number, noun) if noun else f"{number:,}"
