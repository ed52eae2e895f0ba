"""How far from kvplan's weights of builds by name those were that servers printed: `SPREADS` of builders.py.

    python -m scripts.build_spreads FIELD_REPORTS...

One unit is one build in one source. Left out: memory shared with the CPU, whose figure has the page cache
in it, starts with a draft model, whose weights are in the figure too, and models with tables of n-grams, of
which the plain checkpoint takes up to 0.9 GiB more than its tensors as well.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from kvplan.architectures.builders import BUILDER, Spread
from kvplan.architectures.inventory import inventory_of
from kvplan.errors import KvplanError
from kvplan.weights.parts import NGRAM_TABLE
from scripts.field_rows import Row, read_rows

COVERED = 95
"""Per cent of the units that a spread has to hold."""
STEP = 5
"""Thousandths: a spread is rounded up to whole steps."""
_PARTS = ("weights", "rotary tables", "beside the weights", "draft layers (MTP)")


class Unit(NamedTuple):
    """off: the printed weights beyond kvplan's, in thousandths of these."""

    group: str
    build: str
    source: str
    off: float


def units(rows: Iterable[Row]) -> list[Unit]:
    """The units of rows that were read as users ask (`read_rows(…, asked=True)`)."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        group, printed = row.model.facts.get(BUILDER), row.printed("weights_gib")
        drafted = (row.raw["flags"] or {}).get("speculative") or "mtp"
        if not isinstance(group, str) or printed is None or row.version is None or row.gpu.is_unified_memory:
            continue
        if not str(drafted).startswith(("mtp", "ngram")) or has_tables(row.model.config or {}):
            continue
        try:
            budget = row.predict().budget
        except KvplanError:
            continue
        if budget is None:
            continue
        lines = {line.name: line.bytes for line in budget.lines}
        more = printed - sum(lines.get(part, 0) for part in _PARTS)
        found[group, row.model.id, row.family].append(1000 * more / lines["weights"])
    return [Unit(*key, median(off)) for key, off in found.items()]


def has_tables(config: Mapping[str, Any]) -> bool:
    """Whether layers look up hashed n-grams."""
    return any(NGRAM_TABLE in path for path, _ in inventory_of(config).tensors())


def spreads(found: Sequence[Unit]) -> Mapping[str, Spread]:
    """The spread of each group: both ends hold `COVERED` per cent of its units between them."""
    groups: dict[str, list[float]] = defaultdict(list)
    for unit in found:
        groups[unit.group].append(unit.off)
    return {group: _spread(sorted(off)) for group, off in groups.items()}


def _spread(off: Sequence[float]) -> Spread:
    left = list(off)
    for _ in range(len(off) * (100 - COVERED) // 100):
        left.remove(max(left, key=abs))
    return Spread(_steps(-min(left)), _steps(max(left)))


def _steps(amount: float) -> int:
    return STEP * max(1, -int(-amount // STEP))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", type=Path, nargs="+")
    found = units(read_rows(*parser.parse_args().reports, asked=True)[0])
    table = spreads(found)
    for group in sorted(table):
        print(group, table[group])
        for unit in sorted(found, key=lambda unit: unit.off):
            if unit.group == group:
                print(f"  {unit.off:+7.1f}  {unit.build}  {unit.source}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
