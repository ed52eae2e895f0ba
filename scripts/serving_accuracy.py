"""Write into docs/simulate.md how published serving runs lie beside what ``kvplan simulate`` says of them.

python -m scripts.serving_accuracy            print it (about two minutes)
python -m scripts.serving_accuracy --write    into docs/simulate.md; a test asks some rows anew
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from scripts.serving_rows import Found, Row, read_left, read_rows, read_sources, simulated
from scripts.speed_accuracy import number

PAGE = Path(__file__).resolve().parent.parent / "docs" / "simulate.md"
BLOCK = re.compile(r"(?<=<!-- serving -->\n).*?(?=<!-- /serving -->)", re.DOTALL)
COLUMNS = {
    "ttft_ms": "TTFT",
    "ttft_p99_ms": "TTFT p99",
    "tpot_ms": "TPOT",
    "total_tps": "tokens/s",
    "output_tps": "answer tokens/s",
    "grows": "queue only grows",
}
MISS = " **!**"


class Judged(NamedTuple):
    """One figure beside its simulation."""

    name: str
    measured: float
    found: Found

    @property
    def inside(self) -> bool:
        return self.found.low <= self.measured <= self.found.high

    @property
    def factor(self) -> float:
        """How far the likely run lies from what was measured: 2 is half or double."""
        share = self.measured / self.found.value if self.found.value else float("inf")
        return max(share, 1 / share)

    @property
    def cell(self) -> str:
        if self.name == "grows":
            yes = {0.0: "no", 1.0: "yes"}
            some = "" if self.found.low == self.found.high else " (not in every run)"
            return f"{yes[self.measured]}: {yes[self.found.value]}{some}" + ("" if self.inside else MISS)
        value, low, high = (number(part) for part in self.found)
        return f"{number(self.measured)}: {value} ({low} to {high})" + ("" if self.inside else MISS)


def judged(row: Row) -> list[Judged]:
    found = simulated(row)
    return [Judged(name, measured, found[name]) for name, measured in row.figures.items()]


def line(row: Row, figures: Sequence[Judged]) -> str:
    """The row's line of the table."""
    raw, load = row.raw, row.load
    ways = int(raw.get("tp", 1))
    gpus = f"{ways} × {raw['gpu']}" if ways > 1 else str(raw["gpu"])
    if "replicas" in raw:
        gpus = f"{raw['replicas']} × ({gpus}), {raw['router']}"
    came = f"{load['rate']:g}/s" if "rate" in load else f"{load['requests']:,} at once"
    if load.get("again"):
        came += ", asked before"
    cells = [row.kind, f"{raw['model']}, {gpus}", came, f"{load['input']:,} + {load['output']:,}"]
    texts = {COLUMNS[one.name]: one.cell for one in figures}
    left = ["; ".join(f"{name} {texts[name]}" for name in COLUMNS.values() if name in texts)]
    return f"| {' | '.join(cells + left)} |"


def summary(every: Sequence[Judged]) -> list[str]:
    lines = [
        "| figure | published | inside the interval | likely run off by (median) |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in [*COLUMNS, ""]:
        part = [one for one in every if name in ("", one.name)]
        timed = [one.factor for one in part if one.name != "grows"]
        inside = sum(one.inside for one in part)
        off = f"× {median(timed):.1f}" if timed else ""
        share = f"{inside} ({100 * inside / len(part):.0f} %)"
        lines.append(f"| {COLUMNS.get(name, 'all')} | {len(part)} | {share} | {off} |")
    return lines


def section(rows: Sequence[Row], found: Sequence[Sequence[Judged]]) -> str:
    """What stands between the page's marks."""
    every = [one for figures in found for one in figures]
    where = [f"- {name}: {source.where} ({source.date})" for name, source in read_sources().items()]
    left = [f"- {one.row}: {one.what}: {one.why}." for one in read_left()]
    lines = [
        *summary(every), "",
        "Measured: simulated, likely (least to most of six runs); times in ms; **!** outside.", "",
        "| row | deployment | load | tokens | figures |", "| --- | --- | --- | --- | --- |",
        *(line(row, figures) for row, figures in zip(rows, found)), "",
        "From:", "", *where, "", "Of the study's rows these are not served again:", "", *left,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/simulate.md")
    arguments = parser.parse_args()
    rows = read_rows()
    text = section(rows, [judged(row) for row in rows])
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(BLOCK.sub(lambda _: text, page, count=1), encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
