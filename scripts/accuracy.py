"""Predicted pools beside what servers printed: writes docs/accuracy.md.

    python -m scripts.accuracy FIELD_REPORTS... [--held-out FILE] [--out docs/accuracy.md]

Every row that states model, GPU, tensor parallel size, utilisation and a release is listed, the wrong ones
first.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from kvplan.errors import KvplanError
from kvplan.units import gib
from scripts.cold_warm import cold_warm_lines
from scripts.field_rows import Row, read_rows
from scripts.fit_budget import report
from scripts.judged import NEAR, Judged, is_calibrated, is_late, judged, summary
from scripts.reach import reach_lines
from scripts.served_rows import held_out_served, served, served_lines

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "accuracy.md"
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


def held_out_lines(path: Path, late: Sequence[Judged]) -> list[str]:
    """Rows that no fit has seen, and those from 0.20 on together with the fitted ones."""
    rows, left = read_rows(path)
    held = judged(rows, left)
    return [
        f"## Held out: `{path.name}`",
        "",
        "No constant has seen these start-ups. Each was predicted before anything was changed",
        f"({first_told(held)}); a miss may have led to a law in the engine's source since.",
        "",
        *summary(held),
        "",
        "Told whether the compile cache was cold or warm:",
        "",
        *summary(judged(rows, {}, told=True)),
        "",
        *reach_lines(rows),
        *table(held),
        "",
        "Together with the fitted rows from 0.20 on:",
        "",
        *summary([*late, *held]),
        "",
    ]


def measured_lines(late: Sequence[Judged]) -> list[str]:
    """Fitted rows that were measured for kvplan: their figures are the engine's own, to the byte."""
    own = [entry for entry in late if entry.row.source == MEASURED]
    if not own:
        return []
    return [
        "## Measured for kvplan",
        "",
        "vLLM 0.33.0 on one H200, every default but FlashInfer, which was not installed (`--flashinfer",
        "absent`); one start has the settings of `examples/plans/rag-llama-3.1-8b-128k-h200.yaml`. The",
        "allocator's record of these starts told what the sampler keeps, what FlashAttention 3 adds",
        "to graphs and what a cold compile copies. Each was predicted before anything was changed",
        f"({first_told(own)}); they are among the fitted rows now.",
        "",
        *table(own),
        "",
    ]


def first_told(held: Sequence[Judged]) -> str:
    """What was predicted when the rows were found: ``first: [low, likely, high]``, GiB."""
    printed = [(entry.row.raw["first"], entry.row.raw["available_kv_gib"]) for entry in held]
    inside = sum(low - 0.005 <= amount <= high + 0.005 for (low, _, high), amount in printed)
    missed = sum(amount < low - 0.005 for (low, _, _), amount in printed)
    return f"then {inside} of {len(printed)} inside, {missed} printed less than the safe figure"


def text(*paths: Path, held_out: Path | None = None) -> str:
    """The whole document; the same reports give the same bytes."""
    rows, left = read_rows(*paths)
    total = len(rows) + len(left)
    named = ", ".join(f"`{path.name}`" for path in paths)
    unseen = read_rows(held_out)[0] if held_out else []
    answers = judged(rows, left)
    late = [entry for entry in answers if is_late(entry.row)]
    told = [entry for entry in judged(rows, {}, told=True) if is_late(entry.row)]
    inner = [entry for entry in answers if is_calibrated(entry.row)]
    older = [entry for entry in answers if not is_calibrated(entry.row) and not is_late(entry.row)]
    wrong = sorted(
        (entry for entry in answers if abs(entry.error) > NEAR or not entry.inside),
        key=lambda entry: -abs(entry.error),
    )
    lines = [
        "# How exact the memory budget is",
        "",
        f"Generated by `make accuracy` from the {total} vLLM rows of {named}:",
        "what servers printed at start-up, collected from public issues, pull requests, repositories and",
        "reports, and what was measured for kvplan.",
        "Predicted is the likely figure of `kvplan size MODEL --engine vllm@VERSION --gpu GPU` with its",
        "settings; printed is the log's `Available KV cache memory`. Weights come from the model cards; of",
        "checkpoints without a card, and of drafts that nobody named, they are the log's. The low end of an",
        "interval is the safe figure: at most 5 % of starts print less. What the lines are made of, and why",
        "published outcomes differ from kvplan's, stands in [outcomes.md](outcomes.md).",
        "",
        "## Where we are wrong",
        "",
        *(
            [
                f"- {entry.row.id} (vLLM {entry.row.version}, {entry.row.model.id}, {entry.row.gpu.slug}):"
                f" {entry.error:+.2f} %" + ("" if entry.inside else ", outside the interval")
                for entry in wrong
            ]
            or ["Nowhere by more than 2 % among these rows."]
        ),
        "",
        "## vLLM 0.20 and later",
        "",
        *summary(late),
        "",
        "Told whether the compile cache was cold or warm, as the log shows (`--compile-cache`):",
        "",
        *summary(told),
        "",
        "By release, class of model and GPUs, the worst first:",
        "",
        *grouped(late, minor, lambda entry: entry.kind, lambda entry: entry.place),
        "",
        *table(late),
        "",
        *measured_lines(late),
        *(held_out_lines(held_out, late) if held_out else ()),
        *cold_warm_lines([row for row in (*rows, *unseen) if is_late(row)]),
        "## vLLM 0.11 to 0.19",
        "",
        *summary(inner),
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
        *summary(older),
        "",
        *(table(older) if older else []),
        "",
        "## SGLang",
        "",
        *served_lines(served("sglang", *paths)),
        "",
        *(held_out_served(held_out) if held_out else ()),
        "## What a fit says of rows that it has not seen",
        "",
        "Up to 0.19 by halves of the models, from 0.20 on by families of rows (one repository or page each).",
        "",
        *(f"- {line.strip()}" for line in report(rows)),
        "",
        "## Rows that are left out",
        "",
        *(f"- {name}: {reason}" for name, reason in sorted(left.items())),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--held-out", type=Path, help="rows that are judged and never fitted")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    options.out.write_bytes(text(*options.reports, held_out=options.held_out).encode())
    print(f"{options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
