"""Many inputs, in several processes, each reproducible by its target, seed and number."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz.targets import ANSWERS, NEEDS_FOLDER, TARGETS
from tests.fuzz.watch import bounded

SEED = 20261122
PIECE = 500


class Found(NamedTuple):
    """A broken law: which input, the kind of fault, the traceback."""

    input: str
    kind: str
    text: str


@contextlib.contextmanager
def elsewhere() -> Iterator[Path]:
    """An empty folder as the current one, and nothing of the user's own around."""
    kept = {
        name: os.environ.pop(name)
        for name in list(os.environ)
        if name.startswith(("KVPLAN_", "GITHUB_", "HF_"))
    }
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="kvplan-fuzz-") as folder:
        os.environ.update({"HF_HUB_OFFLINE": "1", "HF_HOME": folder, "XDG_CONFIG_HOME": folder})
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
            for name in ("HF_HUB_OFFLINE", "HF_HOME", "XDG_CONFIG_HOME"):
                os.environ.pop(name, None)
            os.environ.update(kept)


def one(target: str, seed: int, number: int, folder: Path) -> None:
    """One input. Raises what is wrong."""
    function, _ = TARGETS[target]
    random = Random(f"{target}:{seed}:{number}")
    with bounded(ANSWERS.get(target, 1)):
        if target in NEEDS_FOLDER:
            function(random, folder)
        else:
            function(random)


def several(piece: tuple[str, int, range]) -> list[Found]:
    """Some inputs of one target; what each did wrong."""
    target, seed, numbers = piece
    found = []
    with elsewhere() as folder:
        for number in numbers:
            try:
                one(target, seed, number, folder)
            except Exception as error:  # noqa: PERF203 - every input for itself
                last = traceback.extract_tb(error.__traceback__)[-1]
                kind = (
                    f"{type(error).__name__}: {str(error)[:120]} ({Path(last.filename).name}:{last.lineno})"
                )
                found.append(Found(f"{target}:{seed}:{number}", kind, traceback.format_exc()))
    return found


def pieces_of(inputs: int, *, seed: int = SEED, only: str | None = None) -> list[tuple[str, int, range]]:
    """So many inputs over all targets by their shares, or of one; the targets take turns."""
    shares = {name: share for name, (_, share) in TARGETS.items() if only in (None, name)}
    pieces = []
    for name, share in shares.items():
        count = -(-inputs * share // sum(shares.values()))
        pieces += [(name, seed, range(at, min(at + PIECE, count))) for at in range(0, count, PIECE)]
    Random(seed).shuffle(pieces)
    return pieces


def in_pieces(pieces: list[tuple[str, int, range]], *, jobs: int = 1) -> Iterator[list[Found]]:
    """What each piece found, as they end."""
    if jobs == 1:
        yield from map(several, pieces)
        return
    with multiprocessing.get_context("fork" if os.name != "nt" else "spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(several, pieces)


def run(inputs: int, *, seed: int = SEED, jobs: int = 1, only: str | None = None) -> list[Found]:
    """All that so many inputs find."""
    pieces = pieces_of(inputs, seed=seed, only=only)
    return [found for part in in_pieces(pieces, jobs=jobs) for found in part]
