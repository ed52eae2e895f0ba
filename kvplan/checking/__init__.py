"""Plans checked against what the engine would do with them: findings, figures, suggested fixes.

Nothing is raised: what kvplan cannot answer becomes the plan's error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import TYPE_CHECKING

from kvplan.checking.case import Case
from kvplan.checking.evidence import Receipts, weighed
from kvplan.checking.mistakes import mistakes_of
from kvplan.checking.rules import errors_of
from kvplan.checking.start import MOST
from kvplan.checking.ways import with_ways
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.findings import CheckedPlan, Fact, Finding, Severity
from kvplan.plans.plan import SAFE, Plan
from kvplan.plans.question import tokens_of
from kvplan.record import replace
from kvplan.wings import wing

if TYPE_CHECKING:
    from kvplan.engines.base import Choice
    from kvplan.planning.ask import SpeedOf

NO_RECEIPTS: Receipts = {}


_FIELDS: Mapping[str, str] = {
    "unknown-model": "model",
    "no-such-file": "model",
    "bad-config": "model",
    "no-pool": "gpu",
    "no-budget": "engine",
    "engine-gpu": "gpu",
}

__all__ = ["check_plan"]


def check_plan(
    plan: Plan, model: Model, *, receipts: Receipts = NO_RECEIPTS, today: date | None = None,
    speed: Callable[[Choice], SpeedOf | None] | None = None,
) -> CheckedPlan:  # fmt: skip
    """Check a plan: its findings, its use of the GPUs, and the figures.

    receipts: those of ``plan.evidence`` by path, read or the error that reading gave. today: against which
    their age counts; None leaves the age out. speed: of an engine's release, the estimate of its times; None
    leaves the workload's targets out where they are not simulated.
    """
    try:
        case = Case(plan, model)
        facts = facts_of(case)
        wrong = errors_of(case)
        of_receipts, proofs = weighed(case, receipts, facts, today)
        findings = [
            *with_ways(case, wrong),
            *(_times(case, speed) if not wrong else ()),
            *of_receipts,
            *mistakes_of(case),
            *_unchecked(plan),
        ]
    except KvplanError as error:
        return CheckedPlan(
            plan.name, plan.path, plan.environment, error=placed(error, plan), mark=plan.mark(None)
        )
    return CheckedPlan(
        plan.name,
        plan.path,
        plan.environment,
        tuple(replace(finding, mark=plan.mark(finding.field)) for finding in findings),
        facts,
        summary_of(case, facts),
        mark=plan.mark(None),
        evidence=proofs,
    )


def _times(case: Case, speed: Callable[[Choice], SpeedOf | None] | None) -> list[Finding]:
    """Findings of the times that are asked for: of a simulation where arrivals are known, else, or where this
    deployment is not simulated, of the estimate with as many requests as the plan says. Either is loaded only
    then."""
    plan, workload = case.plan, case.plan.workload
    targets = workload is not None and workload.has_targets
    why: list[Finding] = []
    if plan.require.simulated or (targets and workload is not None and workload.arrives):
        found: list[Finding] | str = wing("simulation.requirements").simulated(plan, case.model)
        if not isinstance(found, str):
            return found
        said = f"TTFT and TPOT are estimated for a steady load, not simulated: {found}"
        why = [Finding("not-simulated", Severity.NOTE, said, "workload")]
    if not targets or speed is None:
        return why
    from kvplan.checking.times import times_of

    return [*why, *times_of(case, speed(case.choice))]


def _unchecked(plan: Plan) -> list[Finding]:
    """Parts of the plan that were not checked."""
    found = []
    if plan.environment is None and plan.environments:
        found.append(
            Finding(
                "environments-not-checked",
                Severity.NOTE,
                f"the plan was checked without its environments ({', '.join(plan.environments)})",
                "environments",
                help=("kvplan check --env all",),
            )
        )
    workload = plan.workload
    if workload is None or workload.has_targets:
        return found
    if workload.requests_per_second is not None and not workload.requests_in_flight:
        found.append(
            Finding(
                "arrivals-not-checked",
                Severity.NOTE,
                "how many requests run at once under this rate is not part of the check",
                "workload.requests_per_second",
                help=("workload.requests_in_flight states it",),
            )
        )
    return found


def placed(error: KvplanError, plan: Plan) -> KvplanError:
    """The error with the line of the plan that it is about, beside its own place."""
    mark = plan.mark(_FIELDS.get(error.code, "model"))
    if mark is None:
        return error
    return KvplanError(
        error.code,
        error.message,
        where=(mark, *error.places),
        detail=error.detail,
        help=error.help,
        exit_code=error.exit_code,
    )


def length_of(case: Case) -> int | None:
    """The length that requests are counted in: required, the workload's longest, or what is served."""
    asked = tokens_of(case.plan)
    return asked if asked is not None or case.result is None else case.max_model_len


def facts_of(case: Case) -> tuple[Fact, ...]:
    """Every figure that is known; those of a pool are of one GPU, requests are of the whole plan.

    Blocks and ``max_requests`` are of the pool that the plan requires.
    """
    plan, result = case.plan, case.result
    found = [Fact("gpus", plan.gpus, "gpus"), Fact("replicas", plan.replicas, "replicas")]
    if plan.price_per_gpu_hour is not None:
        cost = plan.price_per_gpu_hour * plan.gpus * 1_000_000
        found.append(Fact("cost_per_hour", round(cost), "millionths"))
    if result is None:
        return tuple(found)
    served = case.max_model_len
    if served is not None:
        found.append(Fact("max_model_len", served, "tokens"))
    if result.weights is not None:
        found.append(Fact("weights_bytes_per_gpu", result.weights.bytes_per_gpu, "bytes"))
    if case.memory is not None and case.safe_memory is not None:
        likely = result.budget.kv_pool_bytes if result.budget is not None else case.memory
        found += [
            Fact("kv_pool_bytes", likely, "bytes"),
            Fact("kv_pool_low_bytes", case.safe_memory, "bytes"),
        ]
    if case.refusal is not None or result.pool is None:
        return tuple(found)
    found.append(Fact("num_blocks", result.pool.num_blocks, "blocks"))
    tokens = length_of(case)
    if tokens is not None and not case.too_long(tokens):
        found.append(Fact("tokens", tokens, "tokens"))
        held = case.answer(tokens).per_gpu.kv_bytes_per_request
        found.append(Fact("kv_bytes_per_request", held, "bytes"))
        for name, safe in (("max_requests", None), ("safe_max_requests", True)):
            most = case.most(tokens, safe=safe, reserve=False)
            if most < MOST:
                found.append(Fact(name, most, "requests"))
    if plan.workload is not None and not case.too_long(plan.workload.longest) and case.most_of_mix < MOST:
        found.append(Fact("max_requests_in_flight", case.most_of_mix, "requests"))
    return tuple(found)


def summary_of(case: Case, facts: tuple[Fact, ...]) -> str:
    """``Qwen/Qwen3-32B, vllm@0.33: 2 × h100-sxm-80gb hold 60 requests of 8,192 tokens``."""
    plan = case.plan
    gpu = plan.settings.gpu
    who = f"{plan.model}, {plan.engine}"
    what = f"{plan.gpus} × {gpu.slug if gpu is not None else 'GPU'}"
    known = {fact.name: fact.value for fact in facts}
    verb = "holds" if plan.gpus == 1 else "hold"
    if case.refusal is not None:
        return f"{who}: would refuse to start on {what}"
    count = known.get("safe_max_requests" if plan.require.pool == SAFE else "max_requests")
    if count is not None:
        requests = f"{count:,} request{'' if count == 1 else 's'} of {known['tokens']:,} tokens"
        return f"{who}: {what} {verb} {requests}"
    return f"{who}: {what}"
