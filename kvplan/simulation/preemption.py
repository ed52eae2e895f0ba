"""The load of a plan on the engine's own scheduler: how many of its requests are preempted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplan.engines.folders import part_of, title_of
from kvplan.errors import KvplanError
from kvplan.planning.levers.preemption import FINISHED, Preempted, arrivals
from kvplan.planning.levers.situation import Situation
from kvplan.plans.arrival import Arrival
from kvplan.plans.workload import Shape
from kvplan.simulation.load.closed_loop import simulate_closed
from kvplan.simulation.schedulers import engine_of as pooled
from kvplan.simulation.schedulers import known_releases
from kvplan.simulation.served import accepted_of
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.time.timeline import AnyEngine

_MOST_IN_FLIGHT = 2000
_MOST_STEPS = 200_000


def simulated(seen: Situation, loads: Sequence[int]) -> list[Preempted] | str:
    """The loads on the engine's own scheduler; why there is no answer where they are not simulated."""
    steps = (2 + FINISHED / max(loads)) * seen.typical.output_tokens
    if max(loads) > _MOST_IN_FLIGHT or steps > _MOST_STEPS:
        return f"{max(loads):,} requests in flight take too long to simulate"
    try:
        engine = engine_of(seen)
    except KvplanError as error:
        return error.message
    runs = [preempted(seen, engine, load, arrivals(seen.workload.shapes)) for load in loads]
    known = [one for one in runs if one is not None]
    return known if len(known) == len(runs) else "a request of the mix is never admitted"


def engine_of(seen: Situation) -> AnyEngine:
    """The scheduler of one pool. Raises KvplanError(not-simulated, no-acceptance …)."""
    name = seen.choice.engine.name
    part = part_of(name, "scheduling")
    if part is None:
        raise KvplanError("not-simulated", f"the scheduler of {title_of(name)} is not known here")
    facts = part.scheduling(seen.model, seen.settings, seen.choice.version)
    accepted = accepted_of(facts, seen.workload.acceptance, [])
    return pooled(facts, seen.result, known_releases(facts)[-1], accepted)


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
