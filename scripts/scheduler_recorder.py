"""What the recorders of schedulers have in common: scenarios of seeds or of a file in, answers out."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Scenario = dict[str, Any]


def record(
    about: str | None, scenario: Callable[[int], Scenario], answer: Callable[[Scenario, Path], Scenario],
    stamp: Callable[[], dict[str, str]], *, errors: bool,
) -> None:  # fmt: skip
    """scenario: of a seed; answer: an engine's, or an ``error``; stamp: whose; errors: such are kept too."""
    ask = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("seeds", type=int, nargs="*", help="first seed, seed after the last")
    ask.add_argument("--file", type=Path, help="scenarios of a file in place of random ones")
    ask.add_argument("--traces", type=Path, default=Path("../shared/traces"))
    ask.add_argument("-o", "--output", type=Path, required=True)
    args = ask.parse_args()
    if args.file:
        asked = json.loads(args.file.read_text())["scenarios"]
    else:
        asked = {f"seed-{seed}": scenario(seed) for seed in range(*args.seeds)}
    found = {}
    for name, one in asked.items():
        made = answer(one, args.traces)
        print(name, made.get("error") or made["steps"]["count"], flush=True)
        if errors or "error" not in made:
            found[name] = made
    text = json.dumps({**stamp(), "scenarios": found}, separators=(",", ":")) + "\n"
    if args.output.suffix == ".gz":
        args.output.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        args.output.write_text(text)
