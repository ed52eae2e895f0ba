"""Fit the constants of a speed estimate to half of the published measurements.

    python -m scripts.speed_fit [--write]

Figures of steps (speed_rows.yaml) and of whole servers (serving_rows.yaml, by their recorded steps).
Every second family of models by name is fitted, the others are left for scripts.speed_accuracy and
scripts.serving_accuracy to judge. The loss is the weighted mean of |ln(measured / estimated)|; a model on
a GPU under an engine weighs as the square root of its number of figures. Coordinate descent with
multiplicative steps: the same rows give the same file. Intervals are quantiles of measured / estimated
over the fitted half, each family estimated without itself.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kvplan.assumption import Assumption, Assumptions
from kvplan.files.speed import FILE, speed_assumptions
from kvplan.files.yaml.strict import load_yaml_file
from scripts.served_steps import Run, figures_of, recorded
from scripts.served_steps import profile_of as run_profile
from scripts.serving_rows import read_rows as served_rows
from scripts.speed_rows import Row, family_of, is_fitted, profile_of, ratio, read_rows
from scripts.speed_schema import table_errors

STEPS = (1.3, 1.1, 1.03)
FOLD_STEPS = (1.15,)
ROUNDS = 6
FOLDS = 5
LOWEST_SHARE = 0.05
HIGHEST = {
    "memory_efficiency": 0.9,
    "cache_efficiency": 0.9,
    "compute_efficiency": 0.75,
    "expert_compute_efficiency": 0.75,
    "expert_padding": 64.0,
    "expert_narrow": 600.0,
}
"""What kernels reach at best: STREAM-like copies, and large matrix products or FlashAttention-3."""
DIGITS = 3
ENOUGH = 8
"""Figures of a class from which it has an interval of its own."""
FAMILIES = 3
TAIL = 0.05
LEAST = 1.65
_SPREAD = re.compile(r"spread\.(decode|prefill)\.")
_LINE = re.compile(r"^(  (?P<name>\S+): \{value: )(?P<value>\S+?)(?=, unit)")


def fitted_names(table: Assumptions) -> list[str]:
    """What the rows decide; intervals come last and by another rule."""
    return [
        name
        for name, entry in table.by_name.items()
        if entry.source.startswith("fitted") and not name.startswith("spread.")
    ]


class Rows(NamedTuple):
    """What is fitted to: figures of steps, and of whole served runs by their recorded steps."""

    steps: list[Row]
    runs: list[Run]

    def of(self, keep: Callable[[str], bool]) -> Rows:
        return Rows(
            [row for row in self.steps if keep(row.model)], [run for run in self.runs if keep(run.model)]
        )

    def of_families(self, families: set[str]) -> Rows:
        return self.of(lambda model: family_of(model) in families)


class Residual(NamedTuple):
    """ln(measured time / estimated time). group: what moves together; share: how much the figure says."""

    group: tuple[str, ...]
    phase: str
    model: str
    classes: tuple[str, ...]
    share: float
    value: float


_RUN_SHARES = {"output_tps": 1.0, "tpot_ms": 1.0, "ttft_ms": 0.5}
CHAT_TPOT = 0.3
"""Of a mean over answers of very unequal length: it hangs on the shortest ones."""


def residuals(rows: Rows, table: Assumptions) -> list[Residual]:
    found = []
    for row in rows.steps:
        group = (row.model, str(row.raw["gpu"]), str(row.raw["engine"]))
        classes = profile_of(row, table).classes
        found.append(Residual(group, row.phase, row.model, classes, 1.0, math.log(ratio(row, table))))
    for run in rows.runs:
        values, classes = figures_of(run, table), run_profile(run, table).classes
        for name, measured in run.row.figures.items():
            if name not in values:
                continue
            share = _RUN_SHARES[name]
            if name == "tpot_ms" and "lengths" in run.row.load:
                share *= CHAT_TPOT
            value = math.log(measured / values[name]) * (-1 if name == "output_tps" else 1)
            figures = (run.model, str(run.row.raw["gpu"]), run.engine, name)
            phase = "decode" if name == "tpot_ms" else "prefill"
            found.append(Residual(figures, phase, run.model, classes, share, value))
    return found


def loss(rows: Rows, table: Assumptions) -> float:
    """Weighted mean of |ln ratio|: each figure by its share / √(figures of its group)."""
    every = residuals(rows, table)
    counts = Counter(one.group for one in every)
    weights = [one.share / math.sqrt(counts[one.group]) for one in every]
    total = sum(weight * abs(one.value) for weight, one in zip(weights, every, strict=True))
    return total / sum(weights)


def with_value(table: Assumptions, name: str, value: float) -> Assumptions:
    """The table with one other value, rounded as the file has it."""
    old = table[name]
    if old.unit == "share":
        value = min(HIGHEST.get(name.split(".")[0], 1.0), max(LOWEST_SHARE, value))
    if old.unit == "tokens":
        value = min(HIGHEST[name.split(".")[0]], value)
    rounded = float(f"{value:.{DIGITS}g}")
    made = {**table.by_name, name: Assumption(name, rounded, old.unit, old.source)}
    for other, one in table.by_name.items():  # what has no rows follows: ``as vllm; …``, or a whole name
        if one.source.startswith("as "):
            followed = one.source[3:].split(";")[0]
            if name in (followed, f"{other.rpartition('.')[0]}.{followed}"):
                made[other] = Assumption(other, rounded, one.unit, one.source)
    return Assumptions(made)


def fit(
    rows: Rows, table: Assumptions, sizes: tuple[float, ...] = STEPS, rounds: int = ROUNDS
) -> Assumptions:
    """Coordinate descent from the table's own values."""
    best = loss(rows, table)
    names = fitted_names(table)
    for size in sizes:
        for _ in range(rounds):
            before = best
            for name in names:
                for factor in (size, 1 / size):
                    tried = with_value(table, name, table[name].value * factor)
                    found = best if tried[name].value == table[name].value else loss(rows, tried)
                    if found < best - 1e-6:
                        table, best = tried, found
                        break
            print(f"step {size:g}: mean |ln ratio| {best:.4f}", flush=True)
            if before - best < 5e-4:
                break
    return table


def spreads(rows: Rows, table: Assumptions) -> dict[str, float]:
    """Intervals of measured / estimated, from families that had no part in the fit.

    The families are dealt into folds; each is estimated with constants fitted to the others. A class of
    which there are at least `ENOUGH` figures of a phase has its own interval, the others have that of the
    wider class.
    """
    models = [*(row.model for row in rows.steps), *(run.model for run in rows.runs)]
    families = sorted({family_of(model) for model in models})
    outside: list[Residual] = []
    for fold in range(FOLDS):
        held = set(families[fold::FOLDS])
        print(f"fold {fold + 1} of {FOLDS}: without {', '.join(sorted(held))}", flush=True)
        without = fit(rows.of_families(set(families) - held), table, FOLD_STEPS, 1)
        outside += residuals(rows.of_families(held), without)
    spread: dict[str, float] = {}
    for phase in ("decode", "prefill"):
        found = [one for one in outside if one.phase == phase and one.share > CHAT_TPOT]
        for name in ["", *sorted({name for one in found for name in one.classes})]:
            values = [one for one in found if name in ("", *one.classes)]
            if name and (len(values) < ENOUGH or len({family_of(one.model) for one in values}) < FAMILIES):
                continue
            low, high = interval(values)
            own = f".{name}" if name else ""
            spread[f"spread.{phase}{own}.low"], spread[f"spread.{phase}{own}.high"] = low, high
    return spread


def interval(values: list[Residual]) -> tuple[float, float]:
    """Nine figures in ten of these, groups weighing alike, as weighted quantiles of 5 and 95 %,
    and never without what lies within `LEAST` of the estimate: families are few."""
    counts = Counter(one.group for one in values)
    ordered = sorted((one.value, one.share / math.sqrt(counts[one.group])) for one in values)
    whole = sum(weight for _, weight in ordered)
    ends = []
    for share in (TAIL, 1 - TAIL):
        passed = 0.0
        for value, weight in ordered:
            passed += weight
            if passed >= share * whole:
                ends.append(value)
                break
    return min(math.exp(ends[0]), 1 / LEAST), max(math.exp(ends[1]), LEAST)


def written(text: str, table: Assumptions) -> str:
    """The file with the table's values in the places of its own; intervals stand together at the end."""
    lines = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and _SPREAD.match(match["name"]):
            continue
        if match and table[match["name"]].source.startswith(("fitted", "as ")):
            line = f"{match[1]}{_plain(table[match['name']].value)}{line[match.end() :]}"
        lines.append(line)
    for name, one in table.by_name.items():
        if _SPREAD.match(name):
            lines.append(
                f'  {name}: {{value: {_plain(one.value)}, unit: {one.unit}, source: "{one.source}"}}'
            )
    return "\n".join(lines) + "\n"


def _plain(value: float) -> str:
    text = f"{value:.{DIGITS}g}"
    return f"{value:.9f}".rstrip("0") if "e" in text else text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    arguments = parser.parse_args()
    runs = [recorded(row) for row in served_rows() if is_fitted(row.raw)]
    half = Rows([row for row in read_rows() if is_fitted(row.raw)], [run for run in runs if run is not None])
    table = fit(half, speed_assumptions())
    found = spreads(half, table)
    plain = {name: one for name, one in table.by_name.items() if not _SPREAD.match(name)}
    source = "fitted to published measurements (docs/speed.md)"
    plain |= {
        name: Assumption(name, float(f"{value:.{DIGITS}g}"), "ratio", source) for name, value in found.items()
    }
    table = Assumptions(plain)
    for name in [*fitted_names(table), *found]:
        print(f"{name} = {_plain(table[name].value)}")
    if arguments.write:
        FILE.write_text(written(FILE.read_text(encoding="utf-8"), table), encoding="utf-8")
        for error in table_errors(load_yaml_file(FILE)):
            print(error.format())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
