"""Regenerate what is generated and needs no outside input: indexes, schemas, documentation figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS = (
    ("scripts.make_gpu_specs", "--index-only"),
    ("scripts.make_cards", "--index"),
    ("scripts.make_schemas",),
    ("scripts.speed_accuracy", "--write"),
    ("scripts.make_docs",),
    ("scripts.make_api",),
    ("scripts.make_notebook",),
)


def main() -> int:
    """Run each step; the first failure ends the run with its exit code."""
    for step in STEPS:
        print("·", " ".join(step), flush=True)
        done = subprocess.run([sys.executable, "-m", *step], cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
