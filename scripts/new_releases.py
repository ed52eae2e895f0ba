"""Are there releases of the engines that kvplan does not know?

    python -m scripts.new_releases

Asks the package index through pip and exits 1 where an engine's newest minor release is newer than the newest
whose rules were read. llama.cpp has no package of its own there.
"""

from __future__ import annotations

import re
import subprocess
import sys

from kvplan.engines import ENGINES
from kvplan.engines.base import parse_version

PACKAGES = {"transformers": "transformers", "vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}


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


def main() -> int:
    unknown = 0
    for engine, package in PACKAGES.items():
        words = [sys.executable, "-m", "pip", "index", "versions", package]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        found, known = newest(done.stdout, package), ENGINES[engine].versions[-1]
        late = is_unknown(found, known)
        unknown += late
        print(f"{engine:14}{found:14}{'NOT KNOWN: the newest known is ' + known if late else 'known'}")
    return int(unknown > 0)


if __name__ == "__main__":
    raise SystemExit(main())
