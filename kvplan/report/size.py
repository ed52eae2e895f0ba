"""The screen of ``kvplan size``: the answer in a sentence, the figures, what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.api.fits import Fits
from kvplan.engines.folders import title_of
from kvplan.engines.traits import traits_of
from kvplan.plans.serve import remarks
from kvplan.questions import MAX_REQUESTS, SuggestedFixes, Verdict
from kvplan.report.budget import fits_lines, memory_lines
from kvplan.report.layout import BLANK, Line, Piece, Screen, Span, line, shorten, table, wrapped
from kvplan.report.words import (
    Unit,
    command,
    count,
    engine_title,
    gpus_in_replica,
    gpus_of_request,
    of_bytes,
    request_ranks,
    settings_words,
    size_words,
    ways_words,
)
from kvplan.results import Budget, Pool, Request, SizeResult
from kvplan.units import gib

if TYPE_CHECKING:
    from kvplan.plans.plan import Plan

_FAMILY_WIDTH = 36
_POOL_OF = {False: "pool of one GPU", True: "pool in host memory"}


def size_screen(
    result: SizeResult,
    verdict: Verdict | None,
    *,
    typed: str,
    rules_file: str,
    memory: int | None = None,
    ways: SuggestedFixes | None = None,
    fits: Fits | None = None,
    plan: Plan | None = None,
) -> Screen:
    """The whole answer.

    verdict: None where no memory was given and the engine starts. typed: the model as the user wrote it.
    memory: bytes per GPU. ways: what would make it fit, where it does not. fits: what a GPU's pool holds.
    plan: whose pool this is, where a plan was sized.
    """
    screen: Screen = _sentence(result, verdict, memory, ways)
    screen += _unsafe(result, verdict, fits)
    screen += [BLANK, *_figures(result)] if result.sized else []
    if result.per_gpu.kv_bytes_per_request or result.total.kv_bytes_per_request or result.devices:
        screen += [BLANK, *_layers(result)]
    if result.devices:
        screen += [BLANK, *_devices(result)]
    if result.budget is not None:
        screen += [BLANK, *memory_lines(result, result.budget)]
    if fits is not None and (lines := fits_lines(result, fits)):
        screen += [BLANK, *lines]
    if result.pool is not None:
        screen += [BLANK, *_pool(result, result.pool)]
    elif memory is not None and verdict is not None and verdict.engine_starts:
        screen += [BLANK, *_plain_memory(result, verdict, memory)]
    screen += [BLANK, *warning_lines(result.warnings)] if result.warnings else []
    screen += [BLANK, *source_lines(result, rules_file)]
    if plan is not None:
        screen += wrapped(_of_plan(plan), indent=1, style="dim", first="plan:   ")
        for note in remarks(plan):
            screen += wrapped(note, indent=1, first="note:   ")
    overlay = () if plan is None or plan.environment is None else ("--env", plan.environment)
    screen.append(line(Span(f"why:    {command('kvplan', 'explain', typed, *overlay)}", "dim"), indent=1))
    more = "--json" if plan is not None else "--json, --engine all, --compare-dtypes"
    more += "" if memory is None else ", --ladder"
    return [*screen, line(Span(f"more:   {more}", "dim"), indent=1)]


def _sentence(
    result: SizeResult, verdict: Verdict | None, memory: int | None, ways: SuggestedFixes | None
) -> Screen:
    """The answer, then what would make it fit: nearest to what was asked first."""
    words = ways_words(ways, result) if ways is not None else ()
    if verdict is not None and result.refusal is not None:
        head = wrapped(
            f"{engine_title(result.engine)} would not serve {result.model.id}: {result.refusal.message}",
            first="No: ",
        )
        first = 1 if ways is not None and ways.max_model_len is not None else 0
        helps = (*words[:first], *result.refusal.help, *words[first:])
        return [_styled(head[0], "No:", "bad"), *head[1:], *help_lines(helps)]
    return [*_headline(result, verdict, memory), *help_lines(words)]


def _unsafe(result: SizeResult, verdict: Verdict | None, fits: Fits | None) -> Screen:
    """Both figures in front, where they disagree about starting."""
    if verdict is None or fits is None or not verdict.max_requests or result.refusal is not None:
        return []
    safe = [one.safe for one in fits.rungs if one.tokens == result.request.tokens]
    if not safe or safe[0]:
        return []
    return wrapped(f"{verdict.max_requests:,} likely, may not start: 0 safe.", style="warn")


def _headline(result: SizeResult, verdict: Verdict | None, memory: int | None) -> Screen:
    name = result.model.id
    if verdict is not None and result.budget is not None and result.pool is not None:
        return _gpu_sentence(result, verdict, result.budget, result.pool)
    if memory is None and result.pool is not None:
        memory = result.pool.bytes
    if verdict is not None and memory is not None:
        return _fit_sentence(result, verdict, memory)
    if host := int(result.settings.get("host_kv_bytes") or 0):
        return _host_sentence(result, host)
    if result.total.kv_bytes == 0:
        return [line(Span(name, "bold"), " keeps nothing from one token to the next: 0 bytes of cache.")]
    subject = "One request" if result.request.count == 1 else count(result.request.count, "request")
    verb = "takes" if result.request.count == 1 else "take"
    gpus, (ranks, ranks_name) = gpus_of_request(result), request_ranks(result)
    where = "" if gpus == 1 else f" on each of {gpus} GPUs"
    if ranks > 1:
        where = f"{where} of one of {ranks} {ranks_name}" if where else f" on one of {ranks} {ranks_name}"
    amount = size_words(result.per_gpu.kv_bytes)
    rows = wrapped(f"{subject} of {_length(result)} to {name} {verb} {amount} of cache{where}.")
    return [_styled(row, amount, "bold") for row in rows]


def _of_plan(plan: Plan) -> str:
    """``chat (prod), 4 GPUs: 2 replicas; this is one pool of 2``: what of the plan was sized."""
    from kvplan.plans.question import pools_of

    where = f" ({plan.environment})" if plan.environment is not None else ""
    head = f"{plan.name}{where}, {count(plan.gpus, 'GPU')}"
    if (pools := pools_of(plan)) != 1:
        head += f": {count(plan.replicas, 'replica')}; this is one pool of {pools:,}"
    return f"{head}; counted with the safe pool, as it requires" if plan.require.pool == "safe" else head


def _all_in_host(result: SizeResult) -> bool:
    """Whether nothing of the cache lies on a GPU."""
    return bool(result.settings.get("host_kv_bytes")) and not result.total.kv_bytes


def _host_sentence(result: SizeResult, host: int) -> Screen:
    """No count: what host memory holds is not known unless somebody says how much there is."""
    subject = "One request" if result.request.count == 1 else count(result.request.count, "request")
    verb = "takes" if result.request.count == 1 else "take"
    on_gpu = f" and {size_words(result.per_gpu.kv_bytes)} of a GPU's" if result.per_gpu.kv_bytes else ""
    amount = size_words(host)
    rows = wrapped(
        f"{subject} of {_length(result)} to {result.model.id} {verb} {amount} of host memory{on_gpu}."
    )
    return [_styled(row, amount, "bold") for row in rows] + (
        [] if on_gpu else help_lines(("--host-memory 64GiB: how many requests so much holds",))
    )


def _length(result: SizeResult) -> str:
    """``448 tokens``, with the encoder's where it has some, and what of them is text."""
    encoder = (
        f" (and {result.request.encoder_tokens:,} encoder tokens)" if result.request.encoder_tokens else ""
    )
    kinds = [
        f"{result.settings[f'{kind}_tokens']:,} of {word}"
        for kind, word in (("text", "text"), ("image", "images"), ("video", "video"), ("audio", "audio"))
        if f"{kind}_tokens" in result.settings
    ]
    parts = f" ({', '.join(kinds)})" if kinds else ""
    return count(result.request.tokens, "token") + encoder + parts


def _fit_sentence(result: SizeResult, verdict: Verdict, memory: int) -> Screen:
    gpus, (ranks, ranks_name) = gpus_of_request(result), request_ranks(result)
    where = "of cache" if gpus == 1 else f"of cache on each of {gpus} GPUs"
    each = f" on each of {ranks} {ranks_name}" if ranks > 1 else ""
    tokens = _length(result)
    holds = (
        "any number of requests"
        if verdict.max_requests >= MAX_REQUESTS
        else count(verdict.max_requests, "request")
    )
    verb = "hold" if verdict.fits else "hold only"
    if verdict.max_requests == 0:
        verb, holds = "hold", "no request"
    text = f"{size_words(memory)} {where} {verb} {holds} of {tokens} to {result.model.id}{each}."
    if not verdict.fits:
        text = f"No: {text[0].upper()}{text[1:]}" if result.request.count > 1 else f"No: {text}"
    style = "good" if verdict.fits else "bad"
    mark = holds if verdict.fits else "No:"
    return [_styled(row, mark, style) for row in wrapped(text)]


def _gpu_sentence(result: SizeResult, verdict: Verdict, budget: Budget, pool: Pool) -> Screen:
    """``llama on 2 × h100 holds 7 requests of 32,768 tokens (7.79×).``"""
    holds = count(verdict.max_requests, "request") if verdict.max_requests else "no request"
    verb = "holds" if verdict.fits else "holds only"
    if verdict.max_requests == 0:
        verb = "holds"
    ranks, ranks_name = request_ranks(result)
    gpus = gpus_in_replica(result)
    if ranks_name.startswith("data"):
        gpus *= ranks
    each = f" on each of {ranks} {ranks_name}" if ranks > 1 else ""
    if each and verdict.max_requests:
        each += f", {verdict.max_requests * ranks:,} together"
    length = int(result.settings.get("max_model_len") or 0)
    times = f" ({pool.max_concurrency:.2f}×)" if result.request.tokens == length else ""
    text = f"{result.model.id} on {gpus} × {budget.gpu} {verb} {holds} of {_length(result)}{times}{each}."
    if ranks > 1 and not verdict.fits and result.request.count > 1:
        text += f" {result.request.count:,} were asked of one rank."
    text = text if verdict.fits else f"No: {text}"
    mark, style = (holds, "good") if verdict.fits else ("No:", "bad")
    return [_styled(row, mark, style) for row in wrapped(text)]


def _styled(row: Line, part: str, style: str) -> Line:
    """The line with the first occurrence of ``part`` in the given style."""
    text = "".join(piece.text for piece in row)
    before, found, after = text.partition(part)
    if not found:
        return row
    return tuple(Span(piece, kind) for piece, kind in ((before, ""), (found, style), (after, "")) if piece)


def _figures(result: SizeResult) -> Screen:
    """Per request, all requests, per token and what is fixed: on the fullest GPU, and over the replica."""
    gpu, total, gpus = result.per_gpu, result.total, gpus_of_request(result)
    unit = Unit((gpu.kv_bytes_per_request, gpu.kv_bytes))
    all_unit = Unit((total.kv_bytes_per_request, total.kv_bytes))
    several = gpus > 1
    where = "fullest GPU" if several else "one GPU"
    if request_ranks(result)[1].startswith("attention"):
        where = f"one rank's {where.removeprefix('one ')}"
    header: list[Piece] = [Span(f"KV cache, {where}", "bold"), Span(unit.name, "dim"), Span("bytes", "dim")]
    if several:
        header.append(Span(f"all {gpus} GPUs, {all_unit.name}", "dim"))
    rows: list[list[Piece]] = [header]

    def add(name: str, amount: int, whole: int | None = None) -> None:
        row: list[Piece] = [name, unit.show(amount), f"{amount:,}"]
        if several and whole is not None:
            row.append(all_unit.show(whole))
        rows.append(row)

    add("one request", gpu.kv_bytes_per_request, total.kv_bytes_per_request)
    if result.request.count > 1:
        add(count(result.request.count, "request"), gpu.kv_bytes, total.kv_bytes)
    if gpu.peak_bytes != gpu.kv_bytes:
        add("at the peak, after prefill", gpu.peak_bytes)
    rows.append(["each further token", "", of_bytes(gpu.bytes_per_token).removesuffix(" B")])
    if gpu.fixed_bytes_per_request:
        rows.append(
            [
                "fixed part of a request",
                unit.show(gpu.fixed_bytes_per_request),
                f"{gpu.fixed_bytes_per_request:,}",
            ]
        )
    return table(rows, "lrrr")


def _layers(result: SizeResult) -> Screen:
    """The data of each layer kind: what the terms say, before sharding and before any allocator."""
    tokens, encoder = result.request.tokens, result.request.encoder_tokens
    title = "layers" if gpus_in_replica(result) == 1 else "layers, before sharding"
    rows: list[list[Piece]] = [[Span(title, "bold"), Span("bytes of one", "dim"), Span("of all", "dim")]]
    width = max(len(f"{entry.count:,}") for entry in result.layers)
    for entry in result.layers:
        amount = sum(term.bytes_at(tokens, encoder) for term in entry.terms)
        name = shorten(entry.layer.family, _FAMILY_WIDTH)
        rows.append([f"{entry.count:>{width},} × {name}", f"{amount:,}", f"{amount * entry.count:,}"])
    return table(rows, "lrr")


def _devices(result: SizeResult) -> Screen:
    """What lies where: layers, weights and cache of each GPU and of the host."""
    weights = any(one.weights_bytes is not None for one in result.devices)
    heads = ["layers dealt over", "layers", *(["weights"] if weights else []), "cache"]
    rows: list[list[Piece]] = [
        [Span(head, "bold" if not place else "dim") for place, head in enumerate(heads)]
    ]
    for one in result.devices:
        known = [] if not weights else ["" if one.weights_bytes is None else gib(one.weights_bytes)]
        rows.append([one.name, f"{one.layers:,}", *known, gib(one.kv_bytes)])
    return table(rows, "l" + "r" * (len(heads) - 1))


def _pool(result: SizeResult, pool: Pool) -> Screen:
    rows: list[list[Piece]] = [
        [Span(_POOL_OF[_all_in_host(result)], "bold"), size_words(pool.bytes), of_bytes(pool.bytes)],
        ["blocks", f"{pool.num_blocks:,}", f"of {of_bytes(pool.bytes_per_block)}"],
        *_requests(result.request, pool),
    ]
    screen = table(rows, "lrl")
    if len(pool.groups) > 1 or (pool.groups and pool.groups[0].layers != sum(e.count for e in result.layers)):
        rows = [
            [
                Span(word, "dim")
                for word in ("group", "layers", "tokens/block", "bytes/page", "blocks at full length")
            ]
        ]
        rows += [
            [
                group.kind,
                f"{group.layers:,}",
                f"{group.block_size:,}",
                f"{group.page_bytes:,}",
                f"{group.blocks_per_request:,}",
            ]
            for group in pool.groups
        ]
        screen += [BLANK, *table(rows, "lrrrr")]
    if traits_of(result.engine.name).log_lines:
        screen += [BLANK, *_log_lines(result, pool)]
    return screen


def _requests(request: Request, pool: Pool) -> list[list[Piece]]:
    """What the pool holds: requests that run at once, and those that start-up reserves room for."""
    if pool.running_blocks is None:
        most, usable = pool.requests_that_fit, ""
        if pool.max_requests != most:
            usable = f", capped by max_num_seqs {pool.max_num_seqs:,}"
        return [["requests that fit", f"{most:,}", f"of {count(request.tokens, 'token')}{usable}"]]
    length = f"of {request.tokens - request.answer_tokens:,} + {request.answer_tokens:,} tokens"
    capped = pool.max_running == pool.max_num_seqs
    words = f", capped by max_num_seqs {pool.max_num_seqs:,}" if capped else " (prompt + answer)"
    return [
        ["requests at once", f"{pool.max_running:,}", length + words],
        ["reserved at start-up", f"{pool.requests_that_fit:,}", "as the log counts them"],
    ]


def _log_lines(result: SizeResult, pool: Pool) -> Screen:
    """The engine's own words, a line here for each figure, as its lines are wider than a screen."""
    name = result.engine.name
    figures = {
        "memory": gib(pool.bytes),
        "tokens": pool.kv_tokens,
        "length": int(result.settings.get("max_model_len") or result.request.tokens),
        "concurrency": pool.max_concurrency,
    }
    said = [text for text in traits_of(name).log_lines if result.budget is not None or "{memory}" not in text]
    rows = [line(text.format_map(figures), indent=2) for text in said]
    return [line(Span(f"{title_of(name)}'s log will say", "bold"), indent=1), *rows]


def _plain_memory(result: SizeResult, verdict: Verdict, memory: int) -> Screen:
    if verdict.max_requests >= MAX_REQUESTS:
        return []
    rows: list[list[Piece]] = [
        [Span("memory for the cache of one GPU", "bold"), size_words(memory), of_bytes(memory)],
        [
            "requests that fit",
            f"{verdict.max_requests:,}",
            f"of {count(result.request.tokens, 'token')}, no allocator",
        ],
    ]
    return table(rows, "lrl")


def help_lines(helps: tuple[str, ...]) -> Screen:
    """``help: …`` lines, wrapped."""
    return [row for text in helps for row in wrapped(text, first="help: ")]


def warning_lines(warnings: tuple[str, ...]) -> Screen:
    screen: Screen = []
    for text in warnings:
        rows = wrapped(text, indent=1, first="warning: ")
        screen += [_styled(rows[0], "warning:", "warn"), *rows[1:]]
    return screen


def source_lines(result: SizeResult, rules_file: str) -> Screen:
    """Which settings, which rules and which file the answer came from."""
    return [
        *wrapped(settings_words(result.settings), style="dim", indent=1, first="with:   "),
        *wrapped(f"{engine_title(result.engine)} ({rules_file})", style="dim", indent=1, first="rules:  "),
        *wrapped(result.model.source, style="dim", indent=1, first="model:  "),
    ]
