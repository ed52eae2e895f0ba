"""Write the JSON Schemas of what kvplan prints and reads. ``--check`` only says which are stale (exit 1)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def schemas() -> dict[str, dict[str, Any]]:
    """Path in the repository → schema."""
    from kvplan.files.cards.find import card_json_schema
    from kvplan.files.gpus.schema import gpu_spec_schema
    from kvplan.files.plans.fleet import fleet_schema
    from kvplan.files.plans.receipts import receipt_schema
    from kvplan.files.plans.schema import plan_schema
    from kvplan.report.schema import (
        comparison_schema,
        fits_schema,
        quality_schema,
        simulation_schema,
        size_schema,
    )

    return {
        "schemas/size.schema.json": size_schema(),
        "schemas/compare.schema.json": comparison_schema(),
        "schemas/simulate.schema.json": simulation_schema(),
        "schemas/fits.schema.json": fits_schema(),
        "schemas/quality.schema.json": quality_schema(),
        "schemas/gpu.schema.json": gpu_spec_schema(),
        "schemas/plan.schema.json": plan_schema(),
        "schemas/fleet.schema.json": fleet_schema(),
        "schemas/receipt.schema.json": receipt_schema(),
        "model_cards/card.schema.json": card_json_schema(),
    }


def main(arguments: Sequence[str] = ()) -> int:
    """Write what differs from the models; with --check report it instead."""
    stale = []
    for name, schema in schemas().items():
        path = ROOT / name
        committed = path.read_text(encoding="utf-8") if path.exists() else ""
        if not committed or json.loads(committed) != schema:
            stale.append(name)
            if "--check" not in arguments:
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8", newline="\n")
    for name in stale:
        print(f"{name} {'is stale' if '--check' in arguments else 'written'}")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
