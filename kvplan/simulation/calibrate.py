"""Step times from a benchmark of the deployment itself: the roofline's shape, the measurement's size.

Two factors are found, one for steps of answers and one for steps with prompts, as measured / estimated of the
benchmark's TPOT and TTFT (`kvplan.planning.speed.estimate` at its number of requests at once). Several loads
in one file give the middle one and an interval from the least to the most, which is never narrower than what
calibrated simulators reach (BLIS: 10 % of times between tokens, 25 % of first tokens). Where requests wait
longer than they are served, TTFT is a queue: then prompts get the factor of answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from kvplan.errors import KvplanError
from kvplan.files.benchmarks import Measured, read_benchmark
from kvplan.planning.speed.clock import SpeedClock
from kvplan.planning.speed.estimate import Load, estimate
from kvplan.simulation.served import FAST, LIKELY, SLOW, Served, Speeds, scaled

DECODE_LEAST, PROMPT_LEAST = 0.10, 0.25
_OTHER = 8
"""A deployment that is so many times faster or slower than estimated is another one."""


def calibrated(path: Path, served: Served) -> Speeds:
    """Step times by a benchmark's results. Raises KvplanError(bad-benchmark, no-step-time)."""
    clock = served.speeds.clock(LIKELY)
    if not isinstance(clock, SpeedClock):
        raise KvplanError("no-step-time", "a benchmark scales the estimate of a GPU", help="--gpu h100")
    writer, measured = read_benchmark(path)
    decode, prompt = zip(*(factors(clock, one) for one in measured))
    middle = median(decode)
    if not 1 / _OTHER < middle < _OTHER:
        raise KvplanError(
            "bad-benchmark",
            f"{path} was measured on another deployment: its tokens take {middle:.2g} times the estimate",
            help="model, GPU, tensor parallel size and formats must be those of the benchmark",
        )
    known = [one for one in prompt if one is not None] or list(decode)
    first = median(known)
    fast, slow = interval(decode, DECODE_LEAST)
    early, late = interval(known, PROMPT_LEAST)
    return scaled(
        clock.profile,
        {LIKELY: (middle, first), FAST: (fast, early), SLOW: (slow, late)},
        f"calibrated by {path.name} ({writer}): answers × {middle:.2f}, prompts × {first:.2f}",
    )


def interval(factors: Sequence[float], least: float) -> tuple[float, float]:
    """From the least to the most, at least so far from the middle."""
    middle = median(factors)
    return min(*factors, middle / (1 + least)), max(*factors, middle * (1 + least))


def factors(clock: SpeedClock, one: Measured) -> tuple[float, float | None]:
    """(measured / estimated of a step of answers, of one with prompts; None where TTFT is a queue)."""
    load = Load(max(1, round(one.running)), max(1, round(one.prompt)), max(1, round(one.output)))
    found = estimate(clock.profile, load)
    waits = one.ttft > one.tpot * one.output
    return one.tpot / found.tpot.value, None if waits else one.ttft / found.ttft.value
