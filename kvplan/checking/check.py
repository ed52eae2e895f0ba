"""One plan under the check. Nothing is raised: what kvplan cannot answer becomes the plan's error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from kvplan.checking.case import Case
from kvplan.checking.evidence import Receipts, weighed
from kvplan.checking.facts import facts_of, summary_of
from kvplan.checking.mistakes import mistakes_of
from kvplan.checking.rules import errors_of
from kvplan.checking.ways import with_ways
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.findings import CheckedPlan, Finding, Severity
from kvplan.plans.plan import Plan
from kvplan.record import replace

NO_RECEIPTS: Receipts = {}


def check_plan(
    plan: Plan, model: Model, *, receipts: Receipts = NO_RECEIPTS, today: date | None = None
) -> CheckedPlan:
    """What is wrong with a plan, what it makes of the GPUs, and the figures.

    receipts: those of ``plan.evidence`` by path, read or the error that reading gave. today: against which
    their age counts; None leaves the age out.
    """
    try:
        case = Case(plan, model)
        facts = facts_of(case)
        wrong = errors_of(case)
        of_receipts, proofs = weighed(case, receipts, facts, today)
        findings = [
            *with_ways(case, wrong),
            *(_simulated(plan, model) if not wrong else ()),
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


def _simulated(plan: Plan, model: Model) -> list[Finding]:
    """What a simulation finds, where the plan asks for one: loaded only then."""
    if not plan.require.simulated:
        return []
    from kvplan.checking.simulated import simulated

    return simulated(plan, model)


def _unchecked(plan: Plan) -> list[Finding]:
    """What of the plan was not looked at."""
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
    if workload is not None and workload.requests_per_second is not None and not workload.requests_in_flight:
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


_FIELDS: Mapping[str, str] = {
    "unknown-model": "model",
    "no-such-file": "model",
    "bad-config": "model",
    "no-pool": "gpu",
    "no-budget": "engine",
    "engine-gpu": "gpu",
}


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
