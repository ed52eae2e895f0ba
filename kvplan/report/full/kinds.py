"""The same load on other kinds of GPUs, and what else would make room."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.api.reporting import PlanReport
from kvplan.planning.results import Option, PlanResult
from kvplan.report.html.markup import Markup, Part
from kvplan.report.html.svg import WIDE, label, picture, rect
from kvplan.report.layout import shorten
from kvplan.report.plan_parts import load_words
from kvplan.report.plan_table import WHY, money, weights_of
from kvplan.report.sections import Cell, Entry, Section, Table
from kvplan.report.words import count, engine_title
from kvplan.units import gib

_BARS, _BAR_END, _STEP = 140, 300, 26
_NAME_WIDTH = 18


def kinds_section(one: PlanReport) -> Section | None:
    """GPUs side by side: the fewest of each kind that serve the plan's load."""
    kinds, plan = one.kinds, one.plan
    if kinds is None or plan is None or not (kinds.options or kinds.unserved):
        return None
    gpu = plan.settings.gpu
    slug = gpu.slug if gpu is not None else ""
    own = next((place for place, option in enumerate(kinds.options) if option.gpu == slug), None)
    said = f"The fewest GPUs of each kind that serve {load_words(kinds)} by the {kinds.pool} pool, as"
    said += f" {engine_title(kinds.engine)} is planned anew."
    if own is not None:
        said += f" The row in bold is the plan's kind, of which the plan has {plan.gpus:,}."
    without = tuple(
        f"No row for {other.gpu}: {WHY.get(other.code, other.code.replace('-', ' '))}: {other.message}"
        for other in kinds.unserved
        if other.code != "beyond-top"
    )
    table = _table(kinds, own)
    return Section(
        "GPUs side by side",
        said=(said,),
        picture=_bars(kinds.options, own),
        tables=(table,) if table else (),
        listed=without,
    )


def _table(kinds: PlanResult, own: int | None) -> Table | None:
    if not kinds.options:
        return None
    priced = any(option.cost_per_hour is not None for option in kinds.options)
    timed = any(option.speed is not None for option in kinds.options)
    heads = ["kind", "GPUs", "layout", "weights", "cache", "likely", "safe", "pool of a GPU"]
    heads += ["an hour"] * priced + ["TPOT, estimate"] * timed
    rows: list[tuple[Entry, ...]] = []
    for option in kinds.options:
        row: list[Entry] = [
            option.gpu, Cell(f"{option.gpus:,}", option.gpus),
            option.layout() + (f" × {option.replicas}" if option.replicas > 1 else ""),
            weights_of(option), option.kv_cache_dtype, Cell(f"{option.requests:,}", option.requests),
            Cell(f"{option.safe_requests:,}", option.safe_requests),
            Cell(gib(option.kv_pool_bytes), option.kv_pool_bytes),
        ]  # fmt: skip
        if priced:
            cost = option.cost_per_hour
            row.append("" if cost is None else Cell(money(cost, kinds.currency), cost))
        if timed:
            row.append(_tpot(option))
        rows.append(tuple(row))
    return Table(tuple(heads), "lrlllrrr" + "r" * (priced + timed), tuple(rows), own=own)


def _tpot(option: Option) -> Entry:
    if option.speed is None:
        return ""
    low, likely, high = (value * 1000 for value in option.speed.tpot)
    return Cell(f"{likely:,.0f} ms ({low:,.0f} … {high:,.0f})", option.speed.tpot[1])


def _bars(options: Sequence[Option], own: int | None) -> Markup | None:
    """A bar of as many GPUs as each kind takes."""
    if len(options) < 2:
        return None
    most = max(option.gpus for option in options)
    drawn: list[Part] = []
    for place, option in enumerate(options):
        top = place * _STEP + 4
        middle = top + _STEP / 2 + 1
        wide = (_BAR_END - _BARS) * option.gpus / most
        name = shorten(option.gpu, _NAME_WIDTH)
        drawn += [
            label(_BARS - 10, middle, name, anchor="end"),
            rect(_BARS, top, wide, _STEP - 8, "bar own" if place == own else "bar"),
            label(_BARS + wide + 8, middle, count(option.gpus, "GPU")),
        ]
    said = ", ".join(f"{option.gpus:,} × {option.gpu}" for option in options)
    high = len(options) * _STEP + 4
    return picture(*drawn, what=f"GPUs that the load takes: {said}.", high=min(high, WIDE * 2))


def levers_section(one: PlanReport) -> Section | None:
    """The effect of each memory lever on one engine of the plan; below, those without effect and why."""
    if not one.levers:
        return None
    rows = tuple(
        (
            lever.name,
            lever.summary,
            "--" + lever.setting.replace("_", "-") if lever.setting else "",
            "; ".join(lever.assumptions) or "the engine's rules",
        )
        for lever in one.levers
        if lever.applies
    )
    idle = tuple(
        f"{lever.name}, no effect here: {lever.summary}" for lever in one.levers if not lever.applies
    )
    tables = (Table(("optimization", "effect here", "flag", "from"), "llll", rows),) if rows else ()
    return Section("Memory optimizations", said=("For one engine of the plan.",), tables=tables, listed=idle)
