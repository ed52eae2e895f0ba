"""Estimates for a plan: the speed of one replica at this load, the memory levers of its best option (links
from the GPU's file, prefill times from the estimate), engines that only prefill."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from pathlib import Path

from kvplan.api.planning.again import Given
from kvplan.assumption import Assumptions
from kvplan.deployment.counts import kv_dtypes_to_compare
from kvplan.engines.base import Choice, parse_version
from kvplan.errors import KvplanError
from kvplan.files.speed import speed_assumptions, speed_inputs
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.planning.ask import Ask
from kvplan.planning.levers import Lever, Link, PrefillTime, Seconds, Situation, levers
from kvplan.planning.pools import Pools, decode_requests, pools_of
from kvplan.planning.quality import kv_quality
from kvplan.planning.results import Option, PlanResult
from kvplan.planning.speed import link_bandwidth, prefill_seconds, speed_profile
from kvplan.planning.speed.estimate import spread
from kvplan.planning.speed.links import NVLINK, PCIE
from kvplan.planning.speed.profile import deployment_of
from kvplan.plans.fleet import Offer
from kvplan.plans.plan import FleetPlan
from kvplan.plans.workload import Workload
from kvplan.record import replace
from kvplan.settings import pools_per_replica
from kvplan.units import ceil_div

_C2C = "nvlink-c2c"
_GRACE = ("gh200", "gb200", "gb300")
"""GPUs whose host is reached over NVLink-C2C, whatever PCIe they have."""
NETWORK = "infiniband-ndr"
"""Between nodes, where no fleet file says what they have."""


def levers_of(
    model: Model, choice: Choice, option: Option, offer: Offer, workload: Workload, quality: str,
    host_memory: int = 0,
) -> tuple[Lever, ...]:  # fmt: skip
    """Every lever for one replica of the option. host_memory: bytes of a tier over all GPUs of the plan."""
    seen = Situation(model, choice, option.settings, workload, option.requests_per_engine)
    return levers_here(seen, offer, quality, host_memory // option.replicas)


def levers_here(
    seen: Situation, offer: Offer, quality: str, host_memory: int = 0, *, simulated: bool = True
) -> tuple[Lever, ...]:
    """Every lever for one replica. host_memory: bytes of a tier for it. simulated: also what only a
    simulation of the load says, which may take a minute."""
    table = speed_assumptions()
    host = _host(offer.gpu, table)
    mean = seen.typical
    bound = mean.input_tokens > mean.output_tokens > 0
    return levers(
        seen,
        tiers=[(host, host_memory)] if host is not None else [],
        transfers=list(_between(offer, table)),
        prefill=_prefill(seen, offer, table),
        formats=[
            dtype
            for dtype in kv_dtypes_to_compare(seen.model)
            if kv_quality(seen.model, dtype, prefill_bound=bound).allowed(quality)
        ],
        simulated=simulated,
    )


def links_of(offer: Offer) -> tuple[Link, ...]:
    """Links from one engine to another."""
    return tuple(_between(offer, speed_assumptions()))


def prefill_of(seen: Situation, offer: Offer) -> PrefillTime:
    """How long a prompt takes alone on one engine, where that is estimated."""
    return _prefill(seen, offer, speed_assumptions())


def _link(gpu: Gpu, kind: str, table: Assumptions) -> Link | None:
    try:
        found = link_bandwidth(gpu, kind, table)
    except KvplanError:
        return None
    sources = "; ".join(f"{one.name}: {one.source}" for one in found.assumptions[:-2])
    return Link(_NAMES.get(kind, kind), int(found.value), int(found.low), int(found.high), 0.0, sources)


_NAMES = {NVLINK: "NVLink", PCIE: "PCIe", _C2C: "NVLink-C2C"}


def _host(gpu: Gpu, table: Assumptions) -> Link | None:
    """From the GPU to its host's memory; None where they are one, or the link is not known."""
    if gpu.is_unified_memory:
        return None
    return _link(gpu, _C2C if gpu.slug.startswith(_GRACE) else PCIE, table)


def _between(offer: Offer, table: Assumptions) -> Iterator[Link]:
    """Links to another engine: inside the node, and over the network."""
    inside = _link(offer.gpu, NVLINK, table)
    if inside is not None:
        yield inside
    rate = offer.node_bytes_per_second
    if rate is not None:
        yield Link("the fleet's network", rate, rate, rate, 0.0, "node_bandwidth of the fleet file")
    elif (assumed := _link(offer.gpu, NETWORK, table)) is not None:
        yield assumed


def _prefill(seen: Situation, offer: Offer, table: Assumptions) -> PrefillTime:
    """Seconds of a prompt alone on one replica, by the roofline; nothing where it is not estimated."""
    model, settings, engine = seen.model, seen.settings, seen.choice.engine.name
    try:
        inventory, per_token, _ = speed_inputs(model, settings.quantization)
        release = parse_version(seen.choice.version)
        served = deployment_of(settings, engine, release, network=offer.node_bytes_per_second)
        profile = speed_profile(model, offer.gpu, inventory, per_token, served, table)
    except KvplanError:
        return lambda _: None
    around = spread(profile, "prefill")

    def seconds(tokens: int) -> Seconds | None:
        value = prefill_seconds(profile, max(tokens, 1))
        return Seconds(value, value * around.low, value * around.high)

    return seconds


def answers_of(load: Workload, given: Given) -> int:
    """Requests in flight where answers are made. Raises KvplanError(bad-usage)."""
    rate, ttft, tpot = load.requests_per_second, load.ttft_seconds, load.tpot_seconds
    if given.requests is not None or rate is None or ttft is None or tpot is None:
        raise KvplanError(
            "bad-usage",
            "prefill engines are sized by the rate of arrivals and by the latency targets",
            help="--arrival 3/s --ttft 2s --tpot 50ms, without --requests",
        )
    if given.pareto:
        raise KvplanError(
            "bad-usage",
            "the rows of --pareto are engines of one kind",
            help="one of --pareto and --disaggregated",
        )
    return decode_requests(rate, Fraction(load.mean(name="output_tokens")), tpot)


def with_pools(
    ask: Ask, result: PlanResult, load: Workload, goodput: Fraction, trace: str | Path | None
) -> PlanResult:
    """The result whose best plan has engines of both kinds, as many of each as a simulation of the arrivals
    says where it serves such engines; where their number is not known, none is best."""
    best = result.options[0]
    result = replace(result, rate=float(load.requests_per_second or 0))
    model, offer = chosen(ask, best)
    seen = Situation(model, ask.choice, best.settings, load, best.requests_per_engine)
    each = best.gpus // best.replicas
    assert load.ttft_seconds is not None
    try:
        pools = pools_of(
            seen, links_of(offer), prefill_of(seen, offer), ttft=float(load.ttft_seconds),
            decode=best.replicas, gpus=each, ranks=pools_per_replica(best.settings),
        )  # fmt: skip
    except KvplanError as error:
        return _none(result, error.message)
    plan = result.plan
    if plan is not None:
        from kvplan.api.planning.rate import with_split
        from kvplan.simulation.sides import Sides

        first = Sides(pools.prefill_replicas, pools.decode_replicas)
        plan, simulated, said = with_split(plan, model, first, goodput, trace)
        if plan is None:
            return _none(result, *said)
        result = replace(result, simulated=simulated, warnings=(*result.warnings, *said))
        if simulated is not None:  # the estimate is of engines that do both
            best = replace(best, speed=None)
        if plan.fleet.prefill_replicas:
            pools = replace(
                pools, prefill_replicas=plan.fleet.prefill_replicas, gpus=plan.gpus,
                decode_replicas=plan.fleet.decode_replicas,
            )  # fmt: skip
    if ask.max_gpus is not None and pools.gpus > ask.max_gpus:
        few = f"engines of both kinds take {pools.gpus:,} GPUs, and {ask.max_gpus:,} may be used"
        return _none(result, few)
    if plan is not None:
        fleet = FleetPlan(prefill_replicas=pools.prefill_replicas, decode_replicas=pools.decode_replicas)
        name = plan.name.replace(f"-{best.gpus}x-", f"-{pools.gpus}x-")
        plan = replace(plan, name=name, gpus=pools.gpus, fleet=fleet)
    return replace(
        result, plan=plan, options=(_with_both(best, pools),), own=None, more_options=0, pools=pools
    )


def _none(result: PlanResult, *said: str) -> PlanResult:
    """The result where engines of both kinds do not serve the load."""
    return replace(
        result, plan=None, options=(), own=None, more_options=0, warnings=(*result.warnings, *said)
    )


def _with_both(best: Option, pools: Pools) -> Option:
    """The option with engines of both kinds: all GPUs, and what the engines for answers hold."""
    share, answers = Fraction(pools.gpus, best.gpus), pools.decode_replicas
    memory = best.memory_requests
    each = ceil_div(best.requests_per_engine * best.replicas, answers)
    cost, million = best.cost_per_hour, best.cost_per_million_tokens
    low, likely, high = (float(one * share) for one in million or (0, 0, 0))
    return replace(
        best,
        gpus=pools.gpus,
        replicas=pools.prefill_replicas + answers,
        nodes=ceil(best.nodes * share),
        requests=best.requests // best.replicas * answers,
        safe_requests=best.safe_requests // best.replicas * answers,
        memory_requests=None if memory is None else memory // best.replicas * answers,
        requests_per_engine=min(each, best.max_num_seqs),
        cost_per_hour=None if cost is None else cost * share,
        cost_per_million_tokens=None if million is None else (low, likely, high),
    )


def chosen(ask: Ask, best: Option) -> tuple[Model, Offer]:
    """The checkpoint and the offer of an option."""
    model = next(one.model for one in ask.variants if (one.model.id, one.label) == (best.model, best.weights))
    return model, next(one for one in ask.offers if (one.gpu.slug, one.where) == (best.gpu, best.where))
