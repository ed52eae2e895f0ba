"""Estimated speed beside published measurements: writes docs/speed.md, and the rows
themselves to docs/data/speed-rows.md.

python -m scripts.speed_accuracy [--write]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from math import exp, log
from pathlib import Path
from statistics import median
from typing import NamedTuple

from kvplan.assumption import Assumption
from kvplan.files.speed import speed_assumptions
from kvplan.planning.speed.estimate import spread
from scripts.speed_rows import (
    RATES,
    Row,
    estimated,
    is_fitted,
    profile_of,
    read_rows,
    read_sources,
    requests_of,
)

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "speed.md"
ROWS = ROOT / "docs" / "data" / "speed-rows.md"
WORST = 12
FEW = 10
UNITS = {
    "tpot_ms": "TPOT, ms",
    "itl_ms": "step, ms",
    "ttft_ms": "TTFT, ms",
    "first_ms": "first token, ms",
    "output_tps": "tokens/s",
    "gpu_tps": "tokens/s a GPU",
    "batch_gpu_tps": "batch, tokens/s a GPU",
    "batch_seconds": "batch, s",
    "step_tps": "step, tokens/s",
    "prefill_tps": "prefill, tokens/s",
}

# aiconfigurator 0.12.0, `cli estimate` (agg; static for the first two), 2026-11-21: TPOT in ms. The case
# is (model, GPU, engine, requests, prompt) of a row with a measured TPOT.
PEER = {
    ("Qwen/Qwen3-8B", "h100", "vllm", 1, 233): 6.325,
    ("Qwen/Qwen3-8B", "h100", "vllm", 8, 233): 6.696,
    ("llama-3.1-70b", "a100-sxm-80gb", "sglang", 90, 500): 39.314,
    ("deepseek-ai/DeepSeek-R1", "b200", "sglang", 92, 500): 21.981,
    ("Qwen/Qwen3-235B-A22B-Instruct-2507", "b200", "sglang", 90, 500): 20.694,
    ("openai/gpt-oss-120b", "b200", "sglang", 89, 297): 6.683,
    ("MiniMaxAI/MiniMax-M2.5", "h100", "sglang", 91, 500): 17.604,
}


class ClassFigure(NamedTuple):
    """A figure of a class: measured / estimated time, whether it lies inside, high / low."""

    kind: str
    figure: str
    slower: float
    inside: bool
    width: float


class Judged(NamedTuple):
    """One measured figure with kvplan's in its place."""

    row: Row
    requests: int
    value: float
    low: float
    high: float
    fitted: bool
    kind: str

    @property
    def slower(self) -> float:
        """Measured time / estimated time."""
        share = self.row.measured / self.value
        return 1 / share if self.row.figure in RATES else share

    @property
    def error(self) -> float:
        """Per cent of the measured figure."""
        return 100 * (self.value - self.row.measured) / self.row.measured

    @property
    def inside(self) -> bool:
        return self.low <= self.row.measured <= self.high

    @property
    def too_fast(self) -> bool:
        """Whether serving was slower than estimated."""
        return (self.error > 0) == (self.row.figure in RATES)


def judged() -> list[Judged]:
    """Every row, in the file's order."""
    found = []
    for row in read_rows():
        profile = profile_of(row)
        value = estimated(row)
        around = spread(profile, row.phase)
        made = (around.around_rate if row.figure in RATES else around.around)(value, "")
        found.append(
            Judged(
                row,
                requests_of(row, profile),
                value,
                made.low,
                made.high,
                is_fitted(row.raw),
                profile.classes[1],
            )
        )
    return found


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-round(len(ordered) * share * 1000) // 1000) - 1)]


def number(value: float) -> str:
    """Three significant digits, whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def summary(name: str, found: list[Judged]) -> str:
    errors = [abs(entry.error) for entry in found]
    inside = sum(entry.inside for entry in found)
    models = len({entry.row.model for entry in found})
    return (
        f"| {name} | {len(found)} | {models} | {percentile(errors, 0.5):.0f} % "
        f"| {percentile(errors, 0.9):.0f} % | {inside} of {len(found)} ({100 * inside / len(found):.0f} %) |"
    )


def row_line(entry: Judged) -> str:
    row = entry.row
    raw = row.raw
    model = row.model.split("/")[-1] + (f" as {raw['quantization']}" if "quantization" in raw else "")
    if "weight_bytes" in raw:
        model += f" ({raw['note'].split(',')[0]})"
    ways = f"{row.tensor_parallel_size} × " if row.tensor_parallel_size > 1 else ""
    cells = [
        model,
        f"{ways}{raw['gpu']}",
        raw["engine"],
        f"{entry.requests:,}{'*' if raw['requests'] == 'memory' else ''}",
        f"{raw['input']:,} + {raw['output']:,}",
        UNITS[row.figure],
        number(row.measured),
        f"{number(entry.value)} ({number(entry.low)} to {number(entry.high)})",
        f"{entry.error:+.0f} %" + ("" if entry.inside else " **!**"),
    ]
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| model | GPUs | engine | requests | prompt + answer | figure | measured | estimated | error |\n"
    "| --- | --- | --- | ---: | ---: | --- | ---: | ---: | ---: |"
)


def table(entries: Iterable[Judged]) -> str:
    return "\n".join([HEAD, *map(row_line, entries)])


def class_table(found: Sequence[ClassFigure]) -> list[str]:
    """Held-out figures by class, the farthest off first. bias: median of measured / estimated time."""
    lines = [
        "| class | figure | figures | measured ÷ estimated time | typical factor | inside | high ÷ low |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    groups: dict[tuple[str, str], list[ClassFigure]] = {}
    for one in found:
        groups.setdefault((one.kind, one.figure), []).append(one)
    order = sorted(groups.items(), key=lambda item: -median(abs(log(one.slower)) for one in item[1]))
    for (kind, figure), every in order:
        off, size = exp(median(abs(log(one.slower)) for one in every)), len(every)
        inside = sum(one.inside for one in every)
        few = "" if size >= FEW else " (few)"
        cells = [
            kind.replace(".", ", "), figure, f"{size}{few}", f"{median(one.slower for one in every):.2f}",
            f"× {off:.2f}", f"{100 * inside / size:.0f} %", f"{median(one.width for one in every):.1f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def worst(found: list[Judged]) -> list[str]:
    """Held-out groups of rows (a model, GPU and engine) that lie outside, the farthest first."""
    groups: dict[tuple[str, str, str], list[Judged]] = {}
    for entry in found:
        raw = entry.row.raw
        groups.setdefault((entry.row.model, raw["gpu"], raw["engine"]), []).append(entry)
    missed = [(key, entries) for key, entries in groups.items() if not all(e.inside for e in entries)]
    missed.sort(key=lambda item: -max(_factor(entry) for entry in item[1]))
    lines = []
    for (model, gpu, engine), entries in missed[:WORST]:
        outside = [entry for entry in entries if not entry.inside]
        farthest = max(outside, key=_factor)
        way = "slower" if farthest.too_fast else "faster"
        lines.append(
            f"- {model.split('/')[-1]} on {gpu} under {engine}: {len(outside)} of {len(entries)} figures "
            f"outside; at most {_factor(farthest):.1f} times {way} than estimated."
        )
    return lines


def _factor(entry: Judged) -> float:
    share = entry.row.measured / entry.value
    return max(share, 1 / share)


def peers(found: list[Judged]) -> list[str]:
    lines = [
        "| case | measured TPOT, ms | kvplan | aiconfigurator |",
        "| --- | ---: | ---: | ---: |",
    ]
    seen = set()
    for entry in found:
        raw = entry.row.raw
        key = (entry.row.model, raw["gpu"], raw["engine"], entry.requests, raw["input"])
        if entry.row.figure != "tpot_ms" or key not in PEER or key in seen or raw["output"] > 600:
            continue
        seen.add(key)
        theirs = PEER[key]
        part = "fitted" if entry.fitted else "held out"
        lines.append(
            f"| {key[0].split('/')[-1]}, {entry.row.tensor_parallel_size} × {key[1]}, {key[2]}, "
            f"{key[3]} requests ({part}) | {number(entry.row.measured)} "
            f"| {number(entry.value)} ({entry.error:+.0f} %) "
            f"| {number(theirs)} ({100 * (theirs / entry.row.measured - 1):+.0f} %) |"
        )
    return lines


def assumption_line(entry: Assumption) -> str:
    value = f"{entry.value:.3g}" if entry.unit != "s" else f"{entry.value * 1e6:.3g} µs"
    return f"| `{entry.name}` | {value} | {entry.unit if entry.unit != 's' else 'time'} | {entry.source} |"


INTRODUCTION = """\
# How good the speed estimate is

Generated by `python -m scripts.speed_accuracy --write` from `scripts/speed_rows.yaml`; a test says when it
is stale. The estimate ranks and filters deployments. It is no benchmark: nothing here was measured by kvplan.
Every row, every constant and its source: [data/speed-rows.md](data/speed-rows.md).
"""

READING = """
Figures of one model under one engine move together: a kernel that is missing, or very good, shifts all
of them. The median over rows is therefore kinder than a new model can expect. The interval is the figure
to plan with: from 5 to 95 % of measured / estimated over the fitted half, steps and whole servers, each
family estimated with constants that were fitted without it. A class (dense, MoE, hybrid × generation of
GPU × engine) of which there are 8 figures of 3 families has its own interval, at least × 1.65 to either
side; the others have that of the wider class, in the end that of all: GB10, and hybrids on most GPUs.
Parts of the formula were settled after a look at held-out errors (how the launch time of prompt steps
counts; that reading and computing overlap only in part; that Ampere, engines and vLLM up to 0.13 have
constants of their own; that 8-bit blocks reach less than one scale a matrix; that experts without rows
reach what other matrices of their format do; that a collective takes log2(ranks) hops), and so was the
rule of the intervals; which half is fitted was chosen when its families were known, before any fit. No
constant was chosen from held-out rows, but their coverage is kinder than a new model can expect. Of five
sources (`held_out` in the files) no row was fitted at all.

## Where it is wrong
"""

CLASSES = """
## By class, held out

Farthest off first; a figure of less than ten rows says little.
"""

UNKNOWN = """
What the formula does not know: kernels of one model (fused collectives of gpt-oss, slow latent attention
with few heads), schedulers (SGLang stops decoding for prompts, vLLM mixes them in), experts that are hit
unevenly, power limits, the seconds that a busy host adds, speculative decoding. GPUs with much bandwidth for
their arithmetic (H20) prefill nearer to their peak than the constants say. Engines of 2023 read grouped keys
and values once for each query head.

## Compared with aiconfigurator

Version 0.12.0, `cli estimate` with its own measured kernel times, for rows above; lower than measured is too
optimistic. kvplan's constants were fitted to figures like these, aiconfigurator's were not: the table shows
what each says, not which is better.
"""

SEARCH = """
Its default search (`cli default`, Llama-3.1-70B, 8 × H200) took 9.6 to 12.1 s on two cores, three runs.
"""

ROWS_HEAD = """\
# The speed estimate, row by row

Generated by `python -m scripts.speed_accuracy --write` from `scripts/speed_rows.yaml`;
[speed.md](../speed.md) says what the rows come to.

**!** marks a measured figure outside the interval; * requests are as many as memory holds.

## Held-out rows
"""

ASSUMPTIONS = """
## Assumptions

`kvplan/files/data/speed.yaml`. Every figure names those that it rests on.

| name | value | unit | source |
| --- | ---: | --- | --- |"""


def document(found: list[Judged]) -> str:
    """What the rows come to."""
    fitted = [entry for entry in found if entry.fitted]
    held = [entry for entry in found if not entry.fitted]
    gpus = len({entry.row.raw["gpu"] for entry in found})
    models = len({entry.row.model for entry in found})
    lines = [
        INTRODUCTION,
        f"{len(found)} published figures of steps, of {models} models on {gpus} GPUs; those of whole",
        "servers are in [simulate.md](simulate.md#beside-published-measurements), AISimulate's beside them.",
        "Every second family of models by name was fitted (`scripts/speed_fit.py`), but for whole sources",
        "that were held out; the others had no part in any constant.",
        "",
        "| rows | figures | models | median error | 90th percentile | inside the interval |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        summary("fitted", fitted),
        summary("held out", held),
    ]
    for phase, name in (("decode", "TPOT and throughput"), ("prefill", "TTFT and prefill")):
        lines.append(summary(f"held out, {name}", [entry for entry in held if entry.row.phase == phase]))
    lines += [
        READING,
        *worst(held),
        CLASSES,
        *class_table(
            [ClassFigure(one.kind, one.row.phase, one.slower, one.inside, one.high / one.low) for one in held]
        ),
        UNKNOWN,
        *peers(found),
        SEARCH.rstrip("\n"),
    ]
    return "\n".join(lines) + "\n"


def rows_document(found: list[Judged]) -> str:
    """The rows themselves, and where each was read."""
    lines = [
        ROWS_HEAD,
        table(entry for entry in found if not entry.fitted),
        "",
        "## Fitted rows",
        "",
        table(entry for entry in found if entry.fitted),
        ASSUMPTIONS,
        *map(assumption_line, speed_assumptions().by_name.values()),
        "",
        "## Sources of the rows",
        "",
        *(f"- {name}: {source.where} ({source.date})" for name, source in read_sources().items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/speed.md and its rows")
    arguments = parser.parse_args()
    found = judged()
    for path, text in ((OUT, document(found)), (ROWS, rows_document(found))):
        if arguments.write:
            path.write_text(text, encoding="utf-8")
        else:
            print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
