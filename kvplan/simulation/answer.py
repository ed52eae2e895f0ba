"""All runs of one question together."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kvplan.errors import KvplanError
from kvplan.record import replace
from kvplan.simulate.timeline import AnyEngine
from kvplan.simulation.closed import ClosedDealt
from kvplan.simulation.disaggregated import Disaggregated
from kvplan.simulation.fleet import ROUND_ROBIN, Dealt
from kvplan.simulation.helps import helps_of
from kvplan.simulation.hits import most_hits
from kvplan.simulation.load import Load
from kvplan.simulation.outcome import Outcome, Target
from kvplan.simulation.results import ReplicasNeeded, SimulationResult
from kvplan.simulation.search import alone, on_replicas, replicas_needed, sustainable
from kvplan.simulation.served import LIKELY, Served
from kvplan.units import SECOND

AUTO = 0
"""Replicas: as many as the load needs."""


def simulate_load(
    served: Served, load: Load, *, replicas: int = 1, router: str = ROUND_ROBIN, target: Target | None = None,
    rate: Fraction | None = None, search: bool = True, helps: bool = True, concurrency: int = 0,
) -> SimulationResult:  # fmt: skip
    """The answer. replicas: `AUTO` for as many as are needed; rate: requests/s in place of the trace's own;
    search: look for the sustainable rate; helps: simulate what else would help.

    Raises KvplanError: no-times where the trace has no times and no rate is given, all-refused,
    request-never-fits …
    """
    target = Target() if target is None else target
    if rate is not None:
        load = load.at_rate(rate)
    if not load.seconds and len(load.arrivals) > 1 and not concurrency:
        raise KvplanError(
            "no-times", f"{load.name} does not say when requests come", help="--rate 4: requests a second"
        )
    if concurrency and (rate is not None or served.split is not None or router != ROUND_ROBIN):
        raise KvplanError(
            "bad-usage",
            "requests that are always under way have no rate, no router, no second kind of replicas",
            help="--concurrency 64 alone",
        )  # fmt: skip
    if concurrency:
        replicas, search, helps = replicas or 1, False, False
    check_served(load, served.engine(LIKELY))
    auto = replicas == AUTO and served.split is None
    rates, sampled = sustainable(served, load, target, router) if search or auto else (None, 0)
    needed: ReplicasNeeded | None = None
    count = replicas
    if auto:
        assert rates is not None
        needed = replicas_needed(served, load, target, router, rates)
        count = needed.likely or 1
    beyond = []
    if rates is not None and not rates.value:
        share = alone(served, load, target) * 100
        beyond.append(f"even one at a time only {share:.1f} % of requests keep the target")
    if served.split is not None:
        count = served.split.prefill + served.split.decode
    dealt = on_replicas(served, load, count, router, concurrency=concurrency)
    runs = tuple((case, _run(dealt, served, case, target)) for case in served.cases)
    engine = served.engine(LIKELY)
    result = SimulationResult(
        model=served.result.model.id, engine=served.result.engine.name, version=served.result.engine.version,
        release=engine.release, trace=load.name, form=load.form, wide=load.wide,
        rate=_rate(runs[0][1], load) if concurrency else load.rate,
        seconds=runs[0][1].end_ns / SECOND if concurrency else load.seconds,
        replicas=count, pools=served.pools, router=router, target=target,
        step_time=served.speeds.source,
        pool_blocks=tuple((name, one.blocks) for name, one in served.engines), runs=runs, needed=needed,
        sustainable=rates, sampled=sampled, split=served.split, concurrency=concurrency,
        most_hits=most_hits(load, engine) if engine.caching else 0.0,
        notes=(*load.notes, *served.notes, *_notes(runs[0][1], engine.refuses), *beyond),
    )  # fmt: skip
    if not helps or served.split is not None:
        return result
    return replace(result, helps=tuple(helps_of(served, load, result)))


def _rate(run: Outcome, load: Load) -> float:
    """Requests/s that a closed load comes to."""
    return len(load.arrivals) * SECOND / run.end_ns if run.end_ns else 0.0


def _run(
    dealt: Dealt | Disaggregated | ClosedDealt, served: Served, case: tuple[str, str], target: Target
) -> Outcome:
    return dealt.run(
        served.engine(case[0]), served.speeds.clock(case[1]), target, served.speeds.frontend(case[1])
    )


def _notes(run: Outcome, refuses: str) -> Iterator[str]:
    if run.refused:
        yield f"{run.refused:,} requests are refused: {refuses}"


def check_served(load: Load, engine: AnyEngine) -> None:
    """Raise KvplanError where the engine takes no request at all."""
    if not any(engine.takes(row.prompt) for row in load.arrivals):
        raise KvplanError(
            "all-refused",
            f"all {len(load.arrivals):,} requests of {load.name} are refused: {engine.refuses}",
            help="let the engine take longer prompts, or another trace",
        )  # fmt: skip
