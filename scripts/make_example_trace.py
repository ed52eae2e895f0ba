"""Write the example trace of docs and examples: python -m scripts.make_example_trace

Sessions of four turns with a shared system prompt, made by kvplan's own generator, in Mooncake's format with
identities of 16 tokens. The same bytes every time."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from kvplan.simulation.load.generate import asked_of, generated

FILE = Path(__file__).resolve().parent.parent / "examples" / "traces" / "chat-sessions.jsonl.gz"
WORDS = (
    "requests=400,rate=0.8,arrivals=gamma,cv=2,input=350,input_cv=0.8,output=220,output_cv=0.6,prefix=1024,"
    "turns=4,think=25,seed=7"
)


def text() -> bytes:
    """The trace, packed."""
    load = generated(asked_of(WORDS))
    lines = [
        json.dumps(
            {
                "timestamp": one.at_ns // 10**6,
                "input_length": one.prompt,
                "output_length": one.answer,
                "block_size": load.wide,
                "hash_ids": list(one.ids),
            },
            separators=(",", ":"),
        )
        for one in load.arrivals
    ]
    return gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0)


def main() -> int:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_bytes(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
