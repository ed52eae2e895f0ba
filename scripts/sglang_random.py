"""Ask releases of SGLang settings drawn by chance for published configs and cards; compare with kvplan.

    python -m scripts.sglang_random 0.5.23 --seed 5 --count 250 --python PYTHON_WITH_SGLANG
    python -m scripts.sglang_random --record

The first asks a release (unpacked in build/releases, see scripts/sglang_releases.py; 0.5.23 is the
environment itself), writes what it answered into build/random-sglang and prints what differs; it exits with
1 where something does that has no reason. The second keeps a share of what lies there in
tests/data/sglang_random.json.gz.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from scripts.record_sglang import ask as ask_here
from scripts.record_sglang import is_planned
from scripts.sglang_releases import ROOT, ask, folders
from tests.engines.sglang_random_cases import Entry, config_of_draw, draws, question_of_draw, verdict
from tests.recorded import packed

ANSWERS = ROOT / "build" / "random-sglang"
RECORD = ROOT / "tests" / "data" / "sglang_random.json.gz"
NEWEST = "0.5.23"
SHARE = 2
"""Of every so many equal answers one is kept, and every refusal of another kind."""


def ask_release(python: str, root: Path, release: str, entries: list[Entry]) -> list[Entry]:
    """Draws with their answers."""
    asked = [
        {**question_of_draw(entry), "name": f"{place}-{entry['config']}"}
        for place, entry in enumerate(entries)
    ]
    said = ask_here(python, asked) if release == NEWEST else ask(python, folders(release, root), asked)
    return [{**entry, "answer": said[case["name"]]} for entry, case in zip(entries, asked, strict=True)]


def report(release: str, entries: list[Entry]) -> Counter[str]:
    """Print what differs, and counts."""
    counts: Counter[str] = Counter()
    for entry in entries:
        word, wrong = verdict(entry, release) if is_planned(entry["answer"]) else ("not asked", {})
        counts[word] += 1
        if word == "differs":
            asked = {name: value for name, value in entry.items() if name not in ("config", "answer")}
            print(f"{release} {entry['config']} {json.dumps(asked)}")
            for name, (ours, theirs) in wrong.items():
                print(f"    {name}: kvplan {ours}, SGLang {str(theirs)[:200]}")
    print(f"{release}: {len(entries)} asked, " + ", ".join(f"{n} {word}" for word, n in counts.items()))
    return counts


def kept(release: str, entries: list[Entry]) -> list[Entry]:
    """The part that is recorded: one of so many that are equal, each kind of refusal once."""
    found, seen = [], set()
    for entry in entries:
        if not is_planned(entry["answer"]) or verdict(entry, release)[0] not in ("equal", "refused"):
            continue
        said = entry["answer"].get("refused")
        kind = "".join(letter for letter in (said or "")[:90] if not letter.isdigit())
        name = json.dumps([entry["config"], entry["args"]])
        if (said and kind not in seen) or zlib.crc32(name.encode()) % SHARE == 0:
            seen.add(kind)
            found.append({**entry, "answer": {"refused": said[:200]} if said else entry["answer"]})
    return found


def write() -> None:
    """The record: what it has, and of the draws that lie there what is the same; what differs is printed."""
    known = json.loads(gzip.decompress(RECORD.read_bytes())) if RECORD.is_file() else {}
    releases: dict[str, list[Entry]] = known.get("releases", {})
    cards: dict[str, Any] = known.get("cards", {})
    for path in sorted(ANSWERS.glob("*.json")):
        release, entries = path.stem.rsplit("-", 1)[0], json.loads(path.read_text())
        report(release, entries)
        before = releases.setdefault(release, [])
        there = {json.dumps(entry) for entry in before}
        found = [entry for entry in kept(release, entries) if json.dumps(entry) not in there]
        asked = {entry["config"]: config_of_draw(entry) for entry in found}
        changed = {
            name for name in asked if name in cards and json.dumps(cards[name]) != json.dumps(asked[name])
        }
        cards |= {name: asked[name] for name in asked if name.startswith("card:") and name not in changed}
        before += [entry for entry in found if entry["config"] not in changed]
    ordered = sorted(releases, key=lambda release: tuple(map(int, release.split(".")[:3])))
    body = {"cards": cards, "releases": {release: releases[release] for release in ordered}}
    RECORD.write_bytes(packed(body))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("release", nargs="?", default="", help="0.5.23")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=250)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has sglang 0.5.23")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "releases", help="unpacked wheels")
    parser.add_argument("--compare", action="store_true", help="compare what lies there; nothing is asked")
    parser.add_argument(
        "--record", action="store_true", help="keep a share of what lies in build/random-sglang"
    )
    options = parser.parse_args()
    if options.record:
        write()
        return 0
    place = ANSWERS / f"{options.release}-{options.seed}.json"
    if options.compare:
        found = json.loads(place.read_text())
    else:
        entries = draws(options.release, options.seed, options.count)
        found = ask_release(options.python, options.folder, options.release, entries)
        ANSWERS.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(found))
    return int(report(options.release, found)["differs"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
