"""`kvplan.plan(…, disaggregated=True)`: engines for prompts beside those that were found for answers."""

from __future__ import annotations

from fractions import Fraction

from kvplan.api.planning.again import Given
from kvplan.api.planning.levers import links_of, prefill_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.planning.ask import Ask
from kvplan.planning.levers import Situation
from kvplan.planning.pools import decode_requests, pools_of
from kvplan.planning.results import Option, PlanResult
from kvplan.plans.fleet import Offer
from kvplan.plans.plan import FleetPlan
from kvplan.plans.workload import Workload
from kvplan.record import replace


def answers_of(load: Workload, given: Given) -> int:
    """Requests in flight where answers are made. Raises KvplanError(bad-usage)."""
    rate, ttft, tpot = load.requests_per_second, load.ttft_seconds, load.tpot_seconds
    if given.requests is not None or rate is None or ttft is None or tpot is None:
        raise KvplanError(
            "bad-usage",
            "engines for prompts are sized by how fast requests arrive and how soon their tokens must come",
            help="--arrival 3/s --ttft 2s --tpot 50ms, without --requests",
        )
    return decode_requests(rate, Fraction(load.mean(name="output_tokens")), tpot)


def with_pools(ask: Ask, result: PlanResult, load: Workload) -> PlanResult:
    """The result whose best plan has engines of both kinds; where their number is not known, none is best."""
    best = result.options[0]
    model, offer = chosen(ask, best)
    seen = Situation(model, ask.choice, best.settings, load, best.requests_per_engine)
    each = best.gpus // best.replicas
    assert load.ttft_seconds is not None
    try:
        pools = pools_of(
            seen, links_of(offer), prefill_of(seen, offer), ttft=float(load.ttft_seconds),
            decode=best.replicas, gpus=each,
        )  # fmt: skip
    except KvplanError as error:
        return replace(result, best=None, warnings=(*result.warnings, f"no pools: {error.message}"))
    if ask.max_gpus is not None and pools.gpus > ask.max_gpus:
        said = f"engines of both kinds take {pools.gpus:,} GPUs, and {ask.max_gpus:,} may be used"
        return replace(result, best=None, pools=pools, warnings=(*result.warnings, said))
    plan = result.best
    if plan is not None:
        fleet = FleetPlan(prefill_replicas=pools.prefill_replicas, decode_replicas=pools.decode_replicas)
        plan = replace(plan, gpus=pools.gpus, fleet=fleet)
    return replace(result, best=plan, pools=pools)


def chosen(ask: Ask, best: Option) -> tuple[Model, Offer]:
    """The checkpoint and the offer of an option."""
    model = next(
        one.model for one in ask.variants if (one.model.id, one.label) == (best.model_id, best.weights)
    )
    return model, next(one for one in ask.offers if (one.gpu.slug, one.where) == (best.gpu, best.where))
