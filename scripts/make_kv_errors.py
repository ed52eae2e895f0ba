"""Measure every KV format on random numbers for docs/quality.md: scripts/kv_errors.json (needs torch).

python -m scripts.make_kv_errors --write      on the CPU, a few seconds
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from kvplan.dtypes import KV_DTYPES
from kvplan.proof.numerics.drawn import DESCRIPTIONS, Shape, draw
from kvplan.proof.numerics.measure import errors

FILE = Path(__file__).parent / "kv_errors.json"
HEADS, LATENT = "heads", "latent"
SHAPES = {HEADS: Shape("heads of 128", 2, 8, 128, 128), LATENT: Shape("MLA", 1, 8, 512, 512, 64)}
PLAIN = ("float32", "bfloat16", "float16")
TOKENS, QUERIES, SEED = 1024, 64, 0


def kv_errors() -> dict[str, dict[str, list[float]]]:
    """Heads or latent → format → error of attention's output in percent: normal, outlier channels."""
    found: dict[str, dict[str, list[float]]] = json.loads(FILE.read_text(encoding="utf-8"))["errors"]
    return found


def measured(only: frozenset[str] = frozenset()) -> dict[str, dict[str, list[float]]]:
    """Percent to two significant digits, of all formats or of some."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, shape in SHAPES.items():
        forms = [
            form
            for form in KV_DTYPES.values()
            if form.name not in PLAIN and (shape.is_latent or not form.only_mla)
            if not only or form.name in only
        ]
        columns = [
            errors(draw(shape, inputs, TOKENS, QUERIES, SEED, "cpu"), forms, calibrated=False)
            for inputs in DESCRIPTIONS
        ]
        found[name] = {
            form.name: [float(f"{100 * column[place].output:.2g}") for column in columns]
            for place, form in enumerate(forms)
        }
    return found


def main() -> None:
    """Print what was measured, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"to {FILE.name}")
    given = parser.parse_args()
    whole: dict[str, Any] = {
        "what": "error of attention's output in percent (root mean square, relative): "
        + "; ".join(f"{name}: {said}" for name, said in DESCRIPTIONS.items()),
        "sample": {"tokens": TOKENS, "queries": QUERIES, "seed": SEED},
        "errors": measured(),
    }
    text = json.dumps(whole, indent=1) + "\n"
    if given.write:
        FILE.write_text(text, encoding="utf-8", newline="\n")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
