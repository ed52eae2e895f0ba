"""The steps of published serving runs, recorded once, so that a fit need not serve them again.

Where requests are always under way, or come at a rate that is kept up with, which requests a step computes
hardly depends on how long steps take. So each run is served once with today's constants; its steps are kept
as a few typical ones with weights, of which throughput, mean TTFT and mean TPOT are sums under any other
constants.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from kvplan.api.simulating import deployment
from kvplan.assumption import Assumptions
from kvplan.errors import KvplanError
from kvplan.files.speed import speed_inputs
from kvplan.planning.speed import SpeedProfile, deployment_of, speed_profile
from kvplan.planning.speed.steps import step_seconds
from kvplan.plans.arrival import Arrival
from kvplan.settings import Settings
from kvplan.simulation.load.closed_loop import Closed
from kvplan.simulation.schedulers import kind_of, viewed
from kvplan.simulation.served import LIKELY
from kvplan.simulation.time.clock import Clock, Computed
from kvplan.simulation.time.speed_clock import SpeedClock
from kvplan.simulation.time.timeline import Timeline, Trace
from scripts.serving_rows import WIDE, Row, arrivals_of, options_of, speeds_of_release
from scripts.speed_rows import release_of

TYPICAL = 24
"""Steps that stand for all of a run."""
Chunks = tuple[tuple[int, int], ...]
_RUN_FIGURES = {"output_tps", "ttft_ms", "tpot_ms"}


class Kept(NamedTuple):
    """A typical step: requests and tokens in it, (new, before) of its prompts; how many it stands for, in
    its own length, and its weight in the mean TTFT and TPOT."""

    requests: int
    context: int
    tokens: int
    chunks: Chunks
    times: float
    ttft: float
    tpot: float


class Run(NamedTuple):
    row: Row
    settings: Settings
    engine: str
    answers: int
    steps: tuple[Kept, ...]

    @property
    def model(self) -> str:
        return str(self.row.raw["model"])


class _Recorder:
    """A clock that keeps what it was asked, and when it ended."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.steps: list[tuple[int, int, int, Chunks, int]] = []
        self.ends: list[int] = []
        self.replica: Timeline | None = None

    def lasts(self, step: Computed) -> int:
        assert self.replica is not None
        found = self.clock.lasts(step)
        chunks = tuple(
            (tokens, request.computed - tokens)
            for request, tokens in step.parts
            if tokens > 1 or request.computed <= request.prompt
        )
        self.steps.append((step.count, step.context, step.tokens, chunks, found))
        self.ends.append(max(self.replica.now, self.replica.free_at) + found)
        return found

    def line(self, count: int, context: int) -> tuple[int, int, int]:
        return self.clock.line(count, context)

    def stages(self, step: Computed, count: int) -> Sequence[int]:
        raise AssertionError("no row has a pipeline")

    def together(self, steps: Sequence[Computed]) -> int:
        raise AssertionError("rows' ranks are recorded one by one")


def recorded(row: Row) -> Run | None:
    """The row's steps; None of one that has replicas, has no times, or is not simulated."""
    if "replicas" in row.raw or not row.figures.keys() & _RUN_FIGURES:
        return None
    arrivals, warm = arrivals_of(row.load)
    try:
        served, _ = deployment(
            row.raw["model"], pool=None, step_time=None, offload=None, split=None, **options_of(row)
        )
    except KvplanError:
        return None
    engine, rated = served.engine(LIKELY), "rate" in row.load
    rows = [Arrival(one.at_ns if rated else 0, one.prompt, one.answer, one.ids) for one in arrivals]
    clock = _Recorder((speeds_of_release(row) or served.speeds).clock(LIKELY))
    trace = Trace(rows, WIDE)
    replica: Timeline
    if rated:
        replica = kind_of(engine)(trace, engine, clock, jump=False, rows=False)
    else:
        replica = closed = viewed(Closed, engine)(trace, engine, clock, jump=False, rows=False)
        closed.start(int(row.load.get("concurrency", len(rows))))
    clock.replica = replica
    replica.run()
    columns = replica.answer.columns
    came = [one.at_ns for one in replica.arrivals]
    made = [engine.answered(one.prompt, one.answer) for one in rows]
    shares = [float(number >= warm) for number in range(len(rows))]
    each = [share / (answer - 1) if answer > 1 else 0.0 for share, answer in zip(shares, made)]
    first = _weights(clock, came, columns["first_token_ns"], shares)
    later = _weights(clock, columns["first_token_ns"], columns["finished_ns"], each)
    return Run(
        row, served.settings, served.choice.engine.name, sum(made), _typical(clock.steps, first, later)
    )


def _weights(
    clock: _Recorder, begins: Sequence[int], stops: Sequence[int], each: Sequence[float]
) -> list[float]:
    """Of each step, the share of the requests between begin and stop, each as it counts; of a step in which
    a request comes, what is left of it."""
    ends = clock.ends
    change = [0.0] * (len(ends) + 2)
    for begin, stop, share in zip(begins, stops, each, strict=True):
        place = bisect_left(ends, begin + 1)
        left = min(1.0, (ends[place] - begin) / clock.steps[place][4]) if place < len(ends) else 1.0
        change[place] += share * left
        change[place + 1] += share * (1 - left)
        change[bisect_left(ends, stop + 1)] -= share
    whole = max(1, sum(share > 0 for share in each))
    return [value / whole for value in accumulate(change)][: len(ends)]


def _typical(
    steps: list[tuple[int, int, int, Chunks, int]], first: list[float], later: list[float]
) -> tuple[Kept, ...]:
    """Groups of steps with and without prompts, each by the one in its middle."""
    kept = []
    for with_prompts in (False, True):
        places = [place for place, step in enumerate(steps) if bool(step[3]) == with_prompts]
        size = max(1, -(-len(places) // (TYPICAL // 2)))
        for start in range(0, len(places), size):
            group = sorted(places[start : start + size], key=lambda place: steps[place][4])
            count, context, tokens, chunks, lasts = steps[group[len(group) // 2]]
            sums = [
                sum(share[place] * steps[place][4] for place in group) / lasts
                for share in ([1.0] * len(steps), first, later)
            ]
            kept.append(Kept(count, context, tokens, chunks, *sums))
    return tuple(kept)


def profile_of(run: Run, table: Assumptions) -> SpeedProfile:
    model = deployment_model(run)
    inventory, per_token, _ = speed_inputs(model, run.settings.quantization)
    assert run.settings.gpu is not None
    return speed_profile(
        model, run.settings.gpu, inventory, per_token,
        deployment_of(run.settings, run.engine, release_of(run.row.raw)), table,
    )  # fmt: skip


def deployment_model(run: Run) -> Any:
    import kvplan

    return kvplan.load_model(run.row.raw["model"])


def figures_of(run: Run, table: Assumptions) -> dict[str, float]:
    """Throughput, mean TTFT and TPOT of the run with these constants, in the row's units."""
    profile = profile_of(run, table)
    clock = SpeedClock(profile)
    whole = first = later = 0.0
    for step in run.steps:
        if step.chunks:
            count = step.requests - len(step.chunks)
            context = step.context - sum(new + before for new, before in step.chunks)
            lasts = clock.mixed(count, context, step.tokens, list(step.chunks))
        else:
            lasts = step_seconds(profile, step.requests, ((step.context // step.requests, 1.0),))
        whole, first, later = (
            whole + step.times * lasts, first + step.ttft * lasts, later + step.tpot * lasts
        )  # fmt: skip
    rate = {} if "rate" in run.row.load else {"output_tps": run.answers / whole}
    return rate | {
        "ttft_ms": 1000 * (first + profile.frontend_seconds),
        "tpot_ms": 1000 * later,
    }
