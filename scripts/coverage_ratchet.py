"""Coverage of the core by lines and branches, room by room: it may rise, never fall.

    python -m coverage run -m pytest …    then
    python -m scripts.coverage_ratchet           fails where a room has fallen below tests/coverage.json
    python -m scripts.coverage_ratchet --write   what was reached is the least from now on

The aim is 100 % in every room. Figures are hundredths of a per cent, rounded down: covered lines and branches
over all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LEAST = ROOT / "tests" / "coverage.json"
ROOMS = ("terms", "units", "dtypes", "families", "engines")


def room_of(path: str) -> str:
    """``kvplan/engines/vllm/cache_layout/plan.py`` → engines; ``kvplan/terms.py`` → terms."""
    parts = Path(path).with_suffix("").parts
    return parts[parts.index("kvplan") + 1]


def reached(report: Mapping[str, Any]) -> dict[str, int]:
    """Room → hundredths of a per cent, of a report of ``coverage json``."""
    covered, wanted = dict.fromkeys(ROOMS, 0), dict.fromkeys(ROOMS, 0)
    for path, entry in report["files"].items():
        room, summary = room_of(path.replace("\\", "/")), entry["summary"]
        if room in covered:
            covered[room] += summary["covered_lines"] + summary["covered_branches"]
            wanted[room] += summary["num_statements"] + summary["num_branches"]
    return {room: 10_000 * covered[room] // wanted[room] for room in ROOMS if wanted[room]}


def fallen(found: Mapping[str, int], least: Mapping[str, int]) -> list[str]:
    """A line for each room that is below its least, or was not measured."""
    return [
        f"{room}: {_percent(found.get(room, 0))}, was {_percent(bound)}"
        for room, bound in least.items()
        if found.get(room, 0) < bound
    ]


def _percent(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    words = [sys.executable, "-m", "coverage", "json", "-q", "-o", "-"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    found = reached(json.loads(done.stdout))
    for room, share in found.items():
        print(f"{room:10}{_percent(share):>10}")
    if options.write:
        LEAST.write_bytes((json.dumps(found, indent=2) + "\n").encode())
        return 0
    lower = fallen(found, json.loads(LEAST.read_text(encoding="utf-8")))
    for line in lower:
        print(f"fell: {line}", file=sys.stderr)
    return int(bool(lower))


if __name__ == "__main__":
    raise SystemExit(main())
