"""Kill validations at random moments and look for what they leave behind.

    python -m tests.proof.kill --times 50 [--ranks 2 | --with worker | --with server]

A run leaves no process, no half-written receipt, nothing in shared memory and no temporary file. --with: the
stand-in for an engine of the tests, its worker alone or with its server, whose processes are all looked for.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kvplan.errors import KvplanError
from kvplan.files.plans.receipts import read_receipt

ROOT = Path(__file__).resolve().parents[2]
MARK = "KVPLAN_KILL_TEST"
SIGNALS: list[signal.Signals] = (
    [signal.SIGKILL, signal.SIGTERM, signal.SIGINT] if hasattr(signal, "SIGKILL") else []
)
ALONE = ("-m", "kvplan")
RANKED = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "kvplan.proof")
SHARED_MEMORY = Path("/dev/shm")
WORKER, SERVER = "worker", "server"
_MADE = ("receipt.json", "tmp", "model", "python", "says.json")
"""What a run is given, or leaves on purpose."""


class Killed(NamedTuple):
    """One run: when it was killed, with what, how it ended, and what it left."""

    after: float
    signal: str
    hit: bool
    code: int
    receipt: str
    left: list[str]


def of_an_engine(folder: Path, engine: str) -> list[str]:
    """A rehearsal with a stand-in that takes its time, so that a signal comes in the midst of it."""
    from tests.proof.fake_engine import interpreter
    from tests.proof.test_engine_run import CONFIG, MEASURED, WORDS

    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    python = interpreter(folder, {**MEASURED, "in": "load_model", "sleep": 0.5})
    more = ["--serve"] if engine == SERVER else []
    command = [sys.executable, *ALONE, "validate", str(model), *WORDS, "--engine-python", str(python), *more]
    return [*command, "--output", str(folder / "receipt.json")]


def arguments(folder: Path, *, ranks: int = 1, engine: str = "") -> list[str]:
    """A short rehearsal that writes a receipt."""
    if engine:
        return of_an_engine(folder, engine)
    command = [*ALONE, "validate"] if ranks == 1 else list(RANKED)
    model = ["qwen3-8b", "--device", "cpu", "--kv-cache-memory", "48MiB", "--reserve", "0B"]
    more = ["--tp", str(ranks)] if ranks > 1 else []
    return [sys.executable, *command, *model, *more, "--output", str(folder / "receipt.json")]


def kill_one(after: float, number: int, folder: Path, *, ranks: int = 1, engine: str = "") -> Killed:
    """Start, wait, kill, look."""
    name = signal.Signals(number).name
    token = f"{os.getpid()}-{time.monotonic_ns()}"
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    before = _shared_memory()
    environment = {
        **os.environ, MARK: token, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"
    }  # fmt: skip
    process = subprocess.Popen(
        arguments(folder, ranks=ranks, engine=engine),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    hit = False
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        hit = True
        process.send_signal(number)
    try:
        code = process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        return Killed(after, name, hit, process.wait(), "", ["it did not end in 60 s"])
    left = _processes(token)
    left += [f"shared memory {name}" for name in sorted(_shared_memory() - before)]
    left += [f"file {path.name}" for path in folder.iterdir() if path.name not in _MADE]
    _until_empty(temporary)
    if ranks == 1:  # torchrun keeps the logs of its own there
        left += [f"temporary {path.name}" for path in temporary.iterdir()]
    receipt = _receipt(folder / "receipt.json", left)
    return Killed(after, name, hit, code, receipt, left)


def _until_empty(folder: Path, patience: float = 60.0) -> None:
    """A keeper removes an engine's folder after kvplan was killed."""
    deadline = time.monotonic() + patience
    while any(folder.glob("kvplan-*")) and time.monotonic() < deadline:
        time.sleep(0.1)


def _receipt(path: Path, left: list[str]) -> str:
    if not path.exists():
        return "none"
    try:
        whole = read_receipt(path).intact
    except KvplanError as error:
        left.append(f"receipt: {error.message}")
        return "broken"
    path.unlink()
    if not whole:
        left.append("receipt: edited")
    return "whole"


def _shared_memory() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def _processes(token: str, patience: float = 60.0) -> list[str]:
    """Processes of the run that are still there when patience ends."""
    deadline = time.monotonic() + patience
    while True:
        mark = f"{MARK}={token}".encode()
        found = [f"process {one.name}" for one in Path("/proc").glob("[0-9]*") if mark in _environment(one)]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _environment(folder: Path) -> bytes:
    try:
        return (folder / "environ").read_bytes()
    except OSError:  # it has ended, or is somebody else's
        return b""


def kill_many(times: int, seed: int, *, ranks: int = 1, engine: str = "") -> list[Killed]:
    """Two runs go to their end, and the second says how long one takes (the first fills caches); the moments
    lie in that time. A run that ended before its moment does not count."""
    chance = random.Random(seed)
    found = []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(2):
            begun = time.monotonic()
            found.append(kill_one(600.0, SIGNALS[0], Path(name), ranks=ranks, engine=engine))
            whole = time.monotonic() - begun
        while sum(one.hit for one in found) < times and len(found) < 4 * times + 2:
            moment = chance.uniform(0.0, whole)
            found.append(kill_one(moment, chance.choice(SIGNALS), Path(name), ranks=ranks, engine=engine))
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Print a line a run; 1 where something was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--with", dest="engine", choices=(WORKER, SERVER), default="")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    found = kill_many(given.times, given.seed, ranks=given.ranks, engine=given.engine)
    for one in found:
        print(f"{one.after:7.2f} s  {one.signal:<8} exit {one.code:>4}  receipt {one.receipt:<6}  "
              + ("; ".join(one.left) or "nothing left"))  # fmt: skip
    bad = sum(bool(one.left) for one in found)
    print(f"{sum(one.hit for one in found)} killed, {bad} left something")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
