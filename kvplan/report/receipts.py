"""The screen of ``kvplan list receipts``: one line a receipt, then the figures of each plan side by side."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import KvplanError
from kvplan.files.plans.receipts import counts_against
from kvplan.plans.receipt import CONFIRMED, CONSISTENT, REHEARSAL, ReadReceipt, Receipt, facts_of
from kvplan.report.layout import BLANK, Screen, Span, line, shorten, table, wrapped
from kvplan.report.words import count
from kvplan.units import GB

_COMPARED = (
    ("requests", "requests"),
    ("num_blocks", "blocks"),
    ("limit_pool_bytes", "largest pool, B"),
    ("context_bytes", "context, B"),
    ("copy_bytes_per_second", "copy, GB/s"),
    ("gather_bytes_per_second", "gather, GB/s"),
    ("write_bytes_per_second", "write, GB/s"),
)
_WIDE = 3
"""Receipts of one plan that stand side by side in 80 columns."""


def receipts_screen(
    read: Sequence[tuple[str, ReadReceipt]], broken: Sequence[tuple[str, KvplanError]]
) -> Screen:
    """All receipts; those of one plan (one hash) are compared."""
    good = sum(one.intact and one.receipt.verdict == CONFIRMED for _, one in read)
    held = sum(one.intact and one.receipt.verdict == CONSISTENT for _, one in read)
    more = f", {held:,} self-consistent" if held else ""
    screen: Screen = [line(f"{count(len(read), 'receipt')}, {good:,} confirmed{more}."), BLANK]
    rows = [[Span(word, "dim") for word in ("plan", "on", "kind", "verdict", "written")]]
    others = [other for _, other in read]
    for _, one in read:
        receipt = one.receipt
        verdict = receipt.verdict if one.intact else "EDITED"
        said = verdict if receipt.has_classes else f"{verdict} (v1)"
        style = "good" if verdict == CONFIRMED and receipt.kind != REHEARSAL else ""
        rows.append(
            [
                Span(shorten(receipt.plan_name, 24)),
                Span(shorten(_hardware(receipt), 18)),
                Span(receipt.kind),
                Span(said, "bad" if counts_against(one, others) else style),
                Span(receipt.created[:10]),
            ]
        )
    screen += table(rows, "lllll", gap="  ", spare=("kind", "written"))
    for receipts in _by_plan(read):
        if len(receipts) > 1:
            screen += [BLANK, *_compared(receipts)]
    screen += _facts(read)
    if any(one.intact and not one.receipt.has_classes for _, one in read):
        first = "v1: of before figures had a class; confirmed says there that none that decides differs."
        screen += [BLANK, *wrapped(first, style="dim", indent=1, hang=4)]
    for path, error in broken:
        screen += [BLANK, *wrapped(f"{path}: {error.message}", style="bad", indent=1, hang=4)]
    return screen


_FACTS = (
    "Computed anew from the plan by kvplan check, {} facts: {}.",
    "Both sides in the receipt, so that an edit of one is seen: {} figures that decide.",
    "Said by the receipts alone, {} facts: {}, and figures that are only reported.",
)


def _facts(read: Sequence[tuple[str, ReadReceipt]]) -> Screen:
    """Which facts of the receipts stand on more than their word."""
    receipts = [one.receipt for _, one in read if one.intact]
    screen: Screen = []
    for words, every in zip(_FACTS, zip(*map(facts_of, receipts))):
        facts = [fact for one in every for fact in one]
        if facts:
            said = words.format(f"{len(facts):,}", _named(facts))
            screen += wrapped(said, style="dim", indent=1, hang=4)
    return [BLANK, *screen, line(Span("each by its place: --json", "dim"), indent=1)] if screen else []


def _named(facts: Sequence[str]) -> str:
    """Facts by their table, each once: ``model (id, digest)``; settings and figures by their number, those
    that are only reported not at all."""
    tables: dict[str, dict[str, None]] = {}
    for fact in facts:
        table_of, _, name = fact.partition(".")
        tables.setdefault(table_of, {}).setdefault(name.partition(".")[0].partition("[")[0])
    counted = {"settings": "settings", "figures": "figures"}
    return ", ".join(
        f"{len(names):,} {counted[one]}" if one in counted
        else f"{one} ({', '.join(names)})" if any(names) else one
        for one, names in tables.items()
        if one != "figures" or "plan_hash" in tables
    )  # fmt: skip


def _by_plan(read: Sequence[tuple[str, ReadReceipt]]) -> list[list[Receipt]]:
    """Receipts of the same model and engine: GPUs differ between them, and so do their hashes."""
    groups: dict[tuple[str, str, str], list[Receipt]] = {}
    for _, one in read:
        receipt = one.receipt
        groups.setdefault((receipt.plan_name, receipt.model_digest, receipt.engine), []).append(receipt)
    return list(groups.values())


def _compared(receipts: Sequence[Receipt]) -> Screen:
    shown = receipts[-_WIDE:]
    rows = [[Span(""), *(Span(shorten(_hardware(one), 18), "dim") for one in shown)]]
    for name, title in _COMPARED:
        values = [_measured(receipt, name) for receipt in shown]
        if any(value is not None for value in values):
            cells = [_shown(value, name) for value in values]
            rows.append([Span(title), *(Span(cell) for cell in cells)])
    left = len(receipts) - len(shown)
    more = [line(Span(f"{count(left, 'older receipt')} not shown", "dim"), indent=1)] if left > 0 else []
    head = line(shorten(receipts[0].plan_name, 60), indent=1)
    return [head, *table(rows, "l" + "r" * len(shown), gap="  "), *more]


def _measured(receipt: Receipt, name: str) -> int | None:
    """The smallest of all ranks: what the whole plan can count on."""
    values = [
        figure.measured for figure in receipt.figures if figure.name == name and figure.measured is not None
    ]
    return min(values, default=None)


def _shown(value: int | None, name: str) -> str:
    if value is None:
        return "-"
    return f"{value / GB:,.1f}" if name.endswith("per_second") else f"{value:,}"


def _hardware(receipt: Receipt) -> str:
    hardware = receipt.hardware
    if receipt.kind == REHEARSAL:
        return "host memory"
    return str(hardware.get("gpu") or hardware.get("name") or "unknown")
