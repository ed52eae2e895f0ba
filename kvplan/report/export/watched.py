"""The figures of a plan that can be watched on its servers: the queries in Prometheus' language, and the
plan's figures that they are held against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction

from kvplan.checking import facts_of
from kvplan.checking.case import Case
from kvplan.checking.start import REFUSED
from kvplan.engines.folders import having, part_of
from kvplan.engines.monitored import Series, name_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.record import record
from kvplan.report.export.checkpoint import checkpoint_of
from kvplan.report.export.place import table_of

_DIGITS = 3


@record()
class Watched:
    """One plan beside its engine's series."""

    plan: Plan
    series: Series
    names: Mapping[str, str]
    """the series of its release"""
    selector: str
    """``{model_name="…"}``, or ""."""
    served: str
    figures: Mapping[str, int]
    """of the whole plan (`kvplan.checking`), kv_tokens of one pool, limits of a step; empty where no pool is
    known"""
    full: Fraction | None
    """the share of one pool in use at which one more request of ``tokens`` does not fit the safe pool;
    None where the safe pool holds fewer than two"""

    def gauge(self, name: str) -> str:
        """A gauge of each pool: what several ranks of one say counts once."""
        return f"max by ({', '.join(self.series.per)}) ({self.names[name]}{self.selector})"

    def rate(self, name: str, window: str) -> str:
        """A counter's rate over all servers."""
        return f"sum(rate({self.names[name]}_total{self.selector}[{window}]))"

    def quantile(self, name: str, share: str, window: str) -> str:
        """A histogram's quantile over all servers, in seconds."""
        buckets = f"rate({self.names[name]}_bucket{self.selector}[{window}])"
        return f"histogram_quantile({share}, sum by (le) ({buckets}))"

    def ratio(self, first: str, second: str, window: str) -> str:
        """One counter's rate over another's."""
        return f"{self.rate(first, window)} / {self.rate(second, window)}"

    def has(self, *names: str) -> bool:
        """Whether the engine's release has all of these series."""
        return all(name in self.names for name in names)

    def target(self, name: str) -> Fraction | None:
        """A latency or share that the plan requires, else its workload's target."""
        required: Fraction | None = getattr(self.plan.require, name)
        return required if required is not None else getattr(self.plan.workload, name, None)


def watched(plan: Plan, model: Model | None) -> Watched:
    """The plan's queries and figures. Raises KvplanError(no-metrics), and those of its checkpoint."""
    table, version = table_of(plan)
    engine = plan.engine.partition("@")[0]
    part = part_of(engine, "monitoring")
    if part is None:
        raise KvplanError(
            "no-metrics",
            f"kvplan does not know the Prometheus names of {engine}",
            help="it knows those of " + ", ".join(having("monitoring")),
        )
    series: Series = part.SERIES
    known = {name: name_of(getattr(series, name), version) for name in _SERIES}
    served = _served(plan) or checkpoint_of(plan, model, table).name
    selector = f"{{{series.label}={_quoted(served)}}}" if series.label else ""
    facts = {} if model is None else _facts(plan, model)
    return Watched(
        plan,
        series,
        {name: found for name, found in known.items() if found is not None},
        selector,
        served,
        facts,
        _full(plan, facts),
    )


_SERIES = ("running", "waiting", "usage", "preemptions", "finished", "hits", "queries", "ttft", "tpot")


def _quoted(text: str) -> str:
    """As PromQL reads it; a ``$`` by its number, for Grafana would put a variable in for it."""
    return json.dumps(text, ensure_ascii=False).replace("$", r"\x24")


def _served(plan: Plan) -> str | None:
    """The first name under which the model is served, where the plan gives one."""
    names = dict(plan.serve).get("served_model_name")
    if isinstance(names, (tuple, list)):
        return str(names[0]) if names else None
    return None if names is None else str(names)


_LIMITS = ("max_num_batched_tokens", "max_num_seqs")
"""Limits of one engine's step, as it resolves them."""


def _facts(plan: Plan, model: Model) -> dict[str, int]:
    """The plan's figures; none where nothing is known of its pool."""
    try:
        case = Case(plan, model)
        figures = {fact.name: fact.value for fact in facts_of(case)}
    except KvplanError as error:
        if error.code in REFUSED:
            raise
        return {}
    result = case.result
    if result is None or result.pool is None:
        return figures
    resolved = {name: result.settings.get(name) for name in _LIMITS}
    limits = {name: value for name, value in resolved.items() if isinstance(value, int)}
    return {**figures, **limits, "kv_tokens": result.pool.kv_tokens}


def _full(plan: Plan, facts: Mapping[str, int]) -> Fraction | None:
    request, pool = facts.get("kv_bytes_per_request"), facts.get("kv_pool_low_bytes")
    if not request or not pool or facts.get("safe_max_requests", 0) < 2 * plan.replicas:
        return None
    share = max(Fraction(request, pool), plan.require.headroom)
    return 1 - share if share < 1 else None


def shown(value: Fraction) -> str:
    """A threshold with no more digits than it has truth."""
    return f"{float(round(value, _DIGITS)):g}"
