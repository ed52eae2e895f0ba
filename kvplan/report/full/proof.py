"""What validations measured of a plan: its receipts."""

from __future__ import annotations

from kvplan.api.reporting import PlanReport
from kvplan.errors import KvplanError
from kvplan.plans.receipt import ReadReceipt
from kvplan.report.check.shown import figure
from kvplan.report.sections import Cell, Entry, Section, Table
from kvplan.units import GB

_RATE = "bytes_per_second"


def receipts_section(one: PlanReport) -> Section | None:
    """Each receipt that the plan names: its verdict, and its figures beside what was predicted."""
    if one.plan is None:
        return None
    if not one.receipts:
        return Section(
            "Receipts", said=("Nothing of this plan was measured: kvplan validate writes a receipt.",)
        )
    broken = tuple(f"{path}: {read.message}" for path, read in one.receipts if isinstance(read, KvplanError))
    good = [(path, read) for path, read in one.receipts if isinstance(read, ReadReceipt)]
    return Section(
        "Receipts", said=tuple(_said(path, read) for path, read in good),
        tables=tuple(_table(path, read) for path, read in good), listed=broken,
    )  # fmt: skip


def _said(path: str, read: ReadReceipt) -> str:
    receipt = read.receipt
    verdict = receipt.verdict if read.intact else "EDITED: a figure is not what was written"
    hardware = receipt.hardware
    where = hardware.get("gpu") or hardware.get("name") or "host memory"
    return f"{path}: {verdict}; a {receipt.kind} of {receipt.created[:10]} on {where}."


def _table(path: str, read: ReadReceipt) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for entry in read.receipt.figures:
        name = entry.name.replace("_", " ")
        name = name if entry.rank is None else f"{name}, rank {entry.rank}"
        both = (_value(amount, entry.unit) for amount in (entry.predicted, entry.measured))
        rows.append((name, *both, "" if entry.agrees else "differs", entry.evidence, entry.stage))
    heads = ("figure", "predicted", "measured", "", "class", "from")
    return Table(heads, "lrrlll", tuple(rows), caption=f"Predicted and measured, {path}")


def _value(amount: int | None, unit: str) -> Entry:
    if amount is None:
        return "–"
    return Cell(f"{amount / GB:,.1f} GB/s" if unit == _RATE else figure(amount, unit), amount)
