"""Ask a release of SGLang how its planner sizes the pools of published configs, and compare it with kvplan.

    make engines RELEASE=sglang@0.5.12
    python -m scripts.sglang_releases sglang@0.5.12 --python PYTHON_WITH_SGLANG [--record]

The release's wheel is fetched from the package index, unpacked, and put before the environment of 0.5.23 with
the transformers of its time. Prints what differs, and exits with 1 where something does that has no reason in
tests/engines/sglang_release_compare.py; --record writes tests/data/sglang_releases.json.gz.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from kvplan.engines.base import parse_version
from scripts.new_releases import newest
from scripts.record_sglang import CAPABILITIES, PROGRAM, is_planned
from scripts.vllm_releases import PIP
from tests.engines.sglang_release_cases import release_cases
from tests.engines.sglang_release_compare import places, unexplained
from tests.recorded import packed, record

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "data" / "sglang_releases.json.gz"
BESIDE: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...] = (
    ((4, 56), ("huggingface_hub==0.34.4", "tokenizers==0.21.4")),
    ((4, 57), ("huggingface_hub==0.34.4", "tokenizers==0.22.2")),
    ((5,), ("huggingface_hub==0.36.0", "tokenizers==0.22.2")),
    ((5, 13), ("huggingface_hub==1.8.0", "tokenizers==0.22.2")),
)
"""(until this transformers, packages it goes with); later ones go with those of the environment."""
OLDEST = "4.53.3"
"""0.4.6 to 0.4.8 pin 4.51.1 and 4.52.3, which today's compressed-tensors does not go with."""
FRACTIONS_UNTIL = (0, 5, 24)
"""From there on the answer says that the fraction follows 0.5.23's rules."""
Entry = dict[str, Any]


def named(release: str) -> str:
    """``sglang@0.5.12``, ``0.5.12`` → ``0.5.12``; of ``sglang`` and ``sglang@`` the newest."""
    version = release.rpartition("@")[2]
    if version not in ("", "sglang"):
        return version
    done = subprocess.run([*PIP, "index", "versions", "sglang"], capture_output=True, text=True, check=True)
    return newest(done.stdout, "sglang")


def folders(release: str, root: Path) -> list[Path]:
    """The unpacked release and the packages beside it. Raises SystemExit where the index has no such one."""
    own = root / f"sglang-{release}"
    if not own.is_dir():
        with tempfile.TemporaryDirectory() as place:
            words = [*PIP, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", place]
            if subprocess.run([*words, f"sglang=={release}"], check=False).returncode:
                raise SystemExit(f"the package index has no SGLang {release}")
            (wheel,) = Path(place).glob("*.whl")
            with zipfile.ZipFile(wheel) as files:
                files.extractall(own)
    pinned = pin(own)
    beside = root / f"transformers-{pinned}"
    if not beside.is_dir():
        with_it = next((more for until, more in BESIDE if parse_version(pinned) < until), ())
        packages = (f"transformers=={pinned}", *with_it)
        command = [*PIP, "install", "--quiet", "--no-deps", "--target", str(beside), *packages]
        subprocess.run(command, check=True)
    return [own, beside]


def pin(release: Path) -> str:
    """The transformers that an unpacked release asks for."""
    (facts,) = release.glob("*.dist-info/METADATA")
    found = re.search(
        r"^Requires-Dist: transformers\s*\(?==([0-9.]+)", facts.read_text("utf-8"), re.MULTILINE
    )
    if found is None:
        raise SystemExit(f"{release.name} does not say which transformers it was made for")
    return max(found[1], OLDEST, key=parse_version)


def ask(python: str, places: list[Path], cases: list[Entry]) -> dict[str, Entry]:
    """The release's answers by case; one process a compute capability."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "OMP_NUM_THREADS": "1"}
    found: dict[str, Entry] = {}
    for gpus in CAPABILITIES:
        listed = [case for case in cases if case["gpu"] in gpus]
        if not listed:
            continue
        lines = "\n".join(json.dumps(case) for case in listed) + "\n"
        command = [python, str(PROGRAM), gpus[0]]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, env=env)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        found |= {case["name"]: answer for case, answer in zip(listed, answers, strict=True)}
    return found


def kept(answers: dict[str, Entry], release: str) -> dict[str, Entry]:
    """What is recorded: the planner's own answers; the memory fraction where its rules are the release's."""
    dropped = ["images", "per_request"]
    if parse_version(release) >= FRACTIONS_UNTIL:
        dropped.append("fraction")
    return {
        name: {key: value for key, value in answer.items() if key not in dropped}
        for name, answer in sorted(answers.items())
        if is_planned(answer) and "unexpected keyword" not in answer.get("refused", "")
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("release", help="sglang@0.5.12; sglang is the newest")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has sglang 0.5.23")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "releases", help="unpacked wheels")
    parser.add_argument("--record", action="store_true", help="write the answers into the record")
    options = parser.parse_args()
    release = named(options.release)
    answers = kept(
        ask(options.python, folders(release, options.folder), list(release_cases(release))), release
    )
    equal, explained, wrong = unexplained(release, answers)
    for name, why in wrong.items():
        sys.stdout.write(f"{release} {name}\n  kvplan for SGLang: {why}\n  rule: {', '.join(places(why))}\n")
    sys.stdout.write(
        f"{release}: {len(answers)} answered, {equal} equal, {explained} different with a reason\n"
    )
    if options.record:
        RECORD.write_bytes(
            packed({**(record("sglang_releases") if RECORD.is_file() else {}), release: answers})
        )
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
