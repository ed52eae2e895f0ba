"""What else would help: other settings, one at a time, with the likely pool and speed, each simulated."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.deployment.counts import kv_dtypes_to_compare
from kvplan.errors import KvplanError
from kvplan.record import replace
from kvplan.simulate.timeline import AnyEngine
from kvplan.simulation.fleet import PREFIX_HASH, Dealt
from kvplan.simulation.load import Load
from kvplan.simulation.offloading import asked_offload, offload_of
from kvplan.simulation.outcome import Outcome, Target, percentile
from kvplan.simulation.results import Help, SimulationResult
from kvplan.simulation.served import ESTIMATE, LIKELY, Served, serve
from kvplan.units import GIB, SECOND

HALF = "fp8"
OTHERS = ("least-loaded", PREFIX_HASH, "session", "cache-aware", "llm-d", "dynamo")
"""Routers that are tried besides the one asked for; the best is shown."""
_WORTH = 0.01
"""A cache without limit must have so much more of the prompts for a larger one to be tried."""


def helps_of(served: Served, load: Load, result: SimulationResult) -> Iterator[Help]:
    count, target = result.replicas * served.pools, result.target
    before, engine = result.likely, served.engine(LIKELY)
    dealt = Dealt(load, count, result.router)

    def of(what: str, run: Outcome) -> Help:
        return Help(what, run.hit_rate, run.goodput, percentile(run.ttft, 0.99) / SECOND)

    if not before.keeps(target) or before.goodput < 1:
        more = Dealt(load, count + served.pools, result.router)
        yield of(f"replicas {result.replicas + 1}", _run(more, served, engine, target))
    if count > 1 and load.has_identities:
        others = [
            (router, _run(Dealt(load, count, router), served, engine, target))
            for router in OTHERS if router != result.router
        ]  # fmt: skip
        best, outcome = max(others, key=lambda other: (other[1].goodput, other[1].hit_rate))
        yield of(f"router {best}", outcome)
    lacks = before.hit_rate < result.most_hits - _WORTH
    if lacks or before.preempted or not before.keeps(target):
        run = _with_half(served, dealt, target)
        if run is not None:
            yield of(f"kv-cache-dtype {HALF}", run)
    cached = engine.with_caching()
    if cached is not None and load.has_identities:
        yield of(cached.caching_word, _run(dealt, served, cached, target))
    if lacks and engine.caching and engine.offload is None:
        tier = host_tier(served, load)
        kept = None if tier is None else _with_host(served, tier)
        if kept is not None:
            yield of(f"offload {tier}", _run(dealt, served, kept, target))


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


def _with_half(served: Served, dealt: Dealt, target: Target) -> Outcome | None:
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


def _run(dealt: Dealt, served: Served, engine: AnyEngine, target: Target) -> Outcome:
    return dealt.run(engine, served.speeds.clock(LIKELY), target, served.speeds.frontend(LIKELY))
