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
    Frame,
    Mark,
    curve,
    label,
    legend,
    log_place,
    picture,
    rect,
    round_steps,
    stroke,
    whisker,
    width_of,
)
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
    between = f" The red mark is the interval of the cache: {_between(low, high)}." if low != high else ""
    whole = f"Of {gib(budget.total_bytes)}"
    rows = [
        (kind, markup(f"{name} ", el("b", gib(amount)), f" {share(amount, budget.total_bytes)}"))
        for name, amount, kind in uses
    ]
    return picture(
        *drawn, what=f"{whole}: {said}.{between}", high=_BAR_HIGH + 4, caption=f"{whole}.{between}",
        marks=legend(*rows),
    )  # fmt: skip


def held_section(
    lengths: Sequence[Rung], asked: int | None, where: str, *, required: int | None = None
) -> Section:
    """A curve and a table of requests at once. where: in what they are held; required: how many of the asked
    length a plan must hold."""
    rows = tuple(
        (Cell(f"{held.tokens:,}", held.tokens), _many(held.likely), _many(held.safe)) for held in lengths
    )
    own = next((place for place, held in enumerate(lengths) if held.tokens == asked), None)
    caption = f"Requests at once {where}, all of one length"
    caption += "; the row in bold is the length that was asked for" if own is not None else ""
    table = Table(("tokens", "likely", "safe"), "rrr", rows, caption=caption, own=own)
    return Section("Requests over length", picture=_curves(lengths, asked, required), tables=(table,))


def _many(requests: int) -> Cell:
    return Cell("any number" if requests >= MAX_REQUESTS else f"{requests:,}", requests)


def _curves(lengths: Sequence[Rung], asked: int | None, required: int | None = None) -> Markup | None:
    """Both counts over the length, on scales where twice is the same step everywhere."""
    shown = [held for held in lengths if held.tokens and held.likely < MAX_REQUESTS]
    most = max((held.likely for held in shown), default=0)
    if len(shown) < 2 or not most:
        return None
    within = None if asked is None or not shown[0].tokens <= asked <= shown[-1].tokens else asked
    needed = required if within and required and required < MAX_REQUESTS else 0
    return _drawn(shown, within, needed, max(most, needed))


def _drawn(shown: Sequence[Rung], asked: int | None, needed: int, most: int) -> Markup:
    """The curves in their frame. asked: a length among those shown; needed: requests of it, 0: none; most:
    requests at the top."""
    first, last = shown[0].tokens, shown[-1].tokens

    def height(requests: int) -> float:
        return 0.0 if requests < 1 else 0.1 + 0.8 * (log_place(requests, 1, most) if most > 1 else 1.0)

    def share(tokens: int) -> float:
        return 0.04 + 0.9 * log_place(tokens, first, last)

    none = [0] if any(held.safe < 1 for held in shown) else []
    frame = Frame(
        [Mark(height(step), f"{step:,}") for step in (*none, *round_steps(1, most))],
        [Mark(share(held.tokens), _length(held.tokens)) for held in _spaced(shown)],
    )
    likely = [(frame.x(share(held.tokens)), frame.y(height(held.likely))) for held in shown]
    safe = [(x, frame.y(height(held.safe))) for (x, _), held in zip(likely, shown)]
    drawn: list[Part] = [curve(safe, "other"), curve(likely, "mark")]
    drawn += [rect(at - 3.5, level - 3.5, 7, 7, "box") for at, level in safe]
    drawn += [rect(at - 3, level - 3, 6, 6, "dot") for at, level in likely]
    rows: list[tuple[str, Part]] = [("mark", "likely"), ("other", "safe")]
    ends = f"{shown[0].likely:,} of {first:,} tokens, {shown[-1].likely:,} of {last:,}"
    safely = f"{shown[0].safe:,} and {shown[-1].safe:,}"
    what = f"Requests at once over their length in tokens: likely {ends}; safely {safely}."
    if asked is not None:
        drawn += _asked(frame, share(asked), f"asked for: {asked:,}")
    if asked is not None and needed:
        drawn += _needed(frame.x(share(asked)), frame.y(height(needed)), f"required: {needed:,}")
        rows.append(("need", "required"))
        what += f" Required: {needed:,} of {asked:,}."
    return frame.drawn(*drawn, what=what, marks=legend(*rows))


def _asked(frame: Frame, at: float, words: str) -> list[Markup]:
    """A line at the length that was asked for; its words at the foot, on the side that has room."""
    x = frame.x(at)
    return [stroke(x, frame.y(0), x, frame.y(1), "asked"), _next_to(x, frame.y(0.03), words)]


def _needed(x: float, y: float, words: str) -> list[Markup]:
    return [stroke(x - 5, y - 5, x + 5, y + 5, "need"), stroke(x - 5, y + 5, x + 5, y - 5, "need"),
            _next_to(x, y + 4, words, 10)]  # fmt: skip


def _next_to(x: float, y: float, words: str, gap: float = 4) -> Markup:
    left = x + gap + width_of(words) > WIDE
    return label(x - gap if left else x + gap, y, words, anchor="end" if left else "start")


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
