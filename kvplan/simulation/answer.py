"""All runs of one question together, and what else would help: other settings, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kvplan.deployment.counts import kv_dtypes_to_compare
from kvplan.errors import KvplanError
from kvplan.record import replace
from kvplan.simulation.cache_only.hits import most_hits
from kvplan.simulation.fleet.closed import ClosedDealt
from kvplan.simulation.fleet.disaggregated import Disaggregated
from kvplan.simulation.fleet.run import PREFIX_HASH, ROUND_ROBIN, Dealt
from kvplan.simulation.hours import needs_of
from kvplan.simulation.load.load import Load
from kvplan.simulation.offload_tiers import asked_offload, offload_of
from kvplan.simulation.outcome import Outcome, Target, percentile
from kvplan.simulation.results import Help, Rates, ReplicasNeeded, SimulationResult
from kvplan.simulation.search import Question, on_replicas, shown_alone, sustainable
from kvplan.simulation.served import ESTIMATE, LIKELY, Served, serve
from kvplan.simulation.time.timeline import AnyEngine
from kvplan.units import GIB, SECOND

AnyDealt = Dealt | Disaggregated | ClosedDealt
AUTO = 0
"""Replicas: as many as the load needs."""


def simulate_load(
    served: Served, load: Load, *, replicas: int = 1, router: str = ROUND_ROBIN, target: Target | None = None,
    rate: Fraction | None = None, search: bool = True, helps: bool = True, concurrency: int = 0,
    hours: bool = False,
) -> SimulationResult:  # fmt: skip
    """The answer. replicas: `AUTO` for as many as are needed; rate: requests/s in place of the trace's own;
    search: look for the sustainable rate; helps: simulate what else would help; hours: the replicas that each
    hour needs.

    Raises KvplanError: no-times where the trace has no times and no rate is given, all-refused,
    request-never-fits …
    """
    target = Target() if target is None else target
    if rate is not None:
        load = load.at_rate(rate)
    if concurrency:
        _check_closed(served, router, rate, hours)
        replicas, search, helps = replicas or 1, False, False
    else:
        _check_times(load)
    check_served(load, served.engine(LIKELY))
    by_hour = needs_of(served, load, target, router, asked=hours)
    auto = replicas == AUTO and served.split is None
    rates, sampled = sustainable(served, load, target, router) if search or auto else (None, 0)
    question = Question(served, load, router, target)
    needed: ReplicasNeeded | None = None
    count = replicas
    if auto:
        assert rates is not None
        needed = question.needed(rates)
        count = needed.likely or 1
    if served.split is not None:
        count = served.split.prefill + served.split.decode
    runs = _cases(question, count, concurrency)
    engine, first = served.engine(LIKELY), runs[0][1]
    notes = _notes(question, rates, first)
    came, seconds = _came(load, first, closed=concurrency > 0)
    result = SimulationResult(
        model=served.result.model.id, engine=served.result.engine.name, version=served.result.engine.version,
        release=engine.release, trace=load.name, form=load.form, wide=load.wide,
        rate=came, seconds=seconds, replicas=count, pools=served.pools, router=router, target=target,
        step_time=served.speeds.source,
        pool_blocks=tuple((name, one.blocks) for name, one in served.engines), runs=runs, needed=needed,
        sustainable=rates, sampled=sampled, split=served.split, concurrency=concurrency,
        most_hits=most_hits(load, engine) if engine.caching else 0.0,
        hours=by_hour, notes=notes,
    )  # fmt: skip
    if not helps or served.split is not None:
        return result
    return replace(result, helps=tuple(helps_of(question, result)))


def _cases(question: Question, count: int, concurrency: int) -> tuple[tuple[tuple[str, str], Outcome], ...]:
    """The whole run of every pool and speed."""
    served, target = question.served, question.target
    if not concurrency and served.split is None:
        return tuple((case, question.runs(case).whole(count)) for case in served.cases)
    dealt = on_replicas(served, question.load, count, question.router, concurrency=concurrency)
    return tuple(
        (case, _run(dealt, served, served.engine(case[0]), target, case[1])) for case in served.cases
    )


def _notes(question: Question, rates: Rates | None, first: Outcome) -> tuple[str, ...]:
    served, load = question.served, question.load
    notes = [*load.notes, *served.notes]
    if first.refused:
        notes.append(f"{first.refused:,} requests are refused: {served.engine(LIKELY).refuses}")
    if rates is not None and not rates.value:
        share = shown_alone(served, load, question.target, (LIKELY, LIKELY)).goodput * 100
        notes.append(f"even one at a time only {share:.1f} % of requests keep the target")
    return tuple(notes)


def _check_times(load: Load) -> None:
    if not load.seconds and len(load.arrivals) > 1:
        raise KvplanError(
            "no-times", f"{load.name} does not say when requests come", help="--rate 4: requests a second"
        )


def _check_closed(served: Served, router: str, rate: Fraction | None, hours: bool) -> None:
    """Raise KvplanError where a closed load is given what only arrivals have."""
    if rate is not None or served.split is not None or router != ROUND_ROBIN or hours:
        raise KvplanError(
            "bad-usage",
            "requests that are always under way have no rate, hours, router or second kind of replicas",
            help="--concurrency 64 alone",
        )


def _came(load: Load, run: Outcome, *, closed: bool) -> tuple[float, float]:
    """Requests/s and seconds of a load: the trace's own, or what a closed one comes to."""
    if not closed:
        return load.rate, load.seconds
    return len(load.arrivals) * SECOND / run.end_ns if run.end_ns else 0.0, run.end_ns / SECOND


def _run(
    dealt: AnyDealt, served: Served, engine: AnyEngine, target: Target,
    speed: str = LIKELY,
) -> Outcome:  # fmt: skip
    return dealt.run(engine, served.speeds.clock(speed), target, served.speeds.frontend(speed))


def check_served(load: Load, engine: AnyEngine) -> None:
    """Raise KvplanError where the engine takes no request at all."""
    if not any(engine.takes(row.prompt) for row in load.arrivals):
        raise KvplanError(
            "all-refused",
            f"all {len(load.arrivals):,} requests of {load.name} are refused: {engine.refuses}",
            help="let the engine take longer prompts, or another trace",
        )  # fmt: skip


HALF = "fp8"
OTHERS = ("least-loaded", PREFIX_HASH, "session", "cache-aware", "llm-d", "dynamo")
"""Routers that are tried besides the one asked for; the best is shown."""
_WORTH = 0.01
"""A cache without limit must have so much more of the prompts for a larger one to be tried."""


def helps_of(question: Question, result: SimulationResult) -> Iterator[Help]:
    """Other settings with the likely pool and speed, each simulated."""
    served, load, target = question.served, question.load, result.target
    before, engine = result.likely, served.engine(LIKELY)
    dealt = on_replicas(served, load, result.replicas, result.router)
    assert isinstance(dealt, Dealt)

    def of(what: str, run: Outcome) -> Help:
        return Help(what, run.hit_rate, run.goodput, percentile(run.ttft, 0.99) / SECOND)

    if not before.keeps(target) or before.goodput < 1:
        more = question.runs((LIKELY, LIKELY)).whole(result.replicas + 1)
        yield of(f"replicas {result.replicas + 1}", more)
    pools = result.replicas if served.ranks is not None else result.replicas * served.pools
    if pools > 1 and load.has_identities:
        router, run = best_router(question, result.replicas)
        yield of(f"router {router}", run)
    lacks = before.hit_rate < result.most_hits - _WORTH
    if lacks or before.preempted or not before.keeps(target):
        narrow = _with_half(served, dealt, target)
        if narrow is not None:
            yield of(f"kv-cache-dtype {HALF}", narrow)
    cached = engine.with_caching()
    if cached is not None and load.has_identities:
        yield of(cached.caching_word, _run(dealt, served, cached, target))
    if lacks and engine.caching and engine.offload is None:
        tier = host_tier(served, load)
        kept = None if tier is None else _with_host(served, tier)
        if kept is not None:
            yield of(f"offload {tier}", _run(dealt, served, kept, target))


def best_router(question: Question, replicas: int) -> tuple[str, Outcome]:
    """The other router that most requests keep the target with, of equal ones that with more hits, and its
    run. Those that mostly are the best come first: a run in which more requests miss the target than under
    the best one ends there."""
    served, target = question.served, question.target
    how = served.engine(LIKELY), served.speeds.clock(LIKELY), target, served.speeds.frontend(LIKELY)
    best: tuple[float, float, int] | None = None
    found: tuple[str, Outcome] | None = None
    for router in reversed(OTHERS):
        if router == question.router:
            continue
        dealt = on_replicas(served, question.load, replicas, router)
        assert isinstance(dealt, Dealt)
        most = len(dealt.load.arrivals) if found is None else found[1].requests - found[1].good
        run = dealt.missing(most, *how)
        if run is None:
            continue
        rank = run.goodput, run.hit_rate, -OTHERS.index(router)
        if best is None or rank > best:
            best, found = rank, (router, run)
    assert found is not None
    return found


def host_tier(served: Served, load: Load) -> str | None:
    """``cpu:64GiB``: as much host memory as its GPUs have, in whole powers of two, kept in chunks as wide as
    the trace's identities; None where the GPUs have none of their own."""
    gpu = served.settings.gpu
    total = 0 if gpu is None or gpu.is_unified_memory else (gpu.memory_total_bytes or 0)
    size = served.gpus * total // GIB
    if not size:
        return None
    block = served.engine(LIKELY).block
    chunk = f",chunk={load.wide}" if load.wide > block and load.wide % block == 0 else ""
    return f"cpu:{1 << (size.bit_length() - 1)}GiB{chunk}"


def _with_host(served: Served, tier: str) -> AnyEngine | None:
    """The engine with that tier, None where it cannot have one."""
    engine = served.engine(LIKELY)
    try:
        offload = offload_of(
            asked_offload(tier), served.result, served.settings, served.speeds.clock(LIKELY), engine.block, []
        )
        kept = engine.with_offload(offload)
        kept.check()
    except KvplanError:
        return None
    return kept


def _with_half(served: Served, dealt: AnyDealt, target: Target) -> Outcome | None:
    """With a cache of half the width: its own pool, its own step time."""
    if served.settings.kv_cache_dtype != "auto" or HALF not in kv_dtypes_to_compare(served.model):
        return None
    changed = replace(served.settings, kv_cache_dtype=HALF)
    if served.speeds.source != ESTIMATE:  # how long its steps would take is not known
        return None
    try:
        other = serve(served.model, served.choice, changed, pool=LIKELY, pools=served.pools)
        return _run(dealt, other, other.engine(LIKELY), target)
    except KvplanError:
        return None
