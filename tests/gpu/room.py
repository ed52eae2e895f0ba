"""The pool of a qualification: nine tenths of the card, or what the run's own probes leave of it.

    python -m tests.gpu.room MODEL [OPTIONS OF kvplan validate …]

Prints bytes: min(9/10 of the total, free - what `validate` holds beside the pool - what it leaves free).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from kvplan.units import GIB, MIB


def pool_of(total: int, free: int, beside: int, reserve: int = GIB) -> int:
    """Bytes, in whole MiB; 0 where nothing is left. beside: weights and the widest probe."""
    return max(0, min(total * 9 // 10, free - beside - reserve)) // MIB * MIB


def beside_of(words: Sequence[str]) -> int:
    """What a validation of this command line holds beside its pool on a GPU, bytes, by its dry run."""
    command = [sys.executable, "-m", "kvplan", "validate", *words, "--kv-cache-memory", "1GiB"]
    done = subprocess.run([*command, "--dry-run", "--json"], stdout=subprocess.PIPE, check=True)
    return max(int(rank["beside_bytes"]) for rank in json.loads(done.stdout)["ranks"])


def main(words: Sequence[str]) -> int:
    """On the first GPU, opened as a validation opens it: what its context takes is no longer free."""
    from kvplan.proof.validate.devices import open_device

    beside = beside_of(words)
    device = open_device("cuda:0")
    device.open()  # type: ignore[union-attr]
    print(pool_of(device.runtime_total(), device.free_bytes() or 0, beside))  # type: ignore[union-attr]
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
