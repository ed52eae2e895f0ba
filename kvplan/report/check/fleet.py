"""All plans of a check against a fleet: a table on the terminal, a case of its own in the other forms."""

from __future__ import annotations

from pathlib import PurePath

from kvplan.plans.findings import CheckedPlan, Fact, Finding, Severity
from kvplan.plans.using import FleetUse, KindUse
from kvplan.report.layout import Piece, Screen, Span, line, shorten, table, wrapped
from kvplan.report.plan_table import money
from kvplan.report.words import count

_WIDTH = 18
_HOURS = 24


def fleet_screen(use: FleetUse) -> Screen:
    """GPUs of each kind that are taken, those that are there, and the cost."""
    spare, hourly = bool(use.spare), bool(use.hours)
    heads = ["kind", "plans", "GPUs", *["spare"] * spare, "there", *["peak", "mean"] * hourly]
    priced = any(one.cost_per_hour is not None for one in use.kinds)
    heads += [f"{use.currency} an hour".strip()] * priced
    rows: list[list[Piece]] = [[Span(head, "dim") for head in heads]]
    for one in use.kinds:
        there = "any" if one.available is None else f"{one.available:,}"
        cells: list[Piece] = [shorten(one.gpu, _WIDTH), f"{one.plans:,}", f"{one.gpus:,}"]
        cells += [f"{one.spare:,}"] * spare
        cells.append(Span(there, "bad" if one.missing else ""))
        cells += [f"{one.peak_gpus:,}", f"{one.mean_gpus:,.1f}"] * hourly
        cells += ["" if one.cost_per_hour is None else money(one.cost_per_hour, "")] * priced
        rows.append(cells)
    screen = [line(Span(f"The fleet of {use.source}", "bold"))]
    screen += table(rows, "l" + "r" * (len(heads) - 1), indent=2, spare=("mean", "peak"))
    for text in (*(lack(one) for one in use.kinds if one.missing), *_notes(use)):
        screen += wrapped(text, indent=1, hang=2)
    return screen


def _notes(use: FleetUse) -> list[str]:
    said = []
    total = use.cost_per_hour
    if total is not None and len(use.kinds) > 1:
        said.append(f"all: {money(total, use.currency)} an hour")
    unpriced = [one.gpu for one in use.kinds if one.cost_per_hour is None]
    if unpriced and len(unpriced) < len(use.kinds):
        said.append(f"no price of {', '.join(unpriced)}")
    if use.spare:
        said.append(f"spare: {count(use.spare, 'engine')} of each kind may be lost, the largest too")
    if use.hours:
        long = "the day" if use.hours == _HOURS else count(use.hours, "hour")
        said.append(f"peak and mean: engines in proportion to the tokens of each hour of the traces ({long})")
    if use.uncounted:
        said.append(f"not counted: {', '.join(use.uncounted)}")
    return said


def lack(one: KindUse) -> str:
    """Why a kind is too few."""
    of = f" ({one.gpus:,} and {one.spare:,} spare)" if one.spare else ""
    needed = f"{one.needed:,} × {one.gpu} are needed{of}"
    if not one.available:
        return f"{needed}, and the fleet has none"
    if one.needed <= one.available:
        return f"{needed} and there, but engines of {one.missing:,} find no room on one node"
    return f"{needed}, and {one.available:,} are there"


def fleet_phrase(use: FleetUse) -> str:
    """The end of the verdict."""
    if use.passed:
        return "the fleet has the GPUs"
    return "the fleet has too few GPUs"


def as_plan(use: FleetUse) -> CheckedPlan:
    """The fleet as a case beside the plans, for forms that know plans alone."""
    findings = tuple(
        Finding("fleet-too-small", Severity.ERROR, lack(one), "offers") for one in use.kinds if one.missing
    )
    facts = [Fact("gpus", sum(one.needed for one in use.kinds), "gpus")]
    if use.cost_per_hour is not None:
        facts.append(Fact("cost_per_hour", round(use.cost_per_hour * 10**6), "millionths"))
    return CheckedPlan(PurePath(use.source).stem, use.source, None, findings, tuple(facts), fleet_phrase(use))
