"""Step times from a benchmark of the deployment itself: the roofline's shape, the measurement's size.

Two factors are found, one for steps of answers and one for steps with prompts, as measured / estimated of the
benchmark's TPOT and TTFT (`kvplan.planning.speed.estimate` at its number of requests at once). Several loads
in one file give the middle one and an interval from the least to the most, which is never narrower than what
calibrated simulators reach (BLIS: 10 % of times between tokens, 25 % of first tokens). Where requests wait
longer than they are served, TTFT is a queue: then prompts get the factor of answers.

An engine's own log of its steps (`kvplan.simulation.stepped`) says each step's time and needs no such guess.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from kvplan.errors import KvplanError
from kvplan.files.benchmarks import Measured, read_benchmark
from kvplan.files.iterations import read_iterations
from kvplan.planning.speed.clock import SpeedClock
from kvplan.planning.speed.estimate import Load, estimate
from kvplan.simulation.served import FAST, LIKELY, SLOW, Served, Speeds, scaled
from kvplan.simulation.stepped import DECODE_LEAST, PROMPT_LEAST, by_steps, check_same, interval


def calibrated(path: Path, served: Served) -> Speeds:
    """Step times by a benchmark's results. Raises KvplanError(bad-benchmark, no-step-time)."""
    clock = served.speeds.clock(LIKELY)
    if not isinstance(clock, SpeedClock):
        raise KvplanError("no-step-time", "a benchmark scales the estimate of a GPU", help="--gpu h100")
    steps = read_iterations(path)
    if steps:
        return by_steps(path, steps, served, clock)
    writer, measured = read_benchmark(path)
    decode, prompt = zip(*(factors(clock, one) for one in measured))
    middle = median(decode)
    check_same(path, middle)
    known = [one for one in prompt if one is not None] or list(decode)
    first = median(known)
    fast, slow = interval(decode, DECODE_LEAST)
    early, late = interval(known, PROMPT_LEAST)
    return scaled(
        clock.profile,
        {LIKELY: (middle, first), FAST: (fast, early), SLOW: (slow, late)},
        f"calibrated by {path.name} ({writer}): answers × {middle:.2f}, prompts × {first:.2f}",
    )


def factors(clock: SpeedClock, one: Measured) -> tuple[float, float | None]:
    """(measured / estimated of a step of answers, of one with prompts; None where TTFT is a queue)."""
    load = Load(max(1, round(one.running)), max(1, round(one.prompt)), max(1, round(one.output)))
    found = estimate(clock.profile, load)
    waits = one.ttft > one.tpot * one.output
    return one.tpot / found.tpot.value, None if waits else one.ttft / found.ttft.value
