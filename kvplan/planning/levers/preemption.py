"""How many requests are preempted and computed again when the load is larger than the pool.

vllm-project/vllm v1/core/sched/scheduler.py (0.33), replayed with a closed load: as soon as one request ends
the next arrives. Where the engine's own scheduler is simulated (`kvplan.simulation.preemption`), it answers
instead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from kvplan.engines.budget.sharing import block_of
from kvplan.engines.traits import traits_of
from kvplan.planning.levers.results import Effect, Lever
from kvplan.planning.levers.situation import SEVERAL_POOLS, Situation
from kvplan.plans.workload import Shape
from kvplan.record import record
from kvplan.units import ceil_div, round_up
from kvplan.wings import wing

_GOLDEN = 2654435769
"""2**32 divided by the golden ratio."""
_WORD = 2**32
FINISHED = 600
"""Requests that are counted; those before them fill the pool, those after them keep it full."""
MOST_LENGTHS = 8192
"""Lengths of a request at which the replay looks, at most."""
MOST_STEPS = 200_000


class Run:
    """One request: ``length`` computed tokens; ``done`` when it reaches shape.tokens."""

    __slots__ = ("generated", "length", "preempted", "shape")

    def __init__(self, shape: Shape, generated: int = 0) -> None:
        self.shape, self.generated = shape, generated
        self.length = shape.input_tokens + generated
        self.preempted = False


class Tally:
    """Counts of a replay. tokens: computed in all; again: of these, computed before."""

    def __init__(self) -> None:
        self.finished = self.preempted = self.preemptions = self.tokens = self.again = 0

    @property
    def share(self) -> float:
        """Of the requests that ended, how many had been preempted."""
        return self.preempted / self.finished if self.finished else 0.0


def preemption(seen: Situation) -> Lever:
    """The share of requests preempted at the plan's load, and with a tenth less and more."""
    never = traits_of(seen.choice.engine.name).never_preempts
    if never is not None:
        return Lever("preemption", f"none: {never}", applies=False)
    if seen.workload.samples > 1:
        return Lever("preemption", "not computed for several samples of a prompt", applies=False)
    if not seen.is_one_pool:
        return Lever("preemption", SEVERAL_POOLS, applies=False)
    wanted = min(seen.requests, seen.pool.max_num_seqs)
    loads = [max(1, wanted * part // 10) for part in (10, 9, 11)]
    simulated: list[Preempted] | None = wing("simulation.preemption").simulated(seen, loads)
    if simulated is None:
        tallies = [_replayed(seen, load) for load in loads]
        if tallies[0].finished == 0:
            return Lever("preemption", "not one request of the mix fits the pool", applies=False)
        simulated = [Preempted(one.share, one.again / max(1, one.tokens)) for one in tallies]
        assumed = _ASSUMED
    else:
        assumed = _SIMULATED
    now, shares = simulated[0], sorted(one.share for one in simulated)
    again = sorted(one.again for one in simulated)
    effects = (
        Effect("requests preempted", now.share, "share", shares[0], shares[-1]),
        Effect("tokens computed again", now.again, "share", again[0], again[-1]),
    )
    what = "none" if not now.share else f"about {now.share:.0%}"
    summary = f"{what} of the requests {'is' if not now.share else 'are'} preempted with {wanted:,} in flight"
    if shares[-1] > now.share:
        summary += f"; about {shares[-1]:.0%} with a tenth more"
    return Lever("preemption", summary, effects, (assumed,), shares[-1] > 0)


_ASSUMED = (
    "a closed load; prompts take no time; no prompt but the shared prefix is found in the cache; ± 10 % of"
    " the load"
)


_SIMULATED = (
    "a closed load on the engine's own scheduler, a step of 6 ms and 25 µs a token; no prompt but the shared"
    " prefix is found in the cache; ± 10 % of the load"
)


def _replayed(seen: Situation, in_flight: int) -> Tally:
    """A prefix that all prompts have in common is held once, where the engine holds it so."""
    block = block_of(seen.result)
    prefix = seen.workload.shared_prefix_tokens // block * block if block else 0
    once = seen.held_bytes(prefix) if prefix else 0

    def held(tokens: int) -> int:
        return max(0, seen.held_bytes(tokens) - once)

    # Of a long request blocks are taken some at a time: as many lengths are asked for as of a short one.
    stride = round_up(ceil_div(seen.workload.longest, MOST_LENGTHS), seen.block_size)
    return replay(
        seen.workload.shapes,
        in_flight,
        max(0, seen.usable_bytes - once),
        held,
        stride,
        seen.pool.max_num_seqs,
    )


def replay(
    shapes: Sequence[Shape],
    in_flight: int,
    usable: int,
    held: Callable[[int], int],
    stride: int,
    max_num_seqs: int,
    finished: int = FINISHED,
) -> Tally:
    """Run the scheduler in steps of ``stride`` tokens until so many requests have ended.

    held: bytes of a request of a length. The first requests start spread over their lives, and those that
    start before anything has ended in turn are not counted.
    """
    tally, coming = Tally(), arrivals(shapes)
    running: list[Run] = []
    waiting: deque[Run] = deque()
    for index in range(in_flight):
        shape = next(coming)
        waiting.append(Run(shape, shape.output_tokens * index // in_flight))
    used, ended, warm = 0, 0, in_flight
    for _ in range(MOST_STEPS):
        stuck = not running
        used, freed = _grow(running, waiting, used, usable, held, stride, tally)
        for run in [one for one in running if one.generated >= one.shape.output_tokens]:
            running.remove(run)
            used -= held(run.length)
            ended += 1
            if ended > warm:
                tally.finished += 1
                tally.preempted += run.preempted
            waiting.append(Run(next(coming)))
        if tally.finished >= finished:
            return tally
        # One that waits is admitted while its whole prompt fits, unless the step preempted.
        while waiting and not freed and len(running) < max_num_seqs:
            need = held(waiting[0].length)
            if used + need > usable:
                break
            run = waiting.popleft()
            running.append(run)
            used += need
            tally.tokens += run.length
            tally.again += run.length if run.preempted else 0
        if stuck and not running:
            return tally
    return tally


def _grow(
    running: list[Run],
    waiting: deque[Run],
    used: int,
    usable: int,
    held: Callable[[int], int],
    stride: int,
    tally: Tally,
) -> tuple[int, bool]:
    """Every running request grows, oldest first: no room is kept for output, and where there is none the
    newest goes to the head of the queue, to be computed from nothing later."""
    freed, index = False, 0
    while index < len(running):
        run = running[index]
        step = min(stride, run.shape.output_tokens - run.generated)
        more = held(run.length + step) - held(run.length)
        if used + more > usable:
            last = running.pop()
            used -= held(last.length)
            last.preempted = freed = True
            tally.preemptions += 1
            waiting.appendleft(last)
            continue
        used += more
        run.length += step
        run.generated += step
        tally.tokens += step
        index += 1
    return used, freed


def arrivals(shapes: Sequence[Shape]) -> Iterator[Shape]:
    """Shapes in the proportions of their weights, spread evenly, for ever, without chance: the same plan
    gives the same answer."""
    bounds = list(accumulate(shape.weight for shape in shapes))
    place = 0
    while True:
        place = (place + _GOLDEN) % _WORD
        yield shapes[bisect_right(bounds, place * bounds[-1] // _WORD)]


@record()
class Preempted:
    """share: of the counted requests, how many were preempted; again: of all computed tokens, how many were
    computed before."""

    share: float
    again: float
