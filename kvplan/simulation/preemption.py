"""The load of a plan on the engine's own scheduler: how many of its requests are preempted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplan.engines.folders import part_of
from kvplan.errors import KvplanError
from kvplan.planning.levers.preemption import FINISHED, MOST_STEPS, Preempted, arrivals
from kvplan.planning.levers.situation import Situation
from kvplan.plans.arrival import Arrival
from kvplan.plans.workload import Shape
from kvplan.simulation.load.closed_loop import simulate_closed
from kvplan.simulation.schedulers import engine_of as pooled
from kvplan.simulation.schedulers import known_releases
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.time.timeline import AnyEngine

_MOST_IN_FLIGHT = 2000


def simulated(seen: Situation, loads: Sequence[int]) -> list[Preempted] | None:
    """The loads on the engine's own scheduler; None where that is not simulated, or would take too long."""
    engine = engine_of(seen)
    steps = (2 + FINISHED / max(loads)) * seen.typical.output_tokens
    if engine is None or max(loads) > _MOST_IN_FLIGHT or steps > MOST_STEPS:
        return None
    runs = [preempted(seen, engine, load, arrivals(seen.workload.shapes)) for load in loads]
    known = [one for one in runs if one is not None]
    return known if len(known) == len(runs) else None


def engine_of(seen: Situation) -> AnyEngine | None:
    """The scheduler of one pool; None where it is not simulated."""
    part = part_of(seen.choice.engine.name, "scheduling")
    if part is None:
        return None
    try:
        facts = part.scheduling(seen.model, seen.settings, seen.choice.version)
    except KvplanError:
        return None
    return pooled(facts, seen.result, known_releases(facts)[-1])


def preempted(
    seen: Situation, engine: AnyEngine, in_flight: int, coming: Iterator[Shape]
) -> Preempted | None:
    """The load of the plan's mix with so many under way; None where a request of it is never admitted.

    The first requests stand at places spread over their lives, as in a server that has been running.
    """
    wide = max(engine.unit, 16 // engine.unit * engine.unit)
    prefix = tuple(range(seen.workload.shared_prefix_tokens // wide)) if engine.caching else ()
    rows = [_row(next(coming), number, in_flight, prefix, wide) for number in range(2 * in_flight + FINISHED)]
    try:
        answer = simulate_closed(rows, wide, engine, StepTime(), in_flight)
    except KvplanError:
        return None
    counted = answer.columns["preemptions"][in_flight : in_flight + FINISHED]
    found = answer.columns["cached_tokens"]
    once = sum(row.prompt + row.answer - 1 - max(0, hit) for row, hit in zip(rows, found))
    again = max(0, answer.tokens - once)
    return Preempted(sum(one > 0 for one in counted) / FINISHED, again / max(1, answer.tokens))


def _row(shape: Shape, number: int, in_flight: int, prefix: Sequence[int], wide: int) -> Arrival:
    answer = max(1, shape.output_tokens)
    done = answer * number // in_flight if number < in_flight else 0
    prompt = max(1, shape.input_tokens)
    return Arrival(0, prompt + done, answer - done, prefix[: prompt // wide])
