"""The memory of a GPU as bars, and what fits into what is left of it."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.deployment.lengths import Rung
from kvplan.report.layout import Piece, Screen, Span, columns, line, table
from kvplan.report.words import count, gpus_in_replica
from kvplan.results import Budget, BudgetLine, SizeResult
from kvplan.units import gib

_BAR = 16
_NARROW = 72
_EIGHTHS = " ▏▎▍▌▋▊▉"
_POOL = "KV cache"
_SHARES = {"gpu_memory_utilization": "util", "free_gpu_memory_fraction": "fraction"}
"""Settings whose rest stays unused."""
_NAMED, _LEAST_SHARE = 2, 100
"""Of a short list: so many lines by name, each at least a hundredth of the memory."""
_WIDE = 100


def bar(amount: int, whole: int, width: int = _BAR) -> str:
    """A bar of ``width`` columns for the whole, in eighths of a column."""
    eighths = max(0, min(amount, whole)) * width * 8 // whole if whole else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def share(amount: int, whole: int) -> str:
    """Per cent with one decimal, rounded half up."""
    tenths = (amount * 2000 + whole) // (2 * whole)
    return f"{tenths // 10:,}.{tenths % 10} %"


def _all_alike(result: SizeResult) -> bool:
    """Whether the memory is that of each of several GPUs."""
    return gpus_in_replica(result) > 1 and "unequal_gpus" not in result.settings


def memory_lines(result: SizeResult, budget: Budget) -> Screen:
    """One line for each use of the memory; what is estimated has its interval beside it."""
    whole = budget.total_bytes
    several = _all_alike(result)
    title = f"memory of {'each' if several else 'one'} {budget.gpu}"
    rows: list[list[Piece]] = []

    def add(name: str, amount: int, low: int, high: int, style: str = "") -> None:
        span = "" if low == high else f"{_plain(low)} … {_plain(high)}"
        rows.append(
            [
                Span(name, style),
                Span(bar(amount, whole), style),
                gib(amount),
                share(amount, whole),
                Span(span, "dim"),
            ]
        )

    for entry in budget.lines:
        add(entry.name, entry.bytes, entry.low_bytes, entry.high_bytes)
    add(_POOL, budget.kv_pool_bytes, budget.kv_pool_low_bytes, budget.kv_pool_high_bytes, "bold")
    for name, word in _SHARES.items():
        if name in result.settings:
            add(f"not used ({word} {result.settings[name]})", budget.unused_bytes, 0, 0)
    rows.append(["total", "", gib(whole), "100.0 %"])
    for entry in budget.beside:
        add(f"({entry.name})", entry.bytes, entry.low_bytes, entry.high_bytes, "dim")
    return [line(Span(title, "bold"), indent=1), *table(rows, "llrrr", gap="  ", spare=(1,))]


def _plain(amount: int) -> str:
    return gib(amount).removesuffix(" GiB")


def rung_table(rungs: Sequence[Rung], asked: int, most: int, limit: str) -> Screen:
    """Requests at once, likely and safe, at the asked length and at most so many in all: the longest next.
    limit: the name of what limits those that memory does not."""
    first = [rung for rung in rungs if rung.tokens == asked]
    others = [rung for rung in reversed(rungs) if rung.tokens != asked]
    shown = sorted([*first, *others[: most - len(first)]])
    rows: list[list[Piece]] = [[Span("requests at once", "bold"), Span("likely", "dim"), Span("safe", "dim")]]
    for rung in shown:
        numbers = [Span(f"{number:,}", "" if number else "bad") for number in (rung.likely, rung.safe)]
        rows.append([f"of {count(rung.tokens, 'token')}", *numbers, *capped_cell(rung, limit)])
    return table(rows, "lrrl")


def capped_cell(rung: Rung, limit: str) -> list[Piece]:
    """A last cell that says what limits the row, where memory does not."""
    return [Span(f"by {limit}", "dim")] if rung.capped else []


def short_memory(result: SizeResult, budget: Budget) -> Screen:
    """The largest uses of the memory, all others in one line, the cache and what stays unused."""
    whole, several = budget.total_bytes, _all_alike(result)
    rows = [_short_row(name, whole, amount, low, high) for name, amount, low, high in largest_uses(budget)]
    pool = (budget.kv_pool_bytes, budget.kv_pool_low_bytes, budget.kv_pool_high_bytes)
    rows.append(_short_row(_POOL, whole, *pool, style="bold"))
    for name, word in _SHARES.items():
        if name in result.settings:
            text = f"not used ({word} {result.settings[name]})"
            rows.append(_short_row(text, whole, budget.unused_bytes, 0, 0))
    title = f"memory of {'each' if several else 'one'} {budget.gpu}: {gib(whole)}"
    return [line(Span(title, "bold"), indent=1), *table(rows, "llrrr", gap="  ", spare=(1,))]


def largest_uses(budget: Budget) -> list[tuple[str, int, int, int]]:
    """(name, bytes, least, most) of the largest lines of a budget, and of all others together."""
    named = sorted(budget.lines, key=lambda one: -one.bytes)[:_NAMED]
    named = [one for one in budget.lines if one in named and one.bytes * _LEAST_SHARE >= budget.total_bytes]
    others = [one for one in budget.lines if one not in named]
    found = [(one.name, one.bytes, one.low_bytes, one.high_bytes) for one in named]
    if others:
        found.append((others[0].name if len(others) == 1 else "all else", *_sums(others)))
    return found


def _sums(lines: list[BudgetLine]) -> tuple[int, int, int]:
    return (
        sum(one.bytes for one in lines),
        sum(one.low_bytes for one in lines),
        sum(one.high_bytes for one in lines),
    )


def _short_row(name: str, whole: int, amount: int, low: int, high: int, style: str = "") -> list[Piece]:
    span = "" if low == high or not high else f"{_plain(low)} … {_plain(high)}"
    percent = (amount * 200 + whole) // (2 * whole)
    # A narrow terminal has room for the figures alone.
    shown = "" if columns() < _NARROW else bar(amount, whole, _BAR if columns() < _WIDE else 2 * _BAR)
    part = "<1 %" if amount and not percent else f"{percent} %"
    return [Span(name, style), Span(shown, style), gib(amount), part, Span(span, "dim")]
