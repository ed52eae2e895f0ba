"""The memory of one GPU as one bar with its interval, and requests over length."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.deployment.counts import MAX_REQUESTS
from kvplan.deployment.lengths import Rung
from kvplan.report.budget import largest_uses, share
from kvplan.report.html.markup import Markup, Part, el, markup
from kvplan.report.html.page import FROM
from kvplan.report.html.svg import (
    WIDE,
    Mark,
    along,
    curve,
    frame,
    label,
    log_place,
    picture,
    rect,
    round_steps,
    stroke,
    up,
    whisker,
)  # fmt: skip
from kvplan.report.sections import Cell, Section, Table
from kvplan.results import Budget
from kvplan.units import KIB, gib

POOL = "KV cache"
UNUSED = "not used"
_BAR_HIGH = 34


def budget_section(budget: Budget) -> Section:
    """The memory of a GPU: one bar, and every line with its source."""
    rows = tuple(
        (name, _bytes(amount), share(amount, budget.total_bytes), _between(low, high), source)
        for name, amount, low, high, source in _uses(budget)
    )
    total = ("total", _bytes(budget.total_bytes), "100.0 %", "", "as the GPU's runtime reports it")
    table = Table(("", "memory", "share", "interval", FROM), "lrrrl", (*rows, total))
    return Section(
        f"Memory of one {budget.gpu}",
        picture=_stacked(budget),
        tables=(table,),
    )


def _uses(budget: Budget) -> list[tuple[str, int, int, int, str]]:
    """(name, bytes, least, most, source) of each use, the cache last but what is unused."""
    found = [(one.name, one.bytes, one.low_bytes, one.high_bytes, one.source) for one in budget.lines]
    low, likely, high = budget.kv_pool_low_bytes, budget.kv_pool_bytes, budget.kv_pool_high_bytes
    found.append((POOL, likely, low, high, "what the lines above leave; the safe figure is the least"))
    if budget.unused_bytes:
        unused = budget.unused_bytes
        found.append((UNUSED, unused, unused, unused, "outside the share that the engine may use"))
    return found


def _bytes(amount: int) -> Cell:
    return Cell(gib(amount), amount)


def _between(low: int, high: int) -> str:
    return "" if low == high else f"{gib(low).removesuffix(' GiB')} … {gib(high)}"


def _stacked(budget: Budget) -> Markup:
    """One bar, the GPU's whole memory: the largest uses, the cache with its interval, what stays unused; and
    the figures below, by the same marks."""
    uses = [(name, amount, f"s{place}") for place, (name, amount, *_) in enumerate(largest_uses(budget))]
    before = sum(amount for _, amount, _ in uses)
    low, likely, high = budget.kv_pool_low_bytes, budget.kv_pool_bytes, budget.kv_pool_high_bytes
    uses.append((POOL, likely, "cache"))
    if budget.unused_bytes:
        uses.append((UNUSED, budget.unused_bytes, "rest"))

    def at(amount: int) -> float:
        return WIDE * min(amount, budget.total_bytes) / budget.total_bytes

    drawn: list[Part] = []
    so_far = 0
    for name, amount, kind in uses:
        left, right = at(so_far), at(so_far + amount)
        drawn.append(rect(left, 2, right - left, _BAR_HIGH, kind, said=f"{name} {gib(amount)}"))
        so_far += amount
    if low != high:
        drawn.append(whisker(at(before + low), at(before + high), 2 + _BAR_HIGH / 2, "whisker most"))
    said = ", ".join(f"{name} {gib(amount)}" for name, amount, _ in uses)
    between = f" The line with ends: {_between(low, high)} of cache." if low != high else ""
    whole = f"Of {gib(budget.total_bytes)}"
    rows = [
        el("li", el("i", Markup("&#8203;"), class_=kind), f"{name} ", el("b", gib(amount)),
           f" {share(amount, budget.total_bytes)}")
        for name, amount, kind in uses
    ]  # fmt: skip
    drawing = picture(
        *drawn, what=f"{whole}: {said}.{between}", high=_BAR_HIGH + 4, caption=f"{whole}.{between}"
    )
    return markup(drawing, el("ul", *rows, class_="legend"))


def held_section(lengths: Sequence[Rung], asked: int | None, where: str) -> Section:
    """A curve and a table of requests at once. where: in what they are held."""
    rows = tuple(
        (Cell(f"{held.tokens:,}", held.tokens), _many(held.likely), _many(held.safe)) for held in lengths
    )
    own = next((place for place, held in enumerate(lengths) if held.tokens == asked), None)
    caption = f"Requests at once {where}, all of one length"
    caption += "; the row in bold is the length that was asked for" if own is not None else ""
    table = Table(("tokens", "likely", "safe"), "rrr", rows, caption=caption, own=own)
    return Section("Requests over length", picture=_curves(lengths, asked), tables=(table,))


def _many(requests: int) -> Cell:
    return Cell("any number" if requests >= MAX_REQUESTS else f"{requests:,}", requests)


def _curves(lengths: Sequence[Rung], asked: int | None) -> Markup | None:
    """Both counts over the length, on scales where twice is the same step everywhere."""
    shown = [held for held in lengths if held.tokens and held.likely < MAX_REQUESTS]
    most = max((held.likely for held in shown), default=0)
    if len(shown) < 2 or not most:
        return None
    first, last = shown[0].tokens, shown[-1].tokens

    def x(tokens: int) -> float:
        return along(0.04 + 0.9 * log_place(tokens, first, last))

    def height(requests: int) -> float:
        return 0.0 if requests < 1 else 0.1 + 0.75 * (log_place(requests, 1, most) if most > 1 else 1.0)

    likely = [(x(held.tokens), up(height(held.likely))) for held in shown]
    safe = [(x(held.tokens), up(height(held.safe))) for held in shown]
    drawn: list[Part] = [curve(safe, "other"), curve(likely, "mark")]
    drawn += [rect(at - 3.5, level - 3.5, 7, 7, "box") for at, level in safe]
    drawn += [rect(at - 3, level - 3, 6, 6, "dot") for at, level in likely]
    if asked is not None and first <= asked <= last:
        drawn += [
            stroke(x(asked), up(0), x(asked), up(1), "asked"),
            _asked(x(asked), f"asked for: {asked:,}"),
        ]
    drawn.append(_legend())
    none = [0] if any(held.safe < 1 for held in shown) else []
    words = [Mark(height(step), f"{step:,}") for step in (*none, *round_steps(1, most))]
    places = [Mark(0.04 + 0.9 * log_place(held.tokens, first, last), _length(held.tokens))
              for held in _spaced(shown)]  # fmt: skip
    ends = f"{shown[0].likely:,} of {first:,} tokens, {shown[-1].likely:,} of {last:,}"
    safely = f"{shown[0].safe:,} and {shown[-1].safe:,}"
    what = f"Requests at once over their length in tokens: likely {ends}; safely {safely}."
    return frame(*drawn, heights=words, places=places, what=what)


def _asked(x: float, words: str) -> Markup:
    """At the foot of its line, on the side that has room."""
    left = x > WIDE * 0.7
    return label(x - 4 if left else x + 4, up(0.03), words, anchor="end" if left else "start")


def _legend() -> Markup:
    """Above the curves."""
    left, top = WIDE - 190, 14
    return Markup(
        "".join(
            (
                stroke(left, top, left + 28, top, "mark"), rect(left + 11, top - 3, 6, 6, "dot"),
                label(left + 36, top + 4, "likely"),
                stroke(left + 90, top, left + 118, top, "other"), rect(left + 100.5, top - 3.5, 7, 7, "box"),
                label(left + 126, top + 4, "safe"),
            )
        )
    )  # fmt: skip


def _spaced(lengths: Sequence[Rung]) -> list[Rung]:
    """Powers of two and the ends, as far as their words do not touch."""
    found: list[Rung] = []
    for held in lengths:
        if held.tokens & (held.tokens - 1) == 0 and (not found or held.tokens >= found[-1].tokens * 2):
            found.append(held)
    last = lengths[-1]
    if not found or last.tokens > found[-1].tokens * 1.6:
        found.append(last)
    return found[:: 2 if len(found) > 8 else 1]


def _length(tokens: int) -> str:
    return f"{tokens // KIB:,}k" if tokens % KIB == 0 else f"{tokens:,}"
