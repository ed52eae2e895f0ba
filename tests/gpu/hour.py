"""One machine hour: the next steps of `tests.gpu.steps` that have no result, in their order of worth.

    python -m tests.gpu.hour FOLDER [--minutes 55] [--only NAME,NAME] [--python vllm=FILE --python vllm@0.32=]
    python -m tests.gpu.hour FOLDER --device cpu --only gqa,moe     kvplan's own runs, small, in host memory

FOLDER takes receipts, screens and ``results.tsv``; the same command continues there in the next hour. All of
it is packed into FOLDER.tgz after every step, so that nothing measured is lost where time ends. A step that
cannot run here (exit 3: no GPU, another GPU, no such engine) is left out with its reason, and tried again.
Exit 1: one ended in another way than it should.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.gpu.steps import IN_USE, KILLED, RECORDED, STEPS, Step

ROOT = Path(__file__).resolve().parents[2]
RESULTS = "results.tsv"
CANNOT_RUN, GRACE = 3, 60
_HOLDS = (
    "import sys, torch; kept = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device='cuda');"
    " torch.cuda.synchronize(); print('held', flush=True); sys.stdin.read()"
)
_SMALL = ("--device", "cpu", "--kv-cache-memory", "32MiB", "--reserve", "256MiB")


class Ran(NamedTuple):
    """How a command ended. said: its first line of error, or of the screen."""

    code: int
    said: str


Runner = Callable[[Sequence[str], Path, int], Ran]
"""runner(words behind ``python -m``, where its output goes without ending, seconds)."""


class Result(NamedTuple):
    """done: whether the step needs no other hour; good: it ended as it should."""

    done: bool
    good: bool
    said: str


def beside(out: Path, suffix: str) -> Path:
    """A step's file: its name may have points of its own."""
    return out.with_name(out.name + suffix)


def run_module(words: Sequence[str], out: Path, seconds: int) -> Ran:
    """In a process of its own, interrupted when its time is long up."""
    with beside(out, ".txt").open("wb") as text, beside(out, ".err").open("wb") as errors:
        process = subprocess.Popen([sys.executable, "-m", *words], stdout=text, stderr=errors, cwd=ROOT)
        try:
            code = process.wait(seconds + GRACE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return Ran(code, _first(out))


def _first(out: Path) -> str:
    wrong = errors_in(beside(out, ".err"))
    rows = beside(out, ".txt").read_text(encoding="utf-8", errors="replace").splitlines()
    return next(iter(wrong or rows), "")


class Hour:
    """The steps on one machine. pythons: interpreters by engine; small: rehearsals in host memory."""

    def __init__(
        self,
        folder: Path,
        pythons: dict[str, str],
        *,
        small: bool = False,
        runner: Runner = run_module,
        pool: Callable[[Sequence[str]], str] | None = None,
    ) -> None:
        self.folder, self.pythons, self.small = folder, pythons, small
        self.runner, self.pool = runner, pool or room
        folder.mkdir(parents=True, exist_ok=True)

    def left(self, names: Sequence[str] = ()) -> list[Step]:
        """Steps without a result, in their order; names: these alone."""
        done = {row.split("\t")[0] for row in self._rows() if row.split("\t")[1] != "left out"}
        return [one for one in STEPS if (one.name in names if names else True) and one.name not in done]

    def _rows(self) -> list[str]:
        path = self.folder / RESULTS
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def run(self, step: Step) -> Result:
        """One step, its row and the archive."""
        begun = time.monotonic()
        result = self._run(step)
        word = "left out" if not result.done else "as it should" if result.good else "WRONG"
        row = f"{step.name}\t{word}\t{time.monotonic() - begun:.0f} s\t{result.said}"
        with (self.folder / RESULTS).open("a", encoding="utf-8") as file:
            file.write(row + "\n")
        print(row, flush=True)
        self.pack()
        return result

    def _run(self, step: Step) -> Result:
        out = self.folder / step.name
        python = self.pythons.get(step.engine, "") if step.engine else ""
        if "@" in step.engine and not python:
            return Result(False, False, f"no interpreter was named: --python {step.engine}=FILE")
        if step.ends == RECORDED:
            return self._recorded(step, python, out)
        try:
            words = self.words(step, python, out)
        except subprocess.CalledProcessError as error:
            return Result(False, False, f"the pool is not known: {error.cmd[2]} ended {error.returncode}")
        if step.ends == KILLED:
            return _killed(words, out, step.seconds)
        with _neighbour(step.beside) as there:
            if not there:
                return Result(False, False, "the neighbour has no GPU")
            ran = self.runner(words, out, step.seconds)
        if step.ends == IN_USE and ran.code == CANNOT_RUN and "error[gpu-in-use]" in ran.said:
            return Result(True, True, ran.said)
        verdict = _verdict(beside(out, ".json"))
        if ran.code == CANNOT_RUN and verdict is None:
            return Result(False, False, ran.said)
        wanted = (step.ends, "self-consistent") if self.small else (step.ends,)
        return Result(True, verdict in wanted, f"exit {ran.code}, {verdict}: {ran.said}")

    def words(self, step: Step, python: str, out: Path) -> list[str]:
        """Behind ``python -m``. Raises CalledProcessError where the card's pool cannot be known."""
        more: list[str] = ["--engine-python", python] if python and "--with" in step.words else []
        if self.small:
            more += _SMALL
        elif step.nine_tenths:
            more += ["--kv-cache-memory", self.pool(step.words)]
        limit = ["--time-limit", str(step.seconds), "--output", str(beside(out, ".json"))]
        return ["kvplan", "validate", *step.words, *more, *limit]

    def _recorded(self, step: Step, python: str, out: Path) -> Result:
        """One start of an installed release, until its pool is known (`tests.gpu.allocations`)."""
        from kvplan.api import load_model
        from kvplan.proof.validate.installed.question import write_model

        model = beside(out, "-model")
        model.mkdir(exist_ok=True)
        write_model(load_model(step.words[0]), model)
        command = [python, "-m", "tests.gpu.allocations", str(beside(out, ".pool")), "--until-available",
                   "--model", str(model), "--max-model-len", "8192"]  # fmt: skip
        here = {**os.environ, "PYTHONPATH": str(ROOT)}
        with beside(out, ".txt").open("wb") as text:
            try:
                code = subprocess.run(
                    command,
                    stdout=text,
                    stderr=text,
                    cwd=ROOT,
                    env=here,
                    timeout=step.seconds + GRACE,
                    check=False,
                ).returncode
            except (OSError, subprocess.TimeoutExpired) as error:
                return Result(False, False, f"{type(error).__name__}: {python}")
        there = beside(out, ".pool").exists()
        return Result(there, there, f"exit {code}, see {out.name}.txt")

    def pack(self) -> None:
        """The folder as one archive beside it."""
        with tarfile.open(self.folder.with_name(self.folder.name + ".tgz"), "w:gz") as archive:
            archive.add(self.folder, self.folder.name)


def room(words: Sequence[str]) -> str:
    """Bytes of a pool that the card has room for. Raises CalledProcessError."""
    command = [sys.executable, "-m", "tests.gpu.room", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True).stdout.strip()


def _verdict(path: Path) -> str | None:
    return str(json.loads(path.read_text(encoding="utf-8"))["verdict"]) if path.exists() else None


@contextmanager
def _neighbour(amount: int) -> Iterator[bool]:
    """Another process that holds so many bytes of the GPU; whether it could."""
    if not amount:
        yield True
        return
    process = subprocess.Popen([sys.executable, "-c", _HOLDS, str(amount)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    assert process.stdout is not None
    try:
        yield process.stdout.readline() == b"held\n"
    finally:
        process.kill()
        process.communicate()


def _killed(words: Sequence[str], out: Path, seconds: int) -> Result:
    """SIGKILL once the worker's receipt is there, when the server starts: nothing may stay on the GPU."""
    receipt = beside(out, ".json")
    with beside(out, ".txt").open("wb") as text:
        process = subprocess.Popen([sys.executable, "-m", *words], stdout=text, stderr=text, cwd=ROOT)
        ends = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < ends and not receipt.exists():
            time.sleep(0.2)
        if process.poll() is None:
            time.sleep(20)  # the server loads
        process.kill()
        code = process.wait()
    if code == CANNOT_RUN:
        return Result(False, False, next(iter(errors_in(beside(out, ".txt"))), ""))
    time.sleep(15)
    left = _on_the_gpu()
    return Result(left is not None, left == [], f"exit {code}, processes on the GPU: {left}")


def errors_in(path: Path) -> list[str]:
    """The lines of a file that say why."""
    rows = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [row for row in rows if row.startswith("error[")]


def _on_the_gpu() -> list[int] | None:
    from kvplan.errors import KvplanError
    from kvplan.files.gpus.nvml import read_nvml

    try:
        return [one.pid for gpu in read_nvml().gpus for one in gpu.processes]
    except KvplanError:
        return None


def main(words: Sequence[str] | None = None) -> int:
    """Run what is left until the time is up, and print the table of the receipts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=55)
    parser.add_argument("--only", default="")
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=FILE")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args(words)
    names = [one for one in given.only.split(",") if one]
    unknown = set(names) - {one.name for one in STEPS}
    if unknown:
        parser.error(f"no step {', '.join(sorted(unknown))}: one of {', '.join(one.name for one in STEPS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hour = Hour(given.folder, dict(one.split("=", 1) for one in given.python), small=given.device == "cpu")
    ends = time.monotonic() + 60 * given.minutes
    results = []
    try:
        for step in hour.left(names):
            if time.monotonic() + step.seconds > ends:
                print(f"{step.name}: for the next hour, it may take {step.seconds} s", flush=True)
                continue
            results.append(hour.run(step))
    finally:
        hour.pack()
    from tests.gpu.table import main as table

    if list(given.folder.glob("*.json")):
        table([str(given.folder)])
    print(f"{len(hour.left())} of {len(STEPS)} steps are left; all of it is in {given.folder}.tgz")
    return int(any(one.done and not one.good for one in results))


if __name__ == "__main__":
    raise SystemExit(main())
