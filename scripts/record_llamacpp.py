"""Record what llama.cpp 0.5.0 reserves for published configs (tests/engines/llamacpp_cases.py).

    python -m scripts.record_llamacpp --python PYTHON_WITH_LLAMA_CPP [--converter LLAMA_CPP --pinned FOLDER]

writes tests/data/llamacpp.json.gz: case → the caches and the compute buffer that llama.cpp printed (4 minutes
on one core). With --converter the keys of the files are made anew by the converter in that folder: the source
archive of llama-cpp-python 0.3.36 has it as vendor/llama.cpp. It pins transformers 4.57.6 (``pip install
--target FOLDER``), which is asked first; where that does not know a config, this interpreter's is.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from typing import Any

from tests.engines.llamacpp_cases import cases, configs
from tests.recorded import DATA, packed

RECORD = DATA / "llamacpp.json.gz"
FOLDER = DATA.parent / "engines"
NO_CLASS = "not supported!"
MISREAD = "nemotron_h_moe"
"""What transformers 5 adds to a dense Nemotron-H makes the converter take it for this."""


def _lines(command: list[str], asked: list[dict[str, Any]], **environment: str) -> list[dict[str, Any]]:
    text = "\n".join(json.dumps(one) for one in asked) + "\n"
    done = subprocess.run(
        command,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def converted(converter: str, pinned: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Keys of every model that the converter takes, and why it does not take the others."""
    command = [sys.executable, str(FOLDER / "llamacpp_keys.py"), converter]
    asked = [{"name": name, "config": config} for name, config in configs()]
    found = {answer["name"]: answer for answer in _lines(command, asked, PYTHONPATH=pinned)}
    again = [one for one in asked if NO_CLASS not in found[one["name"]].get("refused", NO_CLASS)]
    dense = {one["name"] for one in again if "n_routed_experts" not in one["config"]}
    for answer in _lines(command, again):
        if answer["name"] not in dense or answer.get("keys", {}).get("general.architecture") != MISREAD:
            found[answer["name"]] = answer
    keys = {name: answer["keys"] for name, answer in found.items() if "keys" in answer}
    refused = {name: answer["refused"][:90] for name, answer in found.items() if "refused" in answer}
    return keys, refused


def ask(python: str, asked: list[dict[str, Any]]) -> dict[str, Any]:
    """llama.cpp's answers by case."""
    answers = _lines([python, str(FOLDER / "llamacpp_ask.py")], asked)
    return {answer.pop("name"): answer for answer in answers}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", required=True, help="an interpreter that has llama-cpp-python 0.3.36")
    parser.add_argument("--converter", help="the folder of llama.cpp's source: keys are made anew")
    parser.add_argument("--pinned", default="", help="the folder of the transformers that it pins")
    options = parser.parse_args()
    kept = json.loads(gzip.decompress(RECORD.read_bytes())) if RECORD.is_file() else {}
    keys, refused = kept.get("keys", {}), kept.get("refused", {})
    if options.converter:
        keys, refused = converted(options.converter, options.pinned)
    answers = ask(options.python, list(cases(keys)))
    record = {"llama-cpp-python": "0.3.36", "keys": keys, "refused": refused, "answers": answers}
    RECORD.write_bytes(packed(record))
    sys.stdout.write(f"{len(answers)} answers of {len(keys)} models, {len(refused)} refused: {RECORD.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
