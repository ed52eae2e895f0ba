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

from kvplan.api.simulating import deployment
from kvplan.simulation.served import LIKELY
from kvplan.simulation.time.speed_clock import SpeedClock
from scripts.serving_rows import Found, Row, options_of, read_left, read_rows, read_sources, simulated
from scripts.speed_accuracy import ClassFigure, class_table, number
from scripts.speed_rows import is_fitted

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
    kind: str = ""
    fitted: bool = False

    @property
    def slower(self) -> float:
        """Measured time / simulated time."""
        share = self.measured / self.found.value if self.found.value else float("inf")
        return 1 / share if self.name.endswith("_tps") else share

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
    kind, fitted = class_of(row), is_fitted(str(row.raw["model"]))
    return [Judged(name, measured, found[name], kind, fitted) for name, measured in row.figures.items()]


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
        "| figure | published | inside the interval | likely run off by (median) "
        "| held out | inside | off by | high ÷ low |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in [*COLUMNS, ""]:
        part = [one for one in every if name in ("", one.name)]
        if not part:
            continue
        cells = [COLUMNS.get(name, "all")]
        for half in (part, [one for one in part if not one.fitted]):
            timed = [one.factor for one in half if one.name != "grows"]
            inside = sum(one.inside for one in half)
            share = f"{inside} ({100 * inside / len(half):.0f} %)" if half else ""
            cells += [str(len(half)), share, f"× {median(timed):.2f}" if timed else ""]
        widths = [one.found.high / one.found.low for one in part if one.name != "grows" and one.found.low]
        cells.append(f"{median(widths):.1f}" if widths else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def class_of(row: Row) -> str:
    """The class whose constants and interval its steps have (`SpeedProfile.classes`)."""
    options = options_of(row)
    served, _ = deployment(row.raw["model"], pool=None, step_time=None, offload=None, split=None, **options)
    clock = served.speeds.clock(LIKELY)
    return clock.profile.classes[1] if isinstance(clock, SpeedClock) else ""


def by_class(every: Sequence[Judged]) -> list[str]:
    timed = [one for one in every if one.name != "grows" and not one.fitted and one.found.low]
    return class_table([
        ClassFigure(
            one.kind, COLUMNS[one.name], one.slower, one.inside, one.found.high / one.found.low
        ) for one in timed
    ])  # fmt: skip


def section(rows: Sequence[Row], found: Sequence[Sequence[Judged]]) -> str:
    """What stands between the page's marks."""
    every = [one for figures in found for one in figures]
    where = [f"- {name}: {source.where} ({source.date})" for name, source in read_sources().items()]
    left = [f"- {one.row}: {one.what}: {one.why}." for one in read_left()]
    lines = [
        *summary(every), "",
        "Held-out figures by class, the farthest off first:", "", *by_class(every), "",
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
