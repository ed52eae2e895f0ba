"""``python -m tests.fuzz``: exit 1 where a law is broken."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.fuzz.run import SEED, Found, elsewhere, in_pieces, one, pieces_of
from tests.fuzz.targets import TARGETS

EVERY_SECONDS = 60.0
"""A line on stderr; what is found is said at once."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=sorted(TARGETS))
    parser.add_argument(
        "--again", metavar="TARGET:SEED:NUMBER", help="run one input, and show what it raises"
    )
    asked = parser.parse_args()
    if asked.again:
        target, seed, number = asked.again.split(":")
        with elsewhere() as folder:
            one(target, int(seed), int(number), folder)
        sys.stdout.write("nothing wrong\n")
        return 0
    begun = time.monotonic()
    pieces = pieces_of(asked.inputs, seed=asked.seed, only=asked.only)
    found: list[Found] = []
    told = begun
    for number, part in enumerate(in_pieces(pieces, jobs=asked.jobs), 1):
        found += part
        if part or time.monotonic() - told > EVERY_SECONDS:
            told = time.monotonic()
            seconds = told - begun
            sys.stderr.write(f"{number} of {len(pieces)} pieces in {seconds:.0f} s, {len(found)} faults")
            sys.stderr.write("".join(f"\n  {entry.input}: {entry.kind}" for entry in part) + "\n")
    kinds = Counter(entry.kind for entry in found)
    for kind, count in kinds.most_common():
        first = next(entry for entry in found if entry.kind == kind)
        sys.stdout.write(f"{count:6} × {kind}\n         {first.input}\n")
    sys.stdout.write(
        f"{asked.inputs:,} inputs of seed {asked.seed} in {time.monotonic() - begun:.0f} s:"
        f" {len(found):,} faults of {len(kinds)} kinds\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
