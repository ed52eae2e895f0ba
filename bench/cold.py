"""What a fresh process costs: its processor time beside a baseline's, and the modules that it loads."""

from __future__ import annotations

import resource
import subprocess
import sys
from statistics import median

from bench.figures import Figure

IMPORTS = [sys.executable, "-c", "import typer, rich.console, pydantic, yaml"]
BARE = [sys.executable, "-c", "pass"]
QUESTION = ("size", "qwen3-32b", "-t", "32768")
ON_A_GPU = (*QUESTION, "--gpu", "h200")
MOST_MODULES = {QUESTION: 150, ON_A_GPU: 187}
"""Of kvplan that these questions may load."""
_COUNT = """
import contextlib, io, sys
from kvplan.cli.run import run
with contextlib.redirect_stdout(io.StringIO()):
    code = run(sys.argv[1:])
print(*sorted(sys.modules))
raise SystemExit(code)
"""


def seconds(command: list[str]) -> float:
    """Processor time of one fresh process, which must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def cold(command: list[str], baseline: list[str], turns: int) -> tuple[float, float]:
    """Medians of both commands, run by turns after one warm-up each."""
    seconds(command)
    seconds(baseline)
    pairs = [(seconds(command), seconds(baseline)) for _ in range(turns)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def cold_figure(
    what: str, command: list[str], baseline: list[str], name: str, aim: str, turns: int
) -> Figure:
    ours, theirs = cold(command, baseline, turns)
    detail = f"{ours * 1000:.0f} ms of processor time against {theirs * 1000:.0f} ms"
    return Figure(what, name, ours / theirs, aim, detail)


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
