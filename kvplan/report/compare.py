"""The screens of several answers: comparison, grid of lengths and requests, ladder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.questions import MAX_REQUESTS, Compared, Ladder
from kvplan.report.layout import BLANK, WIDTH, Piece, Screen, Span, line, shorten, table, table_width, wrapped
from kvplan.report.size import help_lines, source_lines, warning_lines
from kvplan.report.words import Unit, count, engine_title, gpus_in_replica, of_bytes, size_words
from kvplan.results import EngineRef, SizeResult
from kvplan.units import GIB

_LONGEST_NAME = 34


def comparison_screen(rows: Sequence[Compared]) -> Screen:
    """One line an answer; columns for what differs between the rows, the rest in the headline."""
    names = _varying(rows)
    answered = [row for row in rows if row.result is not None]
    results = [row.result for row in answered if row.result is not None]
    unit = Unit(result.per_gpu.kv_bytes for result in results)
    several = any(gpus_in_replica(result) > 1 for result in results)
    with_requests = any(row.max_requests is not None for row in rows)
    header: list[Piece] = [Span(title, "dim") for title, _ in names]
    header += [Span(f"{unit.name}{' a GPU' if several else ''}", "dim"), Span("B/token", "dim")]
    if several:
        header.append(Span("GiB in all", "dim"))
    if with_requests:
        header.append(Span("requests fit", "dim"))
    elif len(results) > 1:
        header.append(Span("of the first", "dim"))
    cells: list[list[Piece]] = [header]
    notes: list[str] = []
    first = results[0].per_gpu.kv_bytes if results else 0
    for row in rows:
        keys: list[Piece] = [read(row) for _, read in names]
        if row.result is None:
            notes.append(f"{' '.join(str(key) for key in keys)}: {row.error.message if row.error else ''}")
            cells.append([*keys, Span("refused", "bad")])
            continue
        keys += [
            unit.show(row.result.per_gpu.kv_bytes),
            of_bytes(row.result.per_gpu.bytes_per_token).removesuffix(" B"),
        ]
        if several:
            keys.append(Unit((GIB,)).show(row.result.total.kv_bytes))
        if with_requests:
            keys.append(_fits(row))
        elif len(results) > 1:
            keys.append(_ratio(row.result.per_gpu.kv_bytes, first))
        if row.result.refusal is not None:
            notes.append(f"{' '.join(str(key) for key in keys[: len(names)])}: {row.result.refusal.message}")
        cells.append(keys)
    body = table(cells, "l" * len(names) + "r" * 4)
    return [
        *_headline(rows, results),
        BLANK,
        *body,
        *([BLANK] if notes else []),
        *[line_ for note in notes for line_ in wrapped(note, indent=1, hang=2)],
        *_shared_warnings(results),
        BLANK,
        line(Span("why:    kvplan explain MODEL   more: --json, --ladder", "dim"), indent=1),
    ]


def _varying(rows: Sequence[Compared]) -> list[tuple[str, Callable[[Compared], str]]]:
    columns: list[tuple[str, Callable[[Compared], str]]] = [
        ("model", lambda row: shorten(row.model.id, _LONGEST_NAME)),
        ("engine", lambda row: engine_title(EngineRef(row.choice.engine.name, row.choice.version))),
        ("kv dtype", lambda row: row.settings.kv_cache_dtype),
        (
            "tokens",
            lambda row: f"{row.result.request.tokens:,}" if row.result else _asked(row.settings.tokens),
        ),
        ("requests", lambda row: f"{row.settings.requests:,}"),
    ]
    varying = [column for column in columns if len({column[1](row) for row in rows}) > 1]
    return varying or columns[:1]


def _asked(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,}"


def _fits(row: Compared) -> Piece:
    if row.max_requests is None:
        return ""
    if row.max_requests >= MAX_REQUESTS:
        return Span("any", "good")
    fits = row.max_requests >= row.settings.requests
    return Span(f"{row.max_requests:,}", "good" if fits else "bad")


def _ratio(amount: int, first: int) -> str:
    if first == 0:
        return ""
    hundredths = (amount * 200 + first) // (2 * first)
    return f"{hundredths // 100:,}.{hundredths % 100:02d}x"


def _headline(rows: Sequence[Compared], results: Sequence[SizeResult]) -> Screen:
    """What all rows have in common, as a sentence."""
    if not results:
        return [line("No answer.")]
    first = results[0]
    tokens = {result.request.tokens for result in results}
    counts = {result.request.count for result in results}
    subject = "requests" if len(counts) > 1 or counts != {1} else "one request"
    if len(counts) == 1 and counts != {1}:
        subject = count(first.request.count, "request")
    length = f"of {count(first.request.tokens, 'token')}" if len(tokens) == 1 else "of each length"
    models, engines = {row.model.id for row in rows}, {result.engine.name for result in results}
    to = f" to {first.model.id}" if len(models) == 1 else ""
    under = f", {engine_title(first.engine)}" if len(engines) == 1 else ""
    smallest = min(results, key=lambda result: result.per_gpu.kv_bytes)
    amounts = sorted(result.per_gpu.kv_bytes for result in results)
    spread = size_words(amounts[0])
    if amounts[0] != amounts[-1]:
        spread = f"{size_words(amounts[0])} to {size_words(amounts[-1])}"
    least = f"; {smallest.model.id} takes the least" if len(models) > 1 and amounts[0] != amounts[-1] else ""
    return wrapped(f"KV cache of {subject} {length}{to}{under}: {spread}{least}.")


def _shared_warnings(results: Sequence[SizeResult]) -> Screen:
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


def grid_screen(rows: Sequence[Compared], *, rules_file: str) -> Screen:
    """Lengths down, numbers of requests across; what the fullest GPU holds in each place."""
    results = [row.result for row in rows if row.result is not None]
    first = results[0]
    unit = Unit(result.per_gpu.kv_bytes for result in results)
    counts = list(dict.fromkeys(result.request.count for result in results))
    by_place = {(row.result.request.tokens, row.result.request.count): row for row in rows if row.result}
    header: list[Piece] = [
        Span("tokens", "dim"),
        *(Span(count(number, "request"), "dim") for number in counts),
    ]
    cells: list[list[Piece]] = [header]
    overfull = False
    for tokens in dict.fromkeys(result.request.tokens for result in results):
        row: list[Piece] = [f"{tokens:,}"]
        for number in counts:
            found = by_place[tokens, number]
            assert found.result is not None
            shown = unit.show(found.result.per_gpu.kv_bytes)
            too_many = found.max_requests is not None and found.max_requests < number
            overfull |= too_many
            row.append(
                Span(f"no {shown}", "bad") if too_many else Span(shown, "good" if found.max_requests else "")
            )
        cells.append(row)
    gpus = gpus_in_replica(first)
    where = "one GPU" if gpus == 1 else f"the fullest of {gpus} GPUs"
    screen = wrapped(
        f"KV cache of {first.model.id} on {where}, in {unit.name}, by length and number of requests."
    )
    screen += [BLANK, *_in_blocks(cells), BLANK]
    memory = rows[0].settings.kv_cache_memory
    if memory is not None:
        words = (
            f"no: more than {size_words(memory)} of cache hold"
            if overfull
            else f"All fit {size_words(memory)}"
        )
        screen += [line(f"{words}.", indent=1), BLANK]
    for result in results:
        if result.refusal is not None:
            screen += [
                *wrapped(
                    f"{engine_title(result.engine)} would not start: {result.refusal.message}", first="No: "
                )
            ]
            screen += [*help_lines(result.refusal.help), BLANK]
            break
    screen += _shared_warnings(results)[1:] + ([BLANK] if any(result.warnings for result in results) else [])
    screen += source_lines(first, rules_file)
    return screen


def _in_blocks(cells: list[list[Piece]]) -> Screen:
    """The table, cut into several below each other where it is wider than a screen."""
    columns = len(cells[0]) - 1
    for per_block in range(columns, 0, -1):
        blocks = [
            table([[row[0], *row[1 + at : 1 + at + per_block]] for row in cells], "r" * (per_block + 1))
            for at in range(0, columns, per_block)
        ]
        if all(table_width(block) <= WIDTH for block in blocks):
            break
    return [row for at, block in enumerate(blocks) for row in ([BLANK, *block] if at else block)]


def ladder_screen(ladder: Ladder, memory: int, *, rules_file: str) -> Screen:
    """How many requests fit at each length, and how long requests may be."""
    result = ladder.result
    if not ladder.rungs:
        reason = result.refusal.message if result.refusal else "no length fits"
        helps = result.refusal.help if result.refusal else ()
        return [
            *wrapped(f"{engine_title(result.engine)} would not start: {reason}", first="No: "),
            *help_lines(helps),
        ]
    gpus = gpus_in_replica(result)
    where = "of cache" if gpus == 1 else f"of cache on each of {gpus} GPUs"
    last = ladder.rungs[-1]
    first = ladder.rungs[0]
    shorter = f", or {_number(first.max_requests)} of {first.tokens:,}" if first != last else ""
    screen = wrapped(
        f"{size_words(memory)} {where} hold {_number(last.max_requests, 'request')} of"
        f" {count(last.tokens, 'token')} to {result.model.id}{shorter}."
    )
    unit = Unit(rung.kv_bytes_per_request for rung in ladder.rungs)
    rows: list[list[Piece]] = [
        [Span(word, "dim") for word in ("tokens", f"{unit.name} each", "requests that fit")]
    ]
    for rung in ladder.rungs:
        fit = _number(rung.max_requests)
        note = "  max_num_seqs" if rung.capped_by_max_num_seqs else ""
        style = "good" if rung.max_requests else "bad"
        rows.append(
            [f"{rung.tokens:,}", unit.show(rung.kv_bytes_per_request), Span(fit, style), Span(note, "dim")]
        )
    screen += [BLANK, *table(rows, "rrrl")]
    if ladder.longest:
        pairs: list[list[Piece]] = [[Span("requests", "dim"), Span("tokens each, at most", "dim")]]
        for number, tokens in ladder.longest:
            pairs.append([f"{number:,}", Span(f"{tokens:,}") if tokens else Span("none", "bad")])
        screen += [BLANK, *table(pairs, "rr")]
    if ladder.max_model_len is not None:
        length = f"--max-model-len {ladder.max_model_len}"
        note = f"started with {length}: one request of the model's own length does not fit"
        screen += [BLANK, *warning_lines((note,))]
    if result.warnings:
        screen += [BLANK, *warning_lines(result.warnings)]
    return [*screen, BLANK, *source_lines(result, rules_file)]


def _number(number: int, noun: str = "") -> str:
    if number >= MAX_REQUESTS:
        return f"any number of {noun}s" if noun else "any"
    return count(number, noun) if noun else f"{number:,}"
