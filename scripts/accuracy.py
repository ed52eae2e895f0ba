"""Predicted pools next to what servers printed: writes docs/accuracy.md and docs/data/accuracy-rows.md.

    python -m scripts.accuracy FIELD_REPORTS... --held-out FILE

Every row that states model, GPU, tensor parallel size, utilisation and a release is listed, the wrong ones
first.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from kvplan.architectures.builders import BUILDER, SPREADS
from kvplan.errors import KvplanError
from kvplan.units import GIB, gib
from scripts.build_spreads import spreads, units
from scripts.cold_warm import cold_warm_lines
from scripts.field_rows import Row, read_rows
from scripts.fit_budget import report
from scripts.judged import NEAR, UTILISATION, Judged, is_calibrated, is_late, judged, safe, summary_table
from scripts.reach import reach_lines
from scripts.served_rows import served, served_summary, served_table

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "accuracy.md"
ROWS = ROOT / "docs" / "data" / "accuracy-rows.md"
MEASURED = "kvplan's own start on an H200"
"""The source that rows of measured.yaml state."""


def grouped(rows: Sequence[Judged], *keys: Callable[[Judged], str]) -> list[str]:
    """One line of a table for each group of rows."""
    groups: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for row in rows:
        groups[tuple(key(row) for key in keys)].append(row)
    lines = [
        "| " + " | ".join(("release", "model", "GPUs")[: len(keys)]) + " | rows | median error | largest"
        " | inside | half-width |",
        "|" + "---|" * len(keys) + "--:|--:|--:|--:|--:|",
    ]
    worst = sorted(groups.items(), key=lambda item: -max(abs(row.error) for row in item[1]))
    for names, members in worst:
        errors = [abs(row.error) for row in members]
        lines.append(
            f"| {' | '.join(names)} | {len(members)} | {median(errors):.2f} % | {max(errors):.2f} %"
            f" | {sum(row.inside for row in members)} | {median(row.half_width for row in members):.2f} GiB |"
        )
    return lines


def minor(row: Judged) -> str:
    """``0.24``."""
    return ".".join(str(row.row.version).split(".")[:2])


def table(rows: Sequence[Judged]) -> list[str]:
    lines = [
        "| row | vLLM | model | GPU | predicted | printed | error | interval |",
        "|---|---|---|---|--:|--:|--:|---|",
    ]
    for entry in sorted(rows, key=lambda entry: (entry.inside, -abs(entry.error), entry.row.id)):
        row, budget = entry.row, entry.budget
        gpus = row.gpu.slug + (f" × {row.raw['tp']}" if row.raw["tp"] > 1 else "")
        place = f"{row.id} | {row.version} | {row.model.id} | {gpus}"
        span = f"{gib(budget.kv_pool_low_bytes)} … {gib(budget.kv_pool_high_bytes)}"
        mark = "" if entry.inside else " **outside**"
        amounts = f"{gib(entry.predicted)} | {gib(entry.printed)} | {entry.error:+.2f} %"
        lines.append(f"| {place} | {amounts} | {span}{mark} |")
    return lines


def parts_table(rows: Sequence[Row]) -> list[str]:
    """Line by line, where the log printed the lines: weights (with rotary tables), activations, the rest."""
    lines = [
        "| row | weights | printed | activations | printed | non-torch | printed |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        if not is_calibrated(row):
            continue
        try:
            budget = row.predict().budget
        except KvplanError:
            continue
        if budget is None:
            continue
        amounts = {line.name: line.bytes for line in budget.lines}
        weights = amounts["weights"] + amounts.get("rotary tables", 0)
        cells = []
        for amount, name in (
            (weights, "weights_gib"),
            (amounts["activation peak"], "activation_peak_gib"),
            (amounts["non-torch memory"], "non_torch_gib"),
        ):
            printed = row.printed(name)
            cells += [gib(amount), "" if printed is None else gib(printed)]
        lines.append(f"| {row.id} | {' | '.join(cells)} |")
    return lines


def held_out_lines(held: Sequence[Judged], path: Path) -> list[str]:
    return [f"## Held out: `{path.name}`", "", *table(held), ""] if held else []


def measured_of(late: Sequence[Judged]) -> list[Judged]:
    """Fitted rows that were measured for kvplan: their figures are the engine's own, to the byte."""
    return [entry for entry in late if entry.row.source == MEASURED]


def first_told(held: Sequence[Judged]) -> str:
    """What was predicted when the rows were found: ``first: [low, likely, high]``, GiB."""
    printed = [(entry.row.raw["first"], entry.row.raw["available_kv_gib"]) for entry in held]
    inside = sum(low - 0.005 <= amount <= high + 0.005 for (low, _, high), amount in printed)
    missed = sum(amount < low - 0.005 for (low, _, _), amount in printed)
    return f"then {inside} of {len(printed)} were inside, and {missed} printed less than the safe figure"


def asked_lines(paths: Sequence[Path], held_out: Path) -> list[str]:
    """The held-out starts as a user asks for them, by what kvplan knows of the model's weights."""
    rows, left = read_rows(held_out, asked=True)
    found = judged(rows, left)
    large = 8 * GIB
    by_name = [entry for entry in found if entry.row.model.is_by_name]
    groups = {
        "all": found,
        "the model has a card, or its layout is known": [row for row in found if row not in by_name],
        "**known by its name**": by_name,
        "by its name, pool of 8 GiB and more": [row for row in by_name if row.printed >= large],
        "by its name, pool under 8 GiB": [row for row in by_name if row.printed < large],
        "pool of 8 GiB and more": [row for row in found if row.printed >= large],
        "pool under 8 GiB": [row for row in found if row.printed < large],
    }
    silent = {key: reason for key, reason in left.items() if reason != UTILISATION}
    return [
        "## As a user asks",
        "",
        "The held-out starts by the id, the GPU and the flags that the server was given: weights, drafts and",
        "the cache's format are kvplan's own.",
        "",
        *summary_table(groups),
        "",
        f"No answer: {len(silent)} starts ({', '.join(sorted(silent))}).",
        "Builds *known by name* have the layers of the model's card and the weights that such builds of",
        "their builder have: an interval, from all starts that printed such weights, these among them",
        "(`scripts/build_spreads.py`).",
        others_alone(by_name, (*paths, held_out)),
        "By the builders:",
        "",
        *builders_table(by_name),
        "",
    ]


def others_alone(rows: Sequence[Judged], paths: Sequence[Path]) -> str:
    """How many would be inside if a build's interval came from the starts of other builds alone."""
    loaded = units(read_rows(*paths, asked=True)[0])
    inside = below = 0
    for entry in rows:
        group, name = entry.row.model.facts.get(BUILDER), entry.row.model.id
        others = [unit for unit in loaded if unit.group == group and unit.build != name]
        own = any(unit.build == name for unit in loaded)
        spread = spreads(others).get(str(group)) if own else None
        used = SPREADS.get(str(group))
        (weights,) = (line.bytes for line in entry.budget.lines if line.name == "weights")
        less, more = (0, 0)
        if spread is not None and used is not None:
            less, more = (used.below - spread.below, used.above - spread.above)
        low = safe(entry) + weights * more // 1000
        high = entry.budget.kv_pool_high_bytes + GIB // 200 - weights * less // 1000
        inside += low <= entry.printed <= high
        below += entry.printed < low
    return (
        f"Each build with the interval of the *other* builds alone: {inside} of {len(rows)} inside,"
        f" {below} below the safe figure."
    )


def builders_table(rows: Sequence[Judged]) -> list[str]:
    """A line for each group of builders."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for entry in rows:
        groups[str(entry.row.model.facts.get(BUILDER) or "a fine-tune, as it was trained")].append(entry)
    return summary_table(dict(sorted(groups.items(), key=lambda item: -len(item[1]))))


def documents(*paths: Path, held_out: Path) -> dict[Path, str]:
    """Both documents; the same reports give the same bytes."""
    rows, left = read_rows(*paths)
    unseen = read_rows(held_out)[0]
    answers, held = judged(rows, left), judged(unseen, {})
    late = [entry for entry in answers if is_late(entry.row)]
    inner = [entry for entry in answers if is_calibrated(entry.row)]
    older = [entry for entry in answers if not is_calibrated(entry.row) and not is_late(entry.row)]
    groups = {
        "held out": held,
        "held out, compile cache told": judged(unseen, {}, told=True),
        "fitted, 0.20 and later": late,
        "fitted, 0.20 and later, compile cache told": [
            entry for entry in judged(rows, {}, told=True) if is_late(entry.row)
        ],
        "both from 0.20 on": [*late, *held],
        "fitted, 0.11 to 0.19": inner,
        "older": older,
    }
    sglang = {
        "SGLang, fitted": served("sglang", *paths),
        "SGLang, held out": served("sglang", held_out),
    }
    wrong = sorted(
        (entry for entry in answers if abs(entry.error) > NEAR or not entry.inside),
        key=lambda entry: -abs(entry.error),
    )
    measured = measured_of(late)
    page = [
        "# How exact the memory budget is",
        "",
        "Generated by `make accuracy`. Servers print at start-up how much memory is left for the KV cache.",
        f"This page compares that figure with kvplan's for {len(answers) + len(held)} starts of vLLM: from",
        "public issues, pull requests, repositories and reports, or measured for kvplan. Every row is in",
        "[data/accuracy-rows.md](data/accuracy-rows.md); [outcomes.md](outcomes.md) explains the budget.",
        "",
        *asked_lines(paths, held_out),
        "## With the weights that the log printed",
        "",
        "The budget alone: where no card has the checkpoint, or a draft is loaded that the report does not",
        "name, the weights are the log's.",
        "",
        *summary_table(groups),
        "",
        "*Held out*: no constant was fitted to these starts. Each was predicted before anything was changed",
        f"({first_told(held)});",
        "some of the misses have since led to a rule read from the engine's source.",
        "*Fitted*: the budget's constants come from these rows. *Compile cache told*: `--compile-cache` says",
        "whether the start found the compiled code of an earlier one, as its log shows.",
        "",
        "Predicted is the likely figure of `kvplan size MODEL --engine vllm@VERSION --gpu GPU` with the",
        "server's settings; printed is the log's `Available KV cache memory`. The low end of an interval is",
        "the safe figure: at most 5 % of starts print less.",
        "",
        "## Where we are wrong",
        "",
        f"Fitted rows more than {NEAR} % off, or outside their interval (held-out rows: in the rows' table):",
        "",
        *(
            [
                f"- {entry.row.id} (vLLM {entry.row.version}, {entry.row.model.id}, {entry.row.gpu.slug}):"
                f" {entry.error:+.2f} %" + ("" if entry.inside else ", outside the interval")
                for entry in wrong
            ]
            or ["None."]
        ),
        "",
        "## How near to expect",
        "",
        *reach_lines(unseen),
        *cold_warm_lines([row for row in (*rows, *unseen) if is_late(row)]),
        "## Measured for kvplan",
        "",
        *table(measured),
        "",
        "vLLM 0.33.0 on one H200, all settings at their defaults except FlashInfer, which was not installed",
        "(`--flashinfer absent`); one start has the settings of",
        "`examples/plans/rag-llama-3.1-8b-128k-h200.yaml`. Each was predicted before anything was changed",
        f"({first_told(measured)}).",
        "The allocator's record of these starts showed what the sampler keeps, what FlashAttention 3 adds to",
        "graphs and what a cold compile copies; they are among the fitted rows now.",
        "",
        "## SGLang",
        "",
        *served_summary(sglang),
    ]
    data = [
        "# The memory budget, row by row",
        "",
        "Generated by `make accuracy` from the vLLM and SGLang rows of "
        + ", ".join(f"`{path.name}`" for path in (*paths, held_out))
        + "; [accuracy.md](../accuracy.md) says what they come to.",
        "",
        "## vLLM 0.20 and later",
        "",
        "By release, class of model and GPUs, the worst first:",
        "",
        *grouped(late, minor, lambda entry: entry.kind, lambda entry: entry.place),
        "",
        *table(late),
        "",
        *held_out_lines(held, held_out),
        "## vLLM 0.11 to 0.19",
        "",
        *table(inner),
        "",
        "### Line by line",
        "",
        "Weights include the tables of rotary angles, as the log's figure does.",
        "",
        *parts_table(rows),
        "",
        "## Older releases",
        "",
        *table(older),
        "",
        *(line for name, found in sglang.items() for line in (f"## {name}", "", *served_table(found), "")),
        "## Fits that have not seen a row",
        "",
        "Up to 0.19 by halves of the models, from 0.20 on by families of rows (one repository or page each).",
        "",
        *(f"- {line.strip()}" for line in report(rows)),
        "",
        "## Rows that are left out",
        "",
        *(f"- {name}: {reason}" for name, reason in sorted(left.items())),
    ]
    return {OUT: "\n".join(page) + "\n", ROWS: "\n".join(data) + "\n"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--held-out", type=Path, required=True, help="rows that are judged and never fitted")
    options = parser.parse_args()
    for path, text in documents(*options.reports, held_out=options.held_out).items():
        path.write_bytes(text.encode())
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
