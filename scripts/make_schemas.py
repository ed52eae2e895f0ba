"""Write the JSON Schemas of what kvplan prints and reads. ``--check`` only says which are stale (exit 1)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CARD = "card"


def schemas() -> dict[str, dict[str, Any]]:
    """Path in the repository → schema."""
    from kvplan.cli.schema import names, schema_named

    shown = {f"schemas/{name}.schema.json": schema_named(name) for name in names() if name != CARD}
    return {**shown, "model_cards/card.schema.json": schema_named(CARD)}


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
