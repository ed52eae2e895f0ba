"""Predicted pools beside what servers printed: writes docs/accuracy.md.

    python -m scripts.accuracy FIELD_REPORTS [--out docs/accuracy.md]

Every row that states model, GPU, tensor parallel size and a release is listed, the wrong ones first of all.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kvplan.engines.vllm.coefficients import parts
from kvplan.errors import KvplanError
from kvplan.results import SizeResult
from kvplan.units import GIB, gib
from scripts.field_rows import Row, read_rows
from scripts.fit_budget import report, usable

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "accuracy.md"
FIRST, LAST = (0, 11), (0, 20)
"""Releases [first, last) that are calibrated."""


class Judged(NamedTuple):
    """One row with kvplan's answer to it."""

    row: Row
    result: SizeResult
    predicted: int
    printed: int

    @property
    def error(self) -> float:
        """Per cent of the printed pool."""
        return 100 * (self.predicted - self.printed) / self.printed

    @property
    def inside(self) -> bool:
        """Whether the interval has the printed figure (two decimals of a GiB)."""
        budget = self.result.budget
        assert budget is not None
        half = GIB // 200
        return budget.kv_pool_low_bytes - half <= self.printed <= budget.kv_pool_high_bytes + half


def judged(rows: Sequence[Row], left: dict[str, str]) -> list[Judged]:
    """Rows with a printed pool; `left` gets a reason for each that kvplan cannot answer."""
    found = []
    for row in rows:
        printed = row.printed("available_kv_gib")
        if row.version is None:
            left[row.id] = f"no release is stated ({row.raw['engine_version'] or 'nothing'})"
        elif printed is None or printed <= 0:
            left[row.id] = "no pool was printed"
        elif (row.raw["flags"] or {}).get("gpu_memory_utilization") is None:
            left[row.id] = "the utilisation is not stated"
        elif "fixed" in " ".join(row.raw["flags"].get("other") or ()):
            left[row.id] = "the pool was set by hand"
        else:
            try:
                result = row.predict()
            except KvplanError as error:
                left[row.id] = error.message
                continue
            if result.budget is None:
                left[row.id] = (*result.warnings, result.refusal.message if result.refusal else "")[-1][:160]
            else:
                found.append(Judged(row, result, result.budget.kv_pool_bytes, printed))
    return found


def is_calibrated(row: Row) -> bool:
    return row.version is not None and FIRST <= parts(row.version)[:2] < LAST


def summary(rows: Sequence[Judged]) -> list[str]:
    """How many are within 2 % and 5 %, and the worst."""
    if not rows:
        return ["No rows."]
    errors = sorted(abs(row.error) for row in rows)
    near, close = (sum(error <= limit for error in errors) for limit in (2, 5))
    inside = sum(row.inside for row in rows)
    return [
        f"- {len(rows)} rows; {near} within 2 %, {close} within 5 % of the printed pool",
        f"- median error {errors[len(errors) // 2]:.2f} %, largest {errors[-1]:.2f} %",
        f"- the interval holds the printed pool in {inside} of {len(rows)}",
    ]


def table(rows: Sequence[Judged]) -> list[str]:
    lines = [
        "| row | vLLM | model | GPU | predicted | printed | error | interval |",
        "|---|---|---|---|--:|--:|--:|---|",
    ]
    for entry in rows:
        row, budget = entry.row, entry.result.budget
        assert budget is not None
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


def text(*paths: Path) -> str:
    """The whole document; the same reports give the same bytes."""
    rows, left = read_rows(*paths)
    total = len(rows) + len(left)
    named = " and ".join(f"`{path.name}`" for path in paths)
    answers = judged(rows, left)
    inner = [entry for entry in answers if is_calibrated(entry.row)]
    later = [entry for entry in answers if not is_calibrated(entry.row)]
    wrong = sorted((entry for entry in inner if abs(entry.error) > 2), key=lambda entry: -abs(entry.error))
    lines = [
        "# How exact the memory budget is",
        "",
        f"Generated by `make accuracy` from the {total} vLLM rows of {named}: what servers",
        "printed at start-up, collected from public issues, pull requests and reports. Predicted is the",
        "likely figure of `kvplan size MODEL --engine vllm@VERSION --gpu GPU` with the row's settings;",
        "printed is the log's `Available KV cache memory`. Weights come from the model cards.",
        "",
        "## vLLM 0.11 to 0.19 (calibrated)",
        "",
        *summary(inner),
        "",
        *table(inner),
        "",
        "### Where we are more than 2 % wrong",
        "",
        *([f"- {entry.row.id}: {entry.error:+.2f} %" for entry in wrong] or ["Nowhere among these rows."]),
        "",
        "### Line by line",
        "",
        "Weights include the tables of rotary angles, as the log's figure does.",
        "",
        *parts_table(rows),
        "",
        "### Fitted on one half of the models, tested on the other",
        "",
        *(f"- {line.strip()}" for line in report(usable(rows))),
        "",
        "## Other releases (uncalibrated)",
        "",
        *summary(later),
        "",
        *(table(later) if later else []),
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
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    options.out.write_bytes(text(*options.reports).encode())
    print(f"{options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
