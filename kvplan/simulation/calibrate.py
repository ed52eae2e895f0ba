"""Step times from a benchmark of the deployment itself: the roofline's shape, the measurement's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import median

from kvplan.errors import KvplanError
from kvplan.files.benchmarks import Measured, read_benchmark
from kvplan.files.iterations import Iteration, read_iterations
from kvplan.planning.speed.estimate import Load, estimate
from kvplan.planning.speed.steps import arriving_tokens
from kvplan.record import replace
from kvplan.simulation.served import FAST, LIKELY, SLOW, Served, Speeds, scaled
from kvplan.simulation.time.speed_clock import SpeedClock


def calibrated(path: Path, served: Served) -> Speeds:
    """Step times by a benchmark's results. Raises KvplanError(bad-benchmark, no-step-time).

    Two factors, one for steps of answers and one for steps with prompts: measured / estimated of the
    benchmark's TPOT and TTFT at its number of requests at once. Several loads in one file give the middle one
    and an interval from the least to the most.
    """
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
    known = [one for one in prompt if one is not None] or list(decode)  # else the factor of answers
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
    whole = one.tpot / found.tpot.value
    if one.ttft > one.tpot * one.output:  # it waits longer than it is served
        return whole, None
    prompt = one.ttft / found.ttft.value
    own = ceil(load.requests / clock.profile.deployment.data_parallel_size)
    arriving, chunk = arriving_tokens(clock.profile, own, load.prompt, load.output)
    # TPOT is the mean of steps of answers and of those with prompts, which have a factor of their own.
    answers = max(0.0, 1 - arriving / chunk) * found.step.value
    rest = one.tpot - prompt * (found.tpot.value - answers)
    return (rest / answers if answers and rest > 0 else whole), prompt


DECODE_LEAST, PROMPT_LEAST = 0.10, 0.25
"""How near calibrated simulators come at best (BLIS): no interval is narrower."""
_OTHER = 8
"""A deployment that is so many times faster or slower than estimated is another one."""
ENOUGH = 20
"""Steps of a group that say something."""


def by_steps(path: Path, steps: Sequence[Iteration], served: Served, clock: SpeedClock) -> Speeds:
    """Step times by a log of steps, each step's measured time over what the profile says of it. What the
    server adds before a first token is not in the log and stays as estimated. Raises
    KvplanError(bad-benchmark) where it says too little."""
    answers, prompts = groups(steps, served, clock)
    if not answers:
        raise KvplanError(
            "bad-benchmark", f"{path} has fewer than {ENOUGH} alike steps without prompts",
            help="a log of at least some minutes under load, with --enable-logging-iteration-details",
        )  # fmt: skip
    middle = median(answers)
    check_same(path, middle)
    first = median(prompts or answers)
    fast, slow = interval(answers, DECODE_LEAST)
    early, late = interval(prompts or answers, PROMPT_LEAST)
    found = scaled(
        clock.profile,
        {LIKELY: (middle, first), FAST: (fast, early), SLOW: (slow, late)},
        f"calibrated by {path.name} ({len(steps):,} logged steps): answers × {middle:.2f},"
        f" prompts × {first:.2f}",
    )
    return replace(found, frontends=served.speeds.frontends)


def groups(steps: Sequence[Iteration], served: Served, clock: SpeedClock) -> tuple[list[float], list[float]]:
    """Measured / estimated, the middle one of each group (powers of two of requests): of steps of answers, of
    steps with prompts. How long requests are the log says only as the share of the cache in use; else all are
    as long as a mean prompt."""
    engine = served.engine(LIKELY)
    tokens = engine.blocks * engine.block
    chunks = sum(step.prompts for step in steps)
    usual = sum(step.prompt_tokens for step in steps) // chunks if chunks else engine.block
    answers: dict[int, list[float]] = {}
    prompts: dict[int, list[float]] = {}
    for step in steps:
        requests = step.prompts + step.answers
        mean = usual if step.used is None else max(1, round(step.used * tokens) // requests)
        if step.prompt_tokens:
            new = max(1, step.prompt_tokens // max(1, step.prompts))
            parts = [(new, 0)] * max(1, step.prompts)
            estimated = clock.mixed(
                step.answers, step.answers * mean, step.prompt_tokens + step.answers, parts
            )
            prompts.setdefault(step.prompt_tokens.bit_length(), []).append(step.seconds / estimated)
        else:
            estimated = clock.line(step.answers, step.answers * mean)[0] / clock.decode
            answers.setdefault(step.answers.bit_length(), []).append(step.seconds / estimated)
    return _middles(answers), _middles(prompts)


def _middles(groups: Mapping[int, Sequence[float]]) -> list[float]:
    return [median(group) for _, group in sorted(groups.items()) if len(group) >= ENOUGH]


def check_same(path: Path, middle: float) -> None:
    """Raise KvplanError(bad-benchmark) where it is another deployment's."""
    if not 1 / _OTHER < middle < _OTHER:
        raise KvplanError(
            "bad-benchmark",
            f"{path} was measured on another deployment: its tokens take {middle:.2g} times the estimate",
            help="model, GPU, tensor parallel size and formats must be those of the benchmark",
        )


def interval(factors: Sequence[float], least: float) -> tuple[float, float]:
    """From the least to the most, at least so far from the middle."""
    middle = median(factors)
    return min(*factors, middle / (1 + least)), max(*factors, middle * (1 + least))
