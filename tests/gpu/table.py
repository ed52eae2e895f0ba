"""The table of a qualification: what every receipt of a folder says, and whether it is enough.

    python -m tests.gpu.table FOLDER

Enough: every receipt is whole and confirmed; on a GPU blocks are gathered and written at 80 % of the measured
copy bandwidth at least.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kvplan.plans.receipt import CONFIRMED, PROOF, Receipt
from kvplan.readers.plans.receipts import read_receipt

LEAST_PERCENT = 80
_HEADS = ("model", "kv", "verdict", "pool B", "tensors", "reserved", "device", "requests", "gather", "write")


def main(words: Sequence[str]) -> int:
    """Print a row a receipt; 1 where one is not enough, or where there is none."""
    read = [read_receipt(path) for path in sorted(Path(words[0]).glob("*.json"))]
    rows = [_HEADS, *(row_of(one.receipt) for one in read)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADS))]
    for row in rows:
        first, *rest = row
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join((first.ljust(widths[0]), *cells)))
    short = [reason for one in read for reason in reasons(one.receipt, intact=one.intact)]
    if not read:
        short = ["no receipt was written"]
    print("\n".join(short) if short else f"{len(read)} receipts, all confirmed")
    return 1 if short else 0


def row_of(receipt: Receipt) -> tuple[str, ...]:
    """Bytes off for tensors and segments, the share off for the device, percent of the copy for blocks."""
    requests = _figure(receipt, "requests")
    pool = _figure(receipt, "pool_bytes")
    return (
        receipt.model_id.rpartition("/")[2],
        str(receipt.settings.get("kv_cache_dtype") or "auto"),
        receipt.verdict,
        "-" if pool is None else f"{pool[1]:,}",
        _off(_figure(receipt, "pool_allocated_bytes")),
        _off(_figure(receipt, "pool_reserved_bytes")),
        _share(_figure(receipt, "device_runtime_bytes")),
        "-" if requests is None else f"{requests[1]:,} of {requests[0]:,}",
        *(f"{percent} %" if percent is not None else "-" for percent in _percents(receipt)),
    )


def reasons(receipt: Receipt, *, intact: bool) -> list[str]:
    """Why a receipt is not enough."""
    name = receipt.model_id
    found = [] if intact else [f"{name}: the receipt was edited"]
    if receipt.verdict != CONFIRMED:
        wrong = ", ".join(figure.name for figure in receipt.figures if not figure.agrees)
        found.append(f"{name}: {receipt.verdict} {wrong}".rstrip())
    if receipt.kind == PROOF:
        for word, percent in zip(("gather", "write"), _percents(receipt), strict=True):
            if percent is None or percent < LEAST_PERCENT:
                found.append(f"{name}: {word} at {percent} % of the copy, {LEAST_PERCENT} % are asked for")
    return found


def _figure(receipt: Receipt, name: str) -> tuple[int, int] | None:
    """(predicted, measured) of the first figure of that name that has both."""
    for figure in receipt.figures:
        if figure.name == name and figure.predicted is not None and figure.measured is not None:
            return figure.predicted, figure.measured
    return None


def _percents(receipt: Receipt) -> tuple[int | None, int | None]:
    speeds = {
        figure.name: figure.measured
        for figure in receipt.figures
        if figure.name.endswith("_bytes_per_second")
    }
    copied = speeds.get("copy_bytes_per_second")
    gathered, written = speeds.get("gather_bytes_per_second"), speeds.get("write_bytes_per_second")
    if not copied:
        return None, None
    return (
        None if gathered is None else 100 * gathered // copied,
        None if written is None else 100 * written // copied,
    )


def _off(pair: tuple[int, int] | None) -> str:
    return "-" if pair is None else f"{pair[1] - pair[0]:+,}" if pair[0] != pair[1] else "0"


def _share(pair: tuple[int, int] | None) -> str:
    return "-" if pair is None or not pair[0] else f"{(pair[1] - pair[0]) / pair[0] * 100:+.3f} %"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
