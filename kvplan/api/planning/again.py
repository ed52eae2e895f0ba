"""A plan as the keywords of `kvplan.plan` that ask for the same, and what no keyword says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from kvplan.api import changed_settings
from kvplan.api.planning.inputs import GpuLike, Sizes, choices_of
from kvplan.engines.base import Choice
from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.planning import from_plan
from kvplan.planning.ask import CONTEXT, FEWEST, REQUESTS, Demand
from kvplan.plans.fleet import Fleet, Offer, Prices
from kvplan.plans.plan import Plan, trace_file
from kvplan.plans.workload import Workload
from kvplan.record import replace
from kvplan.settings import Settings

Number = Fraction | float | str | None


class Given(NamedTuple):
    """The keywords of `kvplan.plan`, as they were given."""

    engine: str | Sequence[str] | None = None
    requests: int | None = None
    tokens: int | str | None = None
    workload: Workload | None = None
    shared_prefix: int | str | None = None
    samples: int | None = None
    arrival: Number = None
    gpu: GpuLike | None = None
    fleet: Fleet | None = None
    objective: str = FEWEST
    quality: str | None = None
    max_gpus: int | None = None
    tp: Sizes = None
    pp: Sizes = None
    dp: Sizes = None
    dcp: Sizes = None
    enable_expert_parallel: bool | None = None
    kv_cache_dtype: str | Sequence[str] | None = None
    max_num_seqs: Sizes = None
    max_model_len: int | str | Sequence[int] | None = None
    headroom: Number = None
    pool: str | None = None
    tpot: Number = None
    ttft: Number = None
    goodput: Number = None
    burstiness: Number = None
    acceptance: float | str | None = None
    trace: str | Path | None = None
    top: int = 1
    pareto: bool = False
    depth: bool = True
    levers: bool = False
    disaggregated: bool = False
    host_memory: int | str | None = None
    named: str | None = None
    prices: Prices | None = None


class Extra(NamedTuple):
    """Requirements that a plan adds to the keywords. own_only: no other checkpoint; least: tokens that the
    engine must serve."""

    plan: Plan | None = None
    also: tuple[Demand, ...] = ()
    kept: int = 0
    max_cost: Fraction | None = None
    own_only: bool = False
    least: int = 0

    def settings(
        self, choice: Choice, base: Settings, typed: Mapping[str, Any] | None
    ) -> tuple[Settings, tuple[str, ...]]:
        """(settings of all candidates of an engine, what of the plan is left out, in words)."""
        if self.plan is None:
            return base, ()
        settings, notes = from_plan.settings_for(self.plan, choice, base)
        return changed_settings(settings, typed or {}), notes

    def priced(self, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """The offers, the plan's own GPU at its price where none is stated."""
        if self.plan is None or self.plan.price_per_gpu_hour is None or self.plan.settings.gpu is None:
            return offers
        slug, price = self.plan.settings.gpu.slug, self.plan.price_per_gpu_hour
        return tuple(
            replace(one, price_per_gpu_hour=price)
            if one.gpu.slug == slug and one.price_per_gpu_hour is None
            else one
            for one in offers
        )


def again_of(plan: Plan, given: Given) -> tuple[Given, Extra]:
    """(keywords, what else). What was given beside the plan counts first: another load (tokens, a workload)
    replaces the workload and the requests that are required, another number both numbers."""
    own, require = from_plan.load_of(plan, given.requests), plan.require
    _check_counted(plan, given)
    replaced = given.tokens is not None or given.workload is not None
    longest = 0 if replaced else own.longest
    changes: dict[str, Any] = (
        _load(own, given) if not replaced else {"requests": given.requests or own.requests}
    )
    stated = from_plan.length_of(plan, longest)
    if stated and given.objective != CONTEXT:
        changes |= {"max_model_len": stated} if given.max_model_len is None else {}
        changes |= {"tokens": stated} if not replaced and own.mix is None else {}
    if given.gpu is None and given.fleet is None:
        changes["gpu"] = plan.settings.gpu
        if given.max_gpus is None and given.objective in (CONTEXT, REQUESTS):
            changes["max_gpus"] = plan.gpus
    changes |= {name: value for name, value in _fallback(plan, given).items() if getattr(given, name) is None}
    extra = Extra(
        plan,
        also=() if replaced else own.also,
        kept=require.prefix_cache_bytes,
        max_cost=require.max_cost_per_hour,
        own_only=given.quality is None,
        least=from_plan.least_length(plan, longest),
    )
    return given._replace(**changes), extra


def _check_counted(plan: Plan, given: Given) -> None:
    """Raises KvplanError(bad-usage) where only a simulation says how many requests are there at once."""
    alone = given.requests is None and given.arrival is None and given.tokens is None
    load = plan.workload
    counted = plan.require.requests or (
        load is not None and (load.requests_in_flight or load.requests_per_second)
    )
    if plan.require.simulated and alone and not counted:
        raise KvplanError(
            "bad-usage",
            f"how many requests of the trace of {plan.name} are there at once, only a simulation says",
            help=("kvplan simulate PLAN --replicas auto", "--requests 64 plans for so many at once"),
        )


def _load(own: from_plan.Load, given: Given) -> dict[str, object]:
    """The plan's own load: its workload, or so many requests."""
    if own.mix is None:
        return {"requests": given.requests or own.requests}
    arrives = given.arrival is not None and given.requests is None
    return {"workload": replace(own.mix, requests_in_flight=None) if arrives else own.mix}


def _fallback(plan: Plan, given: Given) -> dict[str, object]:
    """Keywords that the plan says where nobody gave them."""
    named = {choice.engine.name for choice in choices_of(given.engine or plan.engine)}
    same = named == {plan.engine.partition("@")[0]}
    return {
        "engine": plan.engine,
        "quality": plan.quality,
        "headroom": plan.require.headroom,
        "pool": from_plan.pool_of(plan),
        "host_memory": plan.require.host_memory_bytes,
        "kv_cache_dtype": from_plan.kv_word(plan) if same else None,
        "trace": trace_file(plan) if given.workload is None else None,
    }
