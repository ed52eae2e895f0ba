"""Fit the decode speed of one request under llama.cpp to published figures, and say how far it is off.

    python -m scripts.desk_speed [--write]

Rows: scripts/desk_rows.yaml. Sources that are not `held_out` are fitted, class of GPU by class, by the
mean of |ln(measured / estimated)|; rows of one file on one GPU weigh as the square root of their number. The
interval is from 5 to 95 % of measured / estimated of the fitted rows, at least × 1.4 to either side.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import kvplan
from kvplan.engines.llamacpp.budget import file_bytes
from kvplan.engines.llamacpp.memory.reads import Reads, reads
from kvplan.engines.llamacpp.memory.speed import MICRO, TABLE, Rates, class_of
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.gpu import Gpu
from kvplan.record import replace
from kvplan.settings import Settings, with_settings
from kvplan.units import GB, GIB

FILE = Path(__file__).parent / "desk_rows.yaml"
OUT = Path(__file__).parents[1] / "docs" / "data" / "desk-speed.md"
LEAST, TAIL = 1.4, 0.05
HOST = (25.0, 40.0, 60.0)
"""GB/s: what the rows with layers or experts in host memory come to (32 to 47), widened to desktops with two
channels of DDR4 (51 GB/s at best) and of DDR5 (96)."""
SHARES = [0.5 + 0.02 * step for step in range(24)]
LAYERS = [0, 10, 20, 30, 40, 50, 60, 70, 80, 100, 120, 150, 200]
ROUTED = [0, 20, 40, 60, 80, 100, 120, 160]
CACHE = [0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0]


class Row(NamedTuple):
    """A published figure, and what a token reads there."""

    raw: dict[str, Any]
    gpu: Gpu
    found: tuple[Reads, ...]
    held_out: bool

    @property
    def kind(self) -> str:
        return class_of(self.gpu) or ""

    @property
    def seconds(self) -> float:
        return 1.0 / float(self.raw["tps"])

    @property
    def hosted(self) -> bool:
        return bool(self.found[-1].bytes)

    def ratio(self, rates: Rates) -> float:
        """Measured ÷ estimated seconds: above 1 where it was slower than estimated."""
        bandwidth = self.gpu.bandwidth_bytes_per_second or 1
        own = sum(rates.seconds(one, bandwidth) for one in self.found[:-1])
        return self.seconds / (own + self.found[-1].bytes / (HOST[1] * GB))


@cache
def _model(name: str) -> Any:
    return kvplan.load_model(name)


@cache
def read_rows() -> list[Row]:
    """Every row whose GPU has a class."""
    data = load_yaml_file(FILE, name=FILE.name).data
    found = []
    for raw in data["rows"]:
        gpu, model = kvplan.load_gpu(raw["gpu"]), _model(raw["model"])
        if class_of(gpu) is None:
            continue
        settings = Settings(
            gpu=gpu, pipeline_parallel_size=raw.get("gpus", 1), quantization=raw["build"], requests=1
        )
        settings = with_settings(settings, raw.get("options", {}))
        own = reads(model, settings, raw["tokens"])
        if "file_gib" in raw:  # its author chose other types: as much more or less of each
            known = file_bytes(model, settings) or 1
            more = raw["file_gib"] * GIB / known
            own = tuple(
                one._replace(weights=int(one.weights * more), experts=int(one.experts * more)) for one in own
            )
        found.append(Row(raw, gpu, own, bool(data["sources"][raw["source"]].get("held_out"))))
    return found


def fit(rows: Sequence[Row]) -> Rates:
    """The constants with the least loss, on a grid: the same rows give the same file."""
    counts = Counter(_group(row) for row in rows)
    weights = [1 / math.sqrt(counts[_group(row)]) for row in rows]

    def loss(rates: Rates) -> float:
        return sum(
            weight * abs(math.log(row.ratio(rates))) for weight, row in zip(weights, rows, strict=True)
        )

    routed = ROUTED if any(one.routed for row in rows for one in row.found) else [0]
    made = (
        Rates(round(share, 2), layer * MICRO, extra * MICRO, cached, 1.0, 1.0)
        for share, layer, extra, cached in product(SHARES, LAYERS, routed, CACHE)
    )
    best = min(made, key=loss)
    ratios = sorted(row.ratio(best) for row in rows)
    low, high = ratios[int(TAIL * len(ratios))], ratios[min(int((1 - TAIL) * len(ratios)), len(ratios) - 1)]
    return replace(best, fast=round(min(low, 1 / LEAST), 2), slow=round(max(high, LEAST), 2))


def _group(row: Row) -> tuple[str, ...]:
    return tuple(str(row.raw[name]) for name in ("source", "model", "build", "gpu"))


def fitted() -> dict[str, Rates]:
    """Every class of which a source was fitted."""
    rows = [row for row in read_rows() if not row.held_out and not row.hosted]
    return {kind: fit([row for row in rows if row.kind == kind]) for kind in sorted({r.kind for r in rows})}


def table_text(rates: dict[str, Rates]) -> str:
    lines = ["class\tshare\tlayer_us\trouted_us\tcache_share\tfast\tslow"]
    lines += [
        f"{kind}\t{one.share:g}\t{one.layer / MICRO:g}\t{one.routed / MICRO:g}\t{one.cache_share:g}"
        f"\t{one.fast:g}\t{one.slow:g}"
        for kind, one in rates.items()
    ]
    return "\n".join([*lines, f"host\t{HOST[0]:g}\t{HOST[1]:g}\t{HOST[2]:g}\t\t\t"]) + "\n"


def inside(row: Row, rates: Rates) -> bool:
    """Whether the measured seconds lie in the interval; of a row with host memory with its range too."""
    bandwidth, beside = row.gpu.bandwidth_bytes_per_second or 1, row.found[-1].bytes / GB
    own = sum(rates.seconds(one, bandwidth) for one in row.found[:-1])
    return own * rates.fast + beside / HOST[2] <= row.seconds <= own * rates.slow + beside / HOST[0]


HEAD = """\
# Tokens a second of one request under llama.cpp

Generated by `python -m scripts.desk_speed --write` from `scripts/desk_rows.yaml`; a test says when it is
stale. `kvplan size … -e llamacpp` and `kvplan fits` show the estimate; no figure was measured by kvplan.

A token takes the seconds in which a GPU reads its matrices, of routed experts those that are chosen, and the
cache so far, at a share of the GPU's bandwidth, and a fixed time for each layer. What lies in host memory is
read at 25 to 60 GB/s, likely 40: nobody says which memory a machine has. Speculative decoding, power limits,
other work on the card are not in it.
"""


def _line(name: str, rows: Sequence[Row], rates: dict[str, Rates]) -> str:
    if not rows:
        return f"| {name} | 0 |  |  |"
    off = median(abs(1 / row.ratio(rates[row.kind]) - 1) for row in rows)
    held = sum(inside(row, rates[row.kind]) for row in rows)
    return f"| {name} | {len(rows)} | {100 * off:.0f} % | {held} of {len(rows)} |"


def document(rates: dict[str, Rates]) -> str:
    """The page: how far it is off by class, the constants, the held-out rows, the sources."""
    rows = [row for row in read_rows() if row.kind in rates]
    whole = [row for row in rows if not row.hosted]
    lines = [HEAD, "| rows | figures | median error | in the interval |", "| --- | ---: | ---: | ---: |"]
    lines.append(_line("fitted", [row for row in whole if not row.held_out], rates))
    lines.append(_line("**held out**", [row for row in whole if row.held_out], rates))
    lines += [
        _line(f"held out, {kind}", [row for row in whole if row.held_out and row.kind == kind], rates)
        for kind in rates
    ]
    lines.append(_line("with host memory", [row for row in rows if row.hosted], rates))
    lines += [
        "", "## Constants", "", "fast, slow: the interval, as shares of the estimated seconds.", "",
        "| class | share | a layer, µs | its experts, µs | cache share | fast | slow |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    lines += [
        f"| {kind} | {one.share:g} | {one.layer / MICRO:g} | {one.routed / MICRO:g} | {one.cache_share:g}"
        f" | {one.fast:g} | {one.slow:g} |"
        for kind, one in rates.items()
    ]
    lines += [
        "", "## Held-out rows", "", "**!**: outside the interval.", "",
        "| source | GPU | model | build | tokens | measured | estimated | |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | --- |",
    ]  # fmt: skip
    for row in rows:
        if not row.held_out and not row.hosted:
            continue
        own, raw = rates[row.kind], row.raw
        said = "" if inside(row, own) else "**!**"
        many = f"{raw['gpus']} × " if "gpus" in raw else ""
        moved = "".join(f", {name} {value}" for name, value in raw.get("options", {}).items())
        lines.append(
            f"| {raw['source']} | {many}{row.gpu.slug} | {raw['model']} | {raw['build']}{moved}"
            f" | {raw['tokens']:,} | {raw['tps']:g} | {raw['tps'] * row.ratio(own):.1f} | {said} |"
        )
    data = load_yaml_file(FILE, name=FILE.name).data
    lines += ["", "## Sources", ""]
    lines += [f"- {name}: {one['where']} ({one['date']})" for name, one in data["sources"].items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="write data/speed.tsv and docs/data/desk-speed.md"
    )
    arguments = parser.parse_args()
    rates = fitted()
    for path, text in ((TABLE, table_text(rates)), (OUT, document(rates))):
        if arguments.write:
            path.write_text(text, encoding="utf-8")
        else:
            print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
