"""Fit the constants of a speed estimate to half of the published measurements.

    python -m scripts.speed_fit [--write]

Every second model by name is fitted, the others are left for scripts.speed_accuracy to judge. The loss is
the weighted mean of |ln(measured / estimated)|; a model on a GPU under an engine weighs as the square root
of its number of rows. Coordinate descent with multiplicative steps: the same rows give the same file.
Intervals are tolerance intervals of measured / estimated over the fitted half, each model estimated
without itself: nine models in ten, with 95 % confidence.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter

from kvplan.assumption import Assumption, Assumptions
from kvplan.files.speed import FILE, speed_assumptions
from kvplan.files.yaml.strict import load_yaml_file
from scripts.speed_rows import Row, is_fitted, models_of, ratio, read_rows
from scripts.speed_schema import table_errors

STEPS = (1.3, 1.1, 1.03)
FOLD_STEPS = (1.2, 1.05)
ROUNDS = 6
FOLDS = 6
Z95 = 1.6449
LOWEST_SHARE = 0.2
HIGHEST = {"memory_efficiency": 0.9, "cache_efficiency": 0.9, "compute_efficiency": 0.75}
"""What kernels reach at best: STREAM-like copies, and large matrix products or FlashAttention-3."""
DIGITS = 3
_LINE = re.compile(r"^(  (?P<name>\S+): \{value: )(?P<value>\S+?)(?=, unit)")


def fitted_names(table: Assumptions) -> list[str]:
    """What the rows decide; intervals come last and by another rule."""
    return [
        name
        for name, entry in table.by_name.items()
        if entry.source.startswith("fitted") and not name.startswith("spread.")
    ]


def weights(rows: list[Row]) -> list[float]:
    """1 / √(rows of the same model, GPU and engine)."""
    keys = [(row.model, row.raw["gpu"], row.raw["engine"]) for row in rows]
    counts = Counter(keys)
    return [1 / math.sqrt(counts[key]) for key in keys]


def loss(rows: list[Row], shares: list[float], table: Assumptions) -> float:
    """Weighted mean of |ln ratio|."""
    total = sum(share * abs(math.log(ratio(row, table))) for row, share in zip(rows, shares, strict=True))
    return total / sum(shares)


def with_value(table: Assumptions, name: str, value: float) -> Assumptions:
    """The table with one other value, rounded as the file has it."""
    old = table[name]
    if old.unit == "share":
        value = min(HIGHEST.get(name.split(".")[0], 1.0), max(LOWEST_SHARE, value))
    rounded = float(f"{value:.{DIGITS}g}")
    return Assumptions({**table.by_name, name: Assumption(name, rounded, old.unit, old.source)})


def fit(rows: list[Row], table: Assumptions, sizes: tuple[float, ...] = STEPS) -> Assumptions:
    """Coordinate descent from the table's own values."""
    shares = weights(rows)
    best = loss(rows, shares, table)
    names = fitted_names(table)
    for size in sizes:
        for _ in range(ROUNDS):
            before = best
            for name in names:
                for factor in (size, 1 / size):
                    tried = with_value(table, name, table[name].value * factor)
                    found = loss(rows, shares, tried)
                    if found < best - 1e-6:
                        table, best = tried, found
                        break
            print(f"step {size:g}: mean |ln ratio| {best:.4f}", flush=True)
            if before - best < 1e-4:
                break
    return table


def tolerance_factor(count: int) -> float:
    """Standard deviations on both sides of a mean of ``count`` values that hold nine in ten of a normal
    population with 95 % confidence (Howe 1969): z(0.95) · √(1 + 1 / n) · √((n − 1) / χ²(0.05; n − 1)), with
    χ² by Wilson and Hilferty."""
    free = count - 1
    chi_square = free * (1 - 2 / (9 * free) - Z95 * math.sqrt(2 / (9 * free))) ** 3
    return Z95 * math.sqrt(1 + 1 / count) * math.sqrt(free / chi_square)


def spreads(rows: list[Row], table: Assumptions) -> dict[str, float]:
    """Tolerance intervals of measured / estimated, from models that had no part in the fit.

    The models are dealt into folds; each fold is estimated with constants fitted to the others. Rows of a
    model are not independent: each model counts once, its rows share its weight.
    """
    models = models_of(rows)
    outside: dict[str, dict[str, list[float]]] = {"decode": {}, "prefill": {}}
    for fold in range(FOLDS):
        held = set(models[fold::FOLDS])
        print(f"fold {fold + 1} of {FOLDS}: without {', '.join(sorted(held))}", flush=True)
        without = fit([row for row in rows if row.model not in held], table, FOLD_STEPS)
        for row in rows:
            if row.model in held:
                found = outside[row.phase].setdefault(row.model, [])
                found.append(math.log(ratio(row, without)))
    spread: dict[str, float] = {}
    for phase, by_model in outside.items():
        count = len(by_model)
        mean = sum(sum(values) / len(values) for values in by_model.values()) / count
        square = sum(
            sum((value - mean) ** 2 for value in values) / len(values) for values in by_model.values()
        )
        reach = tolerance_factor(count) * math.sqrt(square / (count - 1))
        spread[f"spread.{phase}.low"] = math.exp(mean - reach)
        spread[f"spread.{phase}.high"] = math.exp(mean + reach)
    return spread


def written(text: str, table: Assumptions) -> str:
    """The file with the table's values in the places of its own."""
    lines = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and table[match["name"]].source.startswith("fitted"):
            line = f"{match[1]}{_plain(table[match['name']].value)}{line[match.end() :]}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _plain(value: float) -> str:
    text = f"{value:.{DIGITS}g}"
    return f"{value:.9f}".rstrip("0") if "e" in text else text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    arguments = parser.parse_args()
    rows = read_rows()
    models = models_of(rows)
    half = [row for row in rows if is_fitted(row, models)]
    table = fit(half, speed_assumptions())
    for name, value in spreads(half, table).items():
        table = with_value(table, name, value)
    for name in [*fitted_names(table), *(name for name in table.by_name if name.startswith("spread."))]:
        print(f"{name} = {_plain(table[name].value)}")
    if arguments.write:
        FILE.write_text(written(FILE.read_text(encoding="utf-8"), table), encoding="utf-8")
        for error in table_errors(load_yaml_file(FILE)):
            print(error.format())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
