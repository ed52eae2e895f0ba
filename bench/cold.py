"""The cost of a fresh process: its processor time beside a baseline's, and the modules that it loads."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Figure

ROOT = Path(__file__).resolve().parents[1]
IMPORTS = [sys.executable, "-c", "import typer, rich.console, pydantic, yaml"]
BARE = [sys.executable, "-c", "pass"]
KVPLAN = [sys.executable, "-c", "import sys\nfrom kvplan.cli import script\nsys.exit(script())"]
"""As the installed script begins."""
QUESTION = ("size", "qwen3-32b", "-t", "32768")
ON_A_GPU = (*QUESTION, "--gpu", "h200")
MOST_MODULES = {QUESTION: 132, ON_A_GPU: 188}
"""Of kvplan that these questions may load."""
_COUNT = """
import contextlib, io, sys
from kvplan.cli.run import run
with contextlib.redirect_stdout(io.StringIO()):
    code = run(sys.argv[1:])
print(*sorted(sys.modules))
raise SystemExit(code)
"""


@cache
def _compiled() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="kvplan-bench-")


def environment() -> dict[str, str]:
    """This process's, with modules compiled once, as an installation has them, wherever they come from."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": _compiled().name, "PYTHONPATH": str(ROOT)}


def seconds(command: Sequence[str]) -> float:
    """Processor time of one fresh process, which must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def cold(command: Sequence[str], baseline: Sequence[str], turns: int) -> tuple[float, float]:
    """The least of both commands, run by turns after one warm-up each: a busy machine only adds to it."""
    seconds(command)
    seconds(baseline)
    pairs = [(seconds(command), seconds(baseline)) for _ in range(turns)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def cold_figure(
    what: str, command: Sequence[str], baseline: Sequence[str], name: str, aim: str, turns: int
) -> Figure:
    """A command's processor time, as a ratio of a baseline's."""
    ours, theirs = cold(command, baseline, turns)
    detail = f"{ours * 1000:.0f} ms of processor time against {theirs * 1000:.0f} ms"
    return Figure(what, name, ours / theirs, aim, detail)


def answers(turns: int) -> list[Figure]:
    """Answers of the command line beside the import of four packages."""
    name = "import typer, rich, pydantic, yaml"
    plan = ("plan", "llama-3.1-8b", "-n", "32", "-t", "8k")
    asked = ((QUESTION, "≤ 0.65"), (ON_A_GPU, "≤ 0.65"), (plan, "< 0.6 s"))
    return [
        cold_figure(f"kvplan {' '.join(words)}, cold", [*KVPLAN, *words], IMPORTS, name, aim, turns)
        for words, aim in asked
    ]


def library(turns: int) -> Figure:
    """The import of the package beside a bare interpreter."""
    command = [sys.executable, "-c", "import kvplan"]
    return cold_figure("import kvplan, cold", command, BARE, "python -c pass", "≤ 3", turns)


def modules_of(question: tuple[str, ...]) -> list[str]:
    """Every module that a fresh process has loaded once it has answered."""
    command = [sys.executable, "-c", _COUNT, *question]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()


def module_figures() -> list[Figure]:
    """Modules of kvplan that an answer loads, as parts of the most that it may."""
    found = []
    for question, most in MOST_MODULES.items():
        count = sum(name.partition(".")[0] == "kvplan" for name in modules_of(question))
        what = f"modules of kvplan {' '.join(question)}"
        found.append(Figure(what, f"{most} modules", count / most, "≤ 1", f"{count} modules"))
    return found
