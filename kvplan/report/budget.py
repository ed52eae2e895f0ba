"""The memory of a GPU as bars, and what fits into what is left of it."""

from __future__ import annotations

from kvplan.api.fits import Fits
from kvplan.report.layout import BLANK, Piece, Screen, Span, line, table, wrapped
from kvplan.report.words import count, gpus_in_replica
from kvplan.results import Budget, SizeResult
from kvplan.units import gib

_BAR = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"
_POOL = "KV cache"
_SHARES = {"gpu_memory_utilization": "util", "free_gpu_memory_fraction": "fraction"}
"""Settings whose rest stays unused."""


def bar(amount: int, whole: int, width: int = _BAR) -> str:
    """A bar of ``width`` columns for the whole, in eighths of a column."""
    eighths = max(0, min(amount, whole)) * width * 8 // whole if whole else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def share(amount: int, whole: int) -> str:
    """Per cent with one decimal, rounded half up."""
    tenths = (amount * 2000 + whole) // (2 * whole)
    return f"{tenths // 10:,}.{tenths % 10} %"


def memory_lines(result: SizeResult, budget: Budget) -> Screen:
    """One line for each use of the memory; what is estimated has its interval beside it."""
    whole = budget.total_bytes
    several = gpus_in_replica(result) > 1
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
    return [line(Span(title, "bold"), indent=1), *table(rows, "llrrr", gap="  ")]


def _plain(amount: int) -> str:
    return gib(amount).removesuffix(" GiB")


def fits_lines(result: SizeResult, fits: Fits) -> Screen:
    """Requests at several lengths, with the likely pool and with the safe one."""
    longest = _longest_words(fits)
    if not fits.rungs:
        return longest
    rows: list[list[Piece]] = [
        [Span("requests that fit", "bold"), Span("likely", "dim"), Span("safe", "dim")]
    ]
    rows += [[count(rung.tokens, "token"), f"{rung.likely:,}", f"{rung.safe:,}"] for rung in fits.rungs]
    screen = table(rows, "lrr")
    return [*screen, BLANK, *longest] if longest else screen


def _longest_words(fits: Fits) -> Screen:
    if not fits.max_model_len:
        return []
    text = f"max_model_len up to {fits.max_model_len:,} starts"
    text += ": the model's own" if fits.is_own else ""
    safe = fits.safe_max_model_len or 0
    if safe < fits.max_model_len:
        text += f"; {safe:,} is safe" if safe else "; no length is safe"
    return wrapped(f"{text}.", indent=1)
