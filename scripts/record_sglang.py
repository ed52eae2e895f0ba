"""Record how SGLang 0.5.23 sizes the pools of published configs and cards (tests/engines/sglang_cases.py).

    python -m scripts.record_sglang --python PYTHON_WITH_SGLANG

writes tests/data/sglang.json.gz: case → SGLang's figures, or its refusal (some minutes on one core; only what
is not recorded yet is asked). What is not the planner's answer (a config that wants a file beside it, or
lacks a key that only the class reads) is listed under "left" with SGLang's error.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from typing import Any

from tests.engines.sglang_cases import cases
from tests.recorded import DATA, packed

RECORD = DATA / "sglang.json.gz"
PROGRAM = DATA.parent / "engines" / "sglang_ask.py"
CAPABILITIES = (
    ("h100", "h200", "h20"),
    ("a100", "a100_40"),
    ("l40s", "l4", "rtx4090"),
    ("b200", "gb200"),
    ("b300",),
    ("a10", "rtx3060"),
    ("rtx5090", "pro6000"),
    ("t4",),
    ("thor",),
    ("gb10",),
    ("mi300x",),
    ("mi355x",),
)
NOT_THE_PLANNER = (
    "AttributeError", "KeyError", "custom code", "OSError", "FileNotFoundError", "StrictDataclass",
    "unsupported operand",
    "does not recognize this architecture", "ImportError", "Cannot find 'quant_algo'", "UnboundLocalError",
    "NVFP4 quantization requires", "NotImplementedError", "is not supported for the current GPU",
    "the process died", "Cannot find any of", "object is not iterable", "must have at least one SWA layer",
    "missing 1 required", "process group has not been initialized",
    "Pipeline Parallel is not compatible", "are mutually exclusive", "object is not subscriptable",
    "ValueError: mamba_d_head (",
)  # fmt: skip
"""Words of errors about a config that is shorter than its class wants, or of loading."""


def ask(python: str, asked: list[dict[str, Any]]) -> dict[str, Any]:
    """SGLang's answers by case; one process a compute capability."""
    found: dict[str, Any] = {}
    for gpus in CAPABILITIES:
        listed = [case for case in asked if case["gpu"] in gpus]
        if not listed:
            continue
        lines = "\n".join(json.dumps(case) for case in listed) + "\n"
        command = [python, str(PROGRAM), listed[0]["gpu"]]
        done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for case, answer in zip(listed, answers, strict=True):
            found[case["name"]] = answer
        sys.stderr.write(f"{'+'.join(gpus)}: {len(listed)}\n")
    return found


def is_planned(answer: dict[str, Any]) -> bool:
    """Whether an answer is the planner's, or its class lookup's."""
    return not any(words in answer.get("refused", "") for words in NOT_THE_PLANNER)


def kept() -> dict[str, Any]:
    """What is recorded."""
    if not RECORD.is_file():
        return {}
    stored = json.loads(gzip.decompress(RECORD.read_bytes()))
    return {**stored["answers"], **{name: {"refused": why} for name, why in stored["left"].items()}}


def write(found: dict[str, Any]) -> int:
    """The same answers make the same file. Returns how many are left out."""
    answers = {name: answer for name, answer in sorted(found.items()) if is_planned(answer)}
    left = {name: answer["refused"][:80] for name, answer in sorted(found.items()) if not is_planned(answer)}
    RECORD.write_bytes(packed({"sglang": "0.5.23", "answers": answers, "left": left}))
    return len(left)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has sglang 0.5.23")
    parser.add_argument("--only", default="", help="cases that contain this (printed, not recorded)")
    parser.add_argument("--anew", action="store_true", help="ask again what is recorded")
    options = parser.parse_args()
    known = {} if options.only or options.anew else kept()
    every = list(cases())
    todo = [case for case in every if options.only in case["name"] and case["name"] not in known]
    found = ask(options.python, todo)
    if options.only:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    names = {case["name"] for case in every}
    left = write({name: answer for name, answer in {**known, **found}.items() if name in names})
    sys.stdout.write(f"{len(todo)} asked, {left} left out of {len(names)}: {RECORD.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
