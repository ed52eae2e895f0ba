"""All that a report says of plans: each answer is the one that the command for it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TypeVar

from kvplan.api.checking.load import Loader, checked
from kvplan.api.checking.paths import readings_of
from kvplan.api.planning import plan as plan_anew
from kvplan.api.planning.levers import levers_here
from kvplan.checking.case import Case
from kvplan.deployment.counts import SHORTEST_RUNG, powers_of_two
from kvplan.deployment.lengths import Rung
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.planning import from_plan
from kvplan.planning.context import request_of
from kvplan.planning.levers import Lever, Situation
from kvplan.planning.results import PlanResult
from kvplan.plans.findings import CheckedPlan
from kvplan.plans.fleet import Offer
from kvplan.plans.plan import Plan
from kvplan.plans.question import requests_of, tokens_of
from kvplan.plans.receipt import ReadReceipt
from kvplan.plans.workload import Workload
from kvplan.results import SizeResult
from kvplan.simulation.results import SimulationResult
from kvplan.units import GIB

USUAL = ("l40s-48gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x-192gb")
USUAL_SMALL = ("rtx-3090-24gb", "rtx-4090-24gb", "rtx-5090-32gb", "l40s-48gb")
"""Kinds of GPUs beside a plan's own, where none are asked for; the others beside one of at most so much."""
SMALL = 32 * GIB
FEW = 5
"""Plans at most beside which other kinds are planned unasked: each takes seconds."""
Found = TypeVar("Found")


class PlanReport(NamedTuple):
    """One plan. result: the engine's start, as `kvplan size PLAN` shows it; lengths: over the whole plan;
    kinds: as `kvplan plan PLAN --gpu …` answers; left_out: what was not worked out, and why."""

    checked: CheckedPlan
    plan: Plan | None = None
    result: SizeResult | None = None
    lengths: tuple[Rung, ...] = ()
    kinds: PlanResult | None = None
    levers: tuple[Lever, ...] = ()
    receipts: tuple[tuple[str, ReadReceipt | KvplanError], ...] = ()
    simulation: SimulationResult | None = None
    model: Model | None = None
    left_out: tuple[str, ...] = ()


def report_of(
    paths: Sequence[str | Path], *, environment: str | None = None, gpus: Sequence[str] | None = None,
    simulated: bool = False, today: date | None = None, stdin: bytes | None = None, gpu: str | None = None,
) -> tuple[PlanReport, ...]:  # fmt: skip
    """Every plan of the paths, checked, sized, planned on other kinds of GPUs.

    gpus: those kinds; empty: none; None: the usual ones of up to `FEW` plans. simulated: plans with a trace
    are simulated on it, and the lever of preemption. gpu: where what a
    command or manifest starts runs. Raises KvplanError where the question is wrong.
    """
    loader = Loader()
    readings = readings_of(loader, paths, environment=environment, stdin=stdin, gpu=gpu)
    if gpus is None and len(readings) > FEW:
        gpus = ()
    return tuple(
        _report(one, reading.plan, loader, gpus, simulated)
        for reading in readings
        for one in checked([reading], loader, today)
    )


def _report(
    one: CheckedPlan, plan: Plan | None, loader: Loader, gpus: Sequence[str] | None, simulated: bool
) -> PlanReport:
    if plan is None or one.error is not None:
        return PlanReport(one, plan)
    case = Case(plan, loader.model(plan.model))
    wrong: list[str] = []

    def tried(what: str, answer: Callable[[], Found], instead: Found) -> Found:
        try:
            return answer()
        except KvplanError as error:
            wrong.append(f"{what}: {error.message}")
            return instead

    receipts = tuple(loader.receipts(plan).items())
    found = PlanReport(one, plan, case.likely, receipts=receipts, model=case.model)
    if case.likely is not None and case.likely.pool is not None and case.refusal is None:
        found = found._replace(
            lengths=_lengths(case),
            levers=tried("levers", lambda: _levers(case, simulated), ()),
        )
    kinds = _kinds(plan) if gpus is None else list(gpus)
    if kinds:
        found = found._replace(
            kinds=tried("other GPUs", lambda: plan_anew(plan, gpu=kinds, depth=False, top=len(kinds)), None)
        )
    if simulated and plan.workload is not None and plan.workload.trace is not None:
        found = found._replace(simulation=tried("simulation", lambda: _simulated(plan), None))
    return found._replace(left_out=tuple(wrong))


def _lengths(case: Case) -> tuple[Rung, ...]:
    """Powers of two up to what the engine is started for, and the lengths that the plan names."""
    longest = case.max_model_len
    if longest is None:
        return ()
    named = [tokens_of(case.plan)] + ([case.plan.workload.longest] if case.plan.workload is not None else [])
    lengths = {*powers_of_two(min(SHORTEST_RUNG, longest), longest)}
    lengths |= {tokens for tokens in named if tokens is not None and tokens <= longest}
    return tuple(
        Rung(
            tokens, case.most(tokens, safe=False, reserve=False), case.most(tokens, safe=True, reserve=False)
        )
        for tokens in sorted(lengths)
    )


def _levers(case: Case, simulated: bool) -> tuple[Lever, ...]:
    plan = case.plan
    if plan.settings.gpu is None:
        return ()
    load = from_plan.load_of(plan).mix
    if load is None:
        load = Workload((request_of(case.max_model_len or SHORTEST_RUNG, None),))
    seen = Situation(case.model, case.choice, plan.settings, load, max(requests_of(plan), 1))
    host = plan.require.host_memory_bytes // max(plan.replicas, 1)
    return levers_here(seen, Offer(plan.settings.gpu), plan.quality, host, simulated=simulated)


def _kinds(plan: Plan) -> list[Gpu | str]:
    """The plan's own kind and the usual ones of its size."""
    own = plan.settings.gpu
    if own is None:
        return list(USUAL)
    memory = own.memory_total_bytes or 0
    usual = USUAL_SMALL if memory <= SMALL else USUAL
    return [own, *(slug for slug in usual if slug != own.slug)]


def _simulated(plan: Plan) -> SimulationResult:
    from kvplan.api.simulating import simulate

    return simulate(plan, search=False, helps=False).outcome
