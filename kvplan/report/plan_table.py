"""The table of ``kvplan plan``: a row for each kind of GPU, and what must be said beside it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from kvplan.engines.base import SLOWER
from kvplan.planning.results import Option, PlanResult
from kvplan.report.layout import WIDTH, Piece, Screen, Span, columns, line, shorten, table, wrapped
from kvplan.report.words import about, count

WHY = {
    "weights": "weights alone do not fit",
    "no-memory-for-cache": "nothing is left for the cache",
    "not-enough-memory": "not even one request of max_model_len fits",
    "pool-too-small": "not one request fits",
    "request-too-long": "longer than the engine serves",
    "too-few-gpus": "too few GPUs",
    "max-gpus": "one engine takes more GPUs than there are",
    "quality": "the quality policy",
    "heads": "heads do not divide",
    "experts": "experts do not divide",
    "weights-format": "the GPU does not run these weights",
    "context-parallel": "not known there",
    "layers": "fewer layers than stages",
    "price": "no price",
    "engine-gpu": "not on this GPU",
    "no-memory": "memory not published",
    "no-weights": "weights not known",
    "foreign-weights": "a format of another program",
    "cannot-start": "the engine refuses",
    "unsupported-dtype": "the engine refuses",
    "unsupported-model": "the engine has no class for it",
    "tensor-parallel": "heads do not divide",
    "cannot-shard": "a matrix does not divide",
    "tpot": "too slow",
    "ttft": "first token too late",
}
"""The meaning of a reason's code, in a few words."""
_PLAIN = ("auto", "bfloat16", "float16", "float32", "f16")
_GPU_WIDTH = 22
_LEAST_WIDTH = 10
_SHOWN_WITHOUT = 4
"""Kinds without a row are named where no more than a few were asked for."""


def money(amount: float, currency: str) -> str:
    """Two decimals, rounded half up, of the amount as it is written."""
    exact = Fraction(str(amount))
    cents = (exact.numerator * 200 + exact.denominator) // (2 * exact.denominator)
    return f"{cents // 100:,}.{cents % 100:02d}" + (f" {currency}" if currency else "")


def option_line(option: Option) -> Screen:
    """One way to serve the load in a line: GPUs, formats, layout, what it holds, its price."""
    many = f" × {option.replicas}" if option.replicas > 1 else ""
    held = f"{count(option.requests, 'request')}, safely {option.safe_requests:,}"
    cost = "" if option.cost_per_hour is None else f", {money(option.cost_per_hour, '')} an hour"
    cache = "" if option.kv_cache_dtype in _PLAIN else f", {option.kv_cache_dtype} cache"
    how = f"{option.weights} weights{cache}, {option.layout()}{many}"
    return [line(Span(f"{option.gpus} × {option.gpu}, {option.engine}: {how}: {held}{cost}"))]


def options_table(options: Sequence[Option], currency: str, *, lengths: bool = False) -> Screen:
    engines = len({option.engine for option in options}) > 1
    plain = len({_name(option) for option in options}) == len({option.engine for option in options})
    heads = ["GPUs", "kind", "weights", "cache", "layout", *(["engine"] if engines else []), "likely", "safe"]
    ends = _ends(options, lengths=lengths)
    named = [f"{currency or 'price'}/1M" if head == _MILLION else head for head in ends]
    rows: list[list[Piece]] = [[*(Span(head, "dim") for head in (*heads, *named))]]
    money_too = len([head for head in ends if head != "tokens"]) > 1
    narrow = max(WIDTH - columns(), 0) // 2
    width = _GPU_WIDTH - 8 * (lengths + engines + money_too) - 4 * (_MILLION in ends) - narrow
    width = max(width, _LEAST_WIDTH)
    kinds = _short_kinds({option.gpu for option in options}, width)
    for place, option in enumerate(options):
        style = "bold" if place == 0 and not lengths else ""
        words = [f"{option.gpus:,}", kinds[option.gpu], weights_of(option), _cache(option)]
        words += [_layout(option), *([_name(option) if plain else option.engine] if engines else [])]
        words.append(f"{option.requests:,}")
        safe = Span(f"{option.safe_requests:,}", style if option.safe_requests else "bad")
        last = _end_cells(option, currency)
        rows.append([*(Span(word, style) for word in words), safe, *(last[head] for head in ends)])
    align = "rllll" + "l" * engines + "rr" + "r" * len(ends)
    return table(rows, align, gap="  ", spare=("TPOT", "cache", "weights"))


def _short_kinds(slugs: set[str], width: int) -> dict[str, str]:
    """The kinds in so many columns: without their memory where that tells them apart, else cut."""
    if all(len(slug) <= width for slug in slugs):
        return {slug: slug for slug in slugs}
    bare = {slug: slug.rpartition("-")[0] or slug for slug in slugs}
    if len(set(bare.values())) < len(slugs):
        bare = {slug: slug for slug in slugs}
    return {slug: shorten(name, width) for slug, name in bare.items()}


_MILLION = "million"
_ENDS = ("an hour", "TPOT", _MILLION, "tokens")
"""Columns that not every table has."""


def _ends(options: Sequence[Option], *, lengths: bool) -> list[str]:
    """Those that this table has: the price of a million tokens in the place of that of an hour."""
    costed = any(option.cost_per_million_tokens is not None for option in options)
    priced = not costed and any(option.cost_per_hour is not None for option in options)
    timed = any(option.speed is not None for option in options)
    return [head for head, shown in zip(_ENDS, (priced, timed, costed, lengths)) if shown]


def _end_cells(option: Option, currency: str) -> dict[str, str]:
    cost, speed, million = option.cost_per_hour, option.speed, option.million()
    return {
        "an hour": "" if cost is None else money(cost, currency),
        "TPOT": "" if speed is None else about(speed.tpot[1]),
        _MILLION: "" if million is None else f"{million:,.2f}",
        "tokens": f"{option.max_model_len:,}",
    }


def _layout(option: Option) -> str:
    layout = option.layout()
    if option.replicas > 1:  # "1 × 2": the column is as wide as what is divided
        layout = f"{layout.removesuffix(' GPU')} × {option.replicas}"
    return layout + " !" if slower(option) else layout


def checkpoints(options: Sequence[Option]) -> Screen:
    """Below a table: which other checkpoints are in it."""
    screen: Screen = []
    for text in dict.fromkeys(option.other_checkpoint for option in options):
        if text:
            screen += wrapped(f"* {text}", indent=2, hang=2, style="dim")
    return screen


def slower(option: Option) -> str | None:
    """The warning that its layout leaves the engine's fast kernels; None where it does not."""
    return next((text for text in option.warnings if any(words in text for words in SLOWER)), None)


def _kernels(options: Sequence[Option]) -> Screen:
    """Below a table: which layouts of it leave the engine's fast kernels."""
    told = dict.fromkeys(text for option in options if (text := slower(option)))
    return [row for text in told for row in wrapped(f"! {text}", indent=2, hang=2, style="warn")]


def over_nodes(option: Option) -> Screen:
    """That one engine has more GPUs than a node."""
    nodes = option.nodes // option.replicas
    if nodes < 2:
        return []
    words = f"each engine runs over {nodes} nodes: {option.gpus // option.nodes} GPUs in each"
    return wrapped(words, indent=2, style="warn")


def beside(result: PlanResult) -> Screen:
    """Below the table: other checkpoints in it, rows that are left, kinds without one that were named."""
    screen = checkpoints(result.rows) + _kernels(result.rows) + over_nodes(result.options[0])
    without = [one for one in result.unserved if one.code != "beyond-top"]
    if result.prices:
        screen += wrapped(result.prices, indent=2, hang=2, style="dim")
    if result.more_options:
        rows = len(result.options) + result.more_options
        screen += wrapped(f"{count(result.more_options, 'kind')} more: --top {rows}", indent=2, style="dim")
    for one in without if len(without) <= _SHOWN_WITHOUT else ():
        where = f" ({one.where})" if one.where else ""
        engine = "" if one.engine.startswith(f"{result.engine.name}@") else f" on {one.engine}"
        head = WHY.get(one.code, one.code.replace("-", " "))
        message = one.message.partition(". Ways out:")[0]
        screen += wrapped(f"no row for {one.gpu}{where}{engine}: {head}: {message}", indent=2, hang=2)
    return screen


def _name(option: Option) -> str:
    """The engine without its version."""
    return option.engine.partition("@")[0]


def weights_of(option: Option) -> str:
    """The format of the weights; ``fp8*`` of another checkpoint than was asked for."""
    return option.weights + ("*" if option.other_checkpoint else "")


def _cache(option: Option) -> str:
    """The word for the cache's dtype; what ``auto`` comes to where that is not 16 bit."""
    if option.kv_cache_dtype != "auto" or option.kv_format in _PLAIN:
        return option.kv_cache_dtype
    return f"auto {option.kv_format.partition('_')[0]}"
