"""Write into docs/simulate.md how published serving runs lie beside what ``kvplan simulate`` says of them.

python -m scripts.serving_accuracy            print it (about two minutes)
python -m scripts.serving_accuracy --write    into docs/simulate.md; a test asks some rows anew
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
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
    kind, fitted = class_of(row), is_fitted(row.raw)
    return [Judged(name, measured, found[name], kind, fitted) for name, measured in row.figures.items()]


def line(row: Row, figures: Sequence[Judged]) -> str:
    """The row's line of the table."""
    raw, load = row.raw, row.load
    ways = int(raw.get("tp", 1))
    gpus = f"{ways} × {raw['gpu']}" if ways > 1 else str(raw["gpu"])
    if "replicas" in raw:
        gpus = f"{raw['replicas']} × ({gpus}), {raw['router']}"
    came = f"{load['rate']:g}/s" if "rate" in load else f"{load['requests']:,} at once"
    if "concurrency" in load:
        came = f"{load['concurrency']:,} at a time"
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


def replicas(rows: Sequence[Row], found: Sequence[Sequence[Judged]]) -> str:
    """Replicas that would safely serve what was published, for each that likely does: of a load that fills
    its servers they are as its tokens a second are, the likely run's by the slowest run's."""
    every = [
        one.found.value / one.found.low
        for row, figures in zip(rows, found) for one in figures
        if one.name == "output_tps" and "rate" not in row.load and one.found.low
    ]  # fmt: skip
    few = sum(share <= 2 for share in every)
    return (
        f"Replicas for a load that fills them, safely ÷ likely: at most 2 in {few} of {len(every)} runs"
        f" ({100 * few / len(every):.0f} %), {median(every):.2f} in the median."
    )


class Peer(NamedTuple):
    """Typical factors of AISimulate 0.13.0 on so many rows of a kind, by a study of 2026-11-28 that keeps no
    list of them: 22 of GPUStack's on H100 and H200 under vLLM."""

    name: str
    rows: int
    factors: tuple[float, float, float]
    holds: Callable[[Row], bool]


def _whole(row: Row) -> bool:
    return row.raw["source"] == "gpustack-lab" and row.raw["gpu"] in ("h100", "h200") and any(
        part in str(row.raw["model"]) for part in ("DeepSeek", "GLM-4", "gpt-oss-120b", "Qwen3-235B")
    ) and row.raw["engine"] == "vllm"  # fmt: skip


PEERS = (
    Peer("all", 22, (1.61, 1.37, 1.66), lambda row: True),
    Peer("prompts of 2,000 tokens and more", 9, (1.12, 1.47, 1.14), lambda row: row.load["input"] > 1900),
    Peer(
        "1,000 at once", 9, (2.35, 1.42, 2.51),
        lambda row: row.load["input"] < 300 and row.load["requests"] >= 900 and "concurrency" not in row.load,
    ),
    Peer("DeepSeek", 9, (1.37, 1.31, 1.20), lambda row: "DeepSeek" in str(row.raw["model"])),
    Peer("gpt-oss", 8, (2.10, 1.34, 2.28), lambda row: "gpt-oss" in str(row.raw["model"])),
)  # fmt: skip
_TIMED = ("output_tps", "tpot_ms", "ttft_ms")


def peers(rows: Sequence[Row], found: Sequence[Sequence[Judged]]) -> list[str]:
    """Typical factors beside AISimulate's, by the kinds of rows that the study tells apart."""
    lines = [
        "| rows | kvplan's | tokens/s | TPOT | TTFT | AISimulate's | tokens/s | TPOT | TTFT |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for peer in PEERS:
        kept = [figures for row, figures in zip(rows, found) if _whole(row) and peer.holds(row)]
        own = [
            median(one.factor for figures in kept for one in figures if one.name == name) for name in _TIMED
        ]
        cells = [
            f"× {mine:.2f}" + (" (worse)" if mine > theirs else "") for mine, theirs in zip(own, peer.factors)
        ]
        theirs = [f"× {factor:.2f}" for factor in peer.factors]
        lines.append(f"| {' | '.join([peer.name, str(len(kept)), *cells, str(peer.rows), *theirs])} |")
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
        replicas(rows, found), "",
        "Held-out figures by class, the farthest off first:", "", *by_class(every), "",
        "Beside AISimulate 0.13.0 (typical factors; which 22 rows it was asked is not kept, so kvplan's are",
        "of all rows of the kind, most of them of its fitted half; AISimulate was fitted to kernels, not to",
        "rows like these):", "", *peers(rows, found), "",
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
