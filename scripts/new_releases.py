"""Are there releases of the engines, and of Dynamo, that kvplan does not know?

    python -m scripts.new_releases [--issue FOLDER]

Asks the package index through pip. Exit code 1: an engine's newest release is newer than the newest whose
rules were read; 3: the index did not answer for an engine. llama.cpp has no package of its own there.
``--issue FOLDER`` writes ``title.txt`` and ``body.md`` of an issue about the unknown ones, for
``.github/workflows/releases.yml``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from kvplan.engines import ENGINES, dynamo
from kvplan.engines.base import parse_version

PACKAGES = {
    "transformers": "transformers",
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "tensorrt-llm",
    "mlx": "mlx-lm",
    "dynamo": "ai-dynamo",
}
UNKNOWN, UNANSWERED = 1, 3
STEPS = """CONTRIBUTING.md, *Add a release*, says what to do: the number in the engine's `versions.py`, one
more step of each rule that changed, and the engine asked again (`make engines`, `make conformance`). Of
Dynamo a row of `engines/data/dynamo_releases.tsv`: what its package requires of its extras.
"""


def newest_known(name: str) -> str:
    """The newest release whose rules were read, of an engine or of Dynamo."""
    return dynamo.releases()[0][0] if name == "dynamo" else ENGINES[name].versions[-1]


def newest(printed: str, package: str) -> str:
    """The release in the first line of ``pip index versions``. Raises ValueError where there is none."""
    match = re.match(rf"{re.escape(package)} \((\d[^)]*)\)", printed)
    if match is None:
        raise ValueError(f"pip named no release of {package}")
    return match[1]


def is_unknown(found: str, known: str) -> bool:
    """Whether ``found`` is of a later release than ``known``, to as many parts as that is stated with."""
    stated = parse_version(known)
    return parse_version(found)[: len(stated)] > stated


def issue_of(unknown: dict[str, str]) -> tuple[str, str]:
    """(title, text) of an issue about the unknown releases, by engine. Equal ones have an equal title."""
    named = ", ".join(f"{engine} {release}" for engine, release in sorted(unknown.items()))
    rows = "".join(
        f"| {engine} | {release} | {newest_known(engine)} |\n" for engine, release in sorted(unknown.items())
    )
    table = f"| engine | newest on the index | newest whose rules were read |\n| --- | --- | --- |\n{rows}"
    return f"Releases that kvplan does not know: {named}", f"{table}\n{STEPS}"


def asked(package: str) -> str:
    """The newest release on the index. Raises ValueError where pip does not answer."""
    words = [sys.executable, "-m", "pip", "index", "versions", package]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"pip: {done.stderr.strip()[-200:] or done.returncode}")
    return newest(done.stdout, package)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--issue", type=Path, metavar="FOLDER")
    folder = parser.parse_args().issue
    unknown: dict[str, str] = {}
    silent = 0
    for engine, package in PACKAGES.items():
        known = newest_known(engine)
        try:
            found = asked(package)
        except ValueError as error:
            silent += 1
            print(f"{engine:14}{'?':14}{error}")
            continue
        if is_unknown(found, known):
            parts = len(parse_version(known))  # a patch release of an unknown one is no news
            unknown[engine] = ".".join(found.split(".")[:parts])
        state = f"NOT KNOWN: the newest known is {known}" if engine in unknown else "known"
        print(f"{engine:14}{found:14}{state}")
    if unknown and folder is not None:
        title, body = issue_of(unknown)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "title.txt").write_text(title, encoding="utf-8")
        (folder / "body.md").write_text(body, encoding="utf-8")
    return UNKNOWN if unknown else UNANSWERED if silent else 0


if __name__ == "__main__":
    raise SystemExit(main())
