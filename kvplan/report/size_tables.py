"""The tables of ``kvplan size``: a request's bytes, layers, devices, the pool and the engine's own words."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from kvplan.deployment.answer import Counted
from kvplan.deployment.counts import MAX_REQUESTS
from kvplan.engines.folders import title_of
from kvplan.engines.traits import traits_of
from kvplan.report.layout import BLANK, Line, Piece, Screen, Span, line, one_line, shorten, table, wrapped
from kvplan.report.words import (
    Unit,
    count,
    gpus_in_replica,
    gpus_of_request,
    of_bytes,
    request_ranks,
    size_words,
)
from kvplan.results import MEMORY, SHM, DecodeSpeed, Pool, Request, SizeResult, Way
from kvplan.units import gib

if TYPE_CHECKING:
    from kvplan.api.tables import SizeTable

_FAMILY_WIDTH = 36
_POOL_OF = {False: "pool of one GPU", True: "pool in host memory"}


def all_in_host(result: SizeResult) -> bool:
    """Whether nothing of the cache lies on a GPU."""
    return bool(result.settings.get("host_kv_bytes")) and not result.total.kv_bytes


def figures(result: SizeResult) -> Screen:
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

    replica = Fraction(total.kv_bytes_per_request, gpu.kv_bytes_per_request or 1)

    def add_request(name: str, amount: int) -> None:
        add(name, amount, round(amount * replica))

    if gpu.prompt_bytes_per_request == gpu.kv_bytes_per_request:
        add_request("one request", gpu.kv_bytes_per_request)
    else:
        add_request("one request, while it answers", gpu.kv_bytes_per_request)
        add_request("while its prompt is read", gpu.prompt_bytes_per_request)
    if gpu.reserved_bytes_per_request != gpu.kv_bytes_per_request:
        add_request("reserved for one at start-up", gpu.reserved_bytes_per_request)
    if result.request.count > 1:
        add(f"{count(result.request.count, 'request')} at once", gpu.kv_bytes, total.kv_bytes)
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
    return table(rows, "lrrr", spare=("bytes",))


def layers(result: SizeResult) -> Screen:
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


def devices(result: SizeResult) -> Screen:
    """The place of everything: layers, weights and cache of each GPU and of the host."""
    weights = any(one.weights_bytes is not None for one in result.devices)
    heads = ["layers dealt over", "layers", *(["weights"] if weights else []), "cache"]
    rows: list[list[Piece]] = [
        [Span(head, "bold" if not place else "dim") for place, head in enumerate(heads)]
    ]
    for one in result.devices:
        known = [] if not weights else ["" if one.weights_bytes is None else gib(one.weights_bytes)]
        rows.append([one.name, f"{one.layers:,}", *known, gib(one.kv_bytes)])
    return table(rows, "l" + "r" * (len(heads) - 1))


def host_table(result: SizeResult) -> Screen:
    """One engine's share of the host's memory, and of /dev/shm."""
    tiers = any(one.tokens is not None for one in result.host)
    heads: list[Piece] = [Span("tokens", "dim")] if tiers else []
    rows: list[list[Piece]] = [[Span("host, one engine", "bold"), "", Span("where", "dim"), *heads]]
    for one in result.host:
        held: list[Piece] = ["" if one.tokens is None else f"{one.tokens:,}"] if tiers else []
        rows.append([one.name, _from_to(one.low_bytes, one.high_bytes), _PLACES[one.where], *held])
    return table(rows, "lrlr" if tiers else "lrl")


_TOLD = {"model": "model", "gpu": "GPUs", "engine": "engine", "kv_cache_dtype": "cache"}
"""Columns of several answers, where they differ, and their heads."""


def answers_screen(found: SizeTable) -> Screen:
    """Answers of several questions, one a row, with what differs between them."""
    rows = found.to_rows()
    for row in rows:
        row["gpu"] = "" if row["gpu"] is None else f"{row['gpus']} × {row['gpu']}"
    names = [name for name in _TOLD if len({str(row[name]) for row in rows}) > 1]
    counted = any(row["requests"] is not None for row in rows)
    heads = [*(_TOLD[name] for name in names), "tokens", "GiB a request", *["likely", "safe"] * counted]
    body: list[list[Piece]] = [[Span(head, "dim") for head in heads]]
    for row in rows:
        took, held, safe = row["total_kv_bytes_per_request"], row["requests"], row["safe_requests"]
        figures = ["" if took is None else gib(took).removesuffix(" GiB")]
        figures += [_held(held), _held(safe)] if counted else []
        body.append(
            [*(shorten(str(row[name]), _FAMILY_WIDTH) for name in names), f"{row['tokens']:,}", *figures]
        )
    what = count(len(rows), "answer") if "model" in names else rows[0]["model"]
    where = "" if "gpu" in names or not rows[0]["gpu"] else f" on {rows[0]['gpu']}"
    head = wrapped(f"{what}{where}: requests of so many tokens at once.", style="bold")
    return [*head, BLANK, *table(body, "l" * len(names) + "rr" + "rr" * counted, gap="  ")]


def _held(requests: int | None) -> str:
    return "" if requests is None else f"{requests:,}"


_PLACES = {MEMORY: "memory", SHM: "/dev/shm"}


def host_line(result: SizeResult) -> Line:
    """The same in a line: ``host  40.00 … 80.00 GiB in memory, 100.00 … 101.12 GiB in /dev/shm``."""
    parts = []
    for where, place in _PLACES.items():
        own = [one for one in result.host if one.where == where]
        low, high = sum(one.low_bytes for one in own), sum(one.high_bytes for one in own)
        parts += [f"{_from_to(low, high)} in {place}"] if high else []
    return one_line(", ".join(parts), first="host  ")


def _from_to(low: int, high: int) -> str:
    return gib(low) if low == high else f"{gib(low).removesuffix(' GiB')} … {gib(high)}"


_FEWEST_WAYS = 3


def ways_table(result: SizeResult, *, short: bool = False) -> Screen:
    """One request at a time, way by way: the longest context, and tokens a second at its start and half.
    short: the first ways alone, without what is said of the figures."""
    where = "GPU" if gpus_in_replica(result) == 1 else "GPUs"
    timed = any(way.start is not None for way in result.ways)
    heads = ["safely", "likely", *(["tokens/s", "half full"] if timed else [])]
    rows: list[list[Piece]] = [
        [Span("one request, longest", "bold"), *(Span(head, "dim") for head in heads)],
    ]
    for way in result.ways[: _FEWEST_WAYS if short else None]:
        lengths = [f"{length:,}" if length else "none" for length in (way.longest, way.likely)]
        speeds = [_speed(way.start), "" if way.halfway is None else f"{way.halfway.tokens_per_second:.0f}"]
        rows.append([_way_words(way, where), *lengths, *(speeds if timed else [])])
    said = "tokens/s: an estimate from published figures of such GPUs"
    if any(way.hosted for way in result.ways):
        said = "tokens/s: an estimate; host memory is taken for a desktop's, 25 to 60 GB/s"
    if not timed:
        said = "tokens/s: no published figure of such a GPU is known"
    return [
        *table(rows, "lrrrr" if timed else "lrr", spare=("half full", "likely") if timed else ()),
        *([] if short else [line(Span(said, "dim"), indent=1)]),
    ]


def _way_words(way: Way, where: str) -> str:
    if not way.hosted:
        return f"all on the {where}, {way.cache} cache"
    return f"{way.options or 'as placed'}, rest in host memory"


def _speed(found: DecodeSpeed | None) -> str:
    """``39 (28 … 55)``; slow ones with a decimal."""
    if found is None:
        return ""
    digits = 0 if found.low >= 10 else 1
    low, high = f"{found.low:.{digits}f}", f"{found.high:.{digits}f}"
    return f"{found.tokens_per_second:.{digits}f} ({low} … {high})"


def pool_lines(result: SizeResult, pool: Pool) -> Screen:
    rows: list[list[Piece]] = [
        [Span(_POOL_OF[all_in_host(result)], "bold"), size_words(pool.bytes), of_bytes(pool.bytes)],
        ["blocks", f"{pool.num_blocks:,}", f"of {of_bytes(pool.bytes_per_block)}"],
        *_requests(result.request, pool),
    ]
    screen = table(rows, "lrl")
    if len(pool.groups) > 1 or (pool.groups and pool.groups[0].layers != sum(e.count for e in result.layers)):
        rows = [
            [Span(word, "dim") for word in ("group", "layers", "tokens/block", "bytes/page", "blocks each")]
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
        screen += [BLANK, *table(rows, "lrrrr", spare=("bytes/page",))]
    if traits_of(result.engine.name).log_lines:
        screen += [BLANK, *_log_lines(result, pool)]
    return screen


def _requests(request: Request, pool: Pool) -> list[list[Piece]]:
    """The capacity of the pool: requests that run at once, and those that start-up reserves room for."""
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


def plain_memory(result: SizeResult, counted: Counted) -> Screen:
    if counted.each >= MAX_REQUESTS:
        return []
    rows: list[list[Piece]] = [
        [
            Span("memory for the cache of one GPU", "bold"),
            size_words(counted.memory),
            of_bytes(counted.memory),
        ],
        [
            "requests that fit",
            f"{counted.each:,}",
            f"of {count(result.request.tokens, 'token')}, no allocator",
        ],
    ]
    return table(rows, "lrl")


def one_request(result: SizeResult) -> str:
    """``one request takes 0.37 GiB a GPU (2.94 GiB over 8), 48,128 B a token``: exact, as terms are."""
    gpu, gpus = result.per_gpu, gpus_of_request(result)
    amount = size_words(gpu.kv_bytes_per_request)
    if gpus > 1:
        amount += f" a GPU ({size_words(result.total.kv_bytes_per_request)} over {gpus})"
    if gpu.prompt_bytes_per_request != gpu.kv_bytes_per_request:
        amount += f" ({size_words(gpu.prompt_bytes_per_request)} while its prompt is read)"
    fixed = f" + {size_words(gpu.fixed_bytes_per_request)}" if gpu.fixed_bytes_per_request else ""
    return f"one request takes {amount}, {of_bytes(gpu.bytes_per_token)} a token{fixed}"
