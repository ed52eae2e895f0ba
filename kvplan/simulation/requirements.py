"""Findings that only a simulation of the plan's arrivals gives: goodput, hits, preemptions, times.

With ``pool: likely`` the likely pool and speed decide; with ``pool: safe`` the safe pool and slow steps. Ways
out are more replicas, each simulated before it is proposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.plan import SAFE, USUAL_GOODPUT, Plan
from kvplan.record import replace
from kvplan.simulation.answer import check_served
from kvplan.simulation.deployed import own_load, served_plan, target_of
from kvplan.simulation.outcome import Outcome, late_share, percentile
from kvplan.simulation.search import on_replicas
from kvplan.simulation.served import LIKELY, SLOW
from kvplan.units import SECOND, human_seconds

NOT_SIMULATED = (
    "not-simulated", "no-step-time", "no-speed-rule", "no-times", "unknown-link", "unknown-peak",
    "unknown-bandwidth", "no-weights",
)  # fmt: skip
"""Errors that say that a deployment or its arrivals are not simulated."""
_TRIED = (1.25, 1.5, 2, 3, 4)
"""So many times the plan's replicas are tried as a fix."""


def simulated(plan: Plan, model: Model) -> list[Finding] | str:
    """Findings of what ``require`` and the workload's targets ask of a simulation. Where nothing is required
    that only a simulation says, and this deployment is not simulated, the reason."""
    if not plan.replicas:
        return []
    try:
        return _found(plan, model)
    except KvplanError as error:
        if not plan.require.simulated and error.code in NOT_SIMULATED:
            return error.message
        field = "workload.trace" if error.code in ("bad-trace", "no-trace", "no-times") else "require"
        return [Finding("not-simulated", Severity.ERROR, error.message, field, help=error.help)]


def _found(plan: Plan, model: Model) -> list[Finding]:
    served, load, target = served_plan(plan, model), own_load(plan), target_of(plan)
    case = deciding(plan)

    def run(replicas: int) -> Outcome:
        dealt = on_replicas(served, load, replicas, plan.fleet.router)
        return dealt.run(
            served.engine(case[0]), served.speeds.clock(case[1]), target, served.speeds.frontend(case[1])
        )

    engine = served.engine(case[0])
    check_served(load, engine)
    first = run(plan.replicas)
    found = list(missed(plan, first))
    refused = [_refused(first, engine.refuses)] if first.refused else []
    if not found or served.split is not None:  # of two kinds of replicas no number is tried
        return found + refused
    for replicas in dict.fromkeys(max(plan.replicas + 1, round(plan.replicas * by)) for by in _TRIED):
        left = {one.code for one in missed(plan, run(replicas))}
        found = [
            one if one.help or one.code in left else replace(one, help=(f"replicas: {replicas}",))
            for one in found
        ]
        if all(one.help for one in found):
            break
    return found + refused


def _refused(run: Outcome, refuses: str) -> Finding:
    return Finding(
        "requests-refused", Severity.WARNING,
        f"{run.refused:,} of {run.requests:,} requests are refused: {refuses}", "workload",
    )  # fmt: skip


def deciding(plan: Plan) -> tuple[str, str]:
    """The pool and the speed that decide what is required."""
    return (SAFE, SLOW) if plan.require.pool == SAFE else (LIKELY, LIKELY)


def missed(plan: Plan, run: Outcome) -> Iterator[Finding]:
    """Targets of ``require`` that a run misses."""
    require = plan.require
    goodput = required_goodput(plan)
    if goodput is not None and Fraction(run.good, run.requests or 1) < goodput:
        yield _finding(
            plan, "goodput-too-low", "goodput",
            f"{_share(run.goodput)} of requests keep the workload's times, and"
            f" {_share(float(goodput))} are required",
        )  # fmt: skip
    if require.hit_rate is not None and run.hit_rate < require.hit_rate:
        yield _finding(
            plan, "hit-rate-too-low", "hit_rate",
            f"{_share(run.hit_rate)} of prompt tokens are found in the cache, and"
            f" {_share(float(require.hit_rate))} are required",
        )  # fmt: skip
    if require.preemptions is not None and run.preempted_share > require.preemptions:
        yield _finding(
            plan, "too-many-preemptions", "preemptions",
            f"{_share(run.preempted_share)} of requests are preempted, and"
            f" {_share(float(require.preemptions))} are allowed",
        )  # fmt: skip
    for name, times in (("ttft", run.ttft), ("tpot", run.tpot)):
        most, p = getattr(require, f"{name}_seconds"), getattr(require, f"{name}_percentile")
        if most is not None and late_share(times, float(most) * SECOND, run.taken) > 1 - p / 100:
            yield _finding(
                plan, f"{name}-too-long", name,
                f"p{float(p):g} of {name.upper()} is {human_seconds(percentile(times, p / 100) / SECOND)},"
                f" and {human_seconds(float(most))} are allowed",
            )  # fmt: skip


def required_goodput(plan: Plan) -> Fraction | None:
    """The share of requests that must keep both times: as required; where times are targets of the workload
    and nothing says for how many, the usual one."""
    require, workload = plan.require, plan.workload
    if require.goodput is not None:
        return require.goodput
    targets = workload is not None and workload.arrives and workload.has_targets
    return USUAL_GOODPUT if targets and not (require.ttft_seconds or require.tpot_seconds) else None


def _finding(plan: Plan, code: str, field: str, message: str) -> Finding:
    assert plan.workload is not None
    said = field != "goodput" or plan.require.goodput is not None
    arrivals = "arrivals drawn for the workload's rate" if plan.workload.trace is None else "the trace"
    return Finding(
        code, Severity.ERROR, message, f"require.{field}" if said else "workload",
        (f"simulated with {arrivals}; times are an estimate: kvplan simulate shows the interval",),
    )  # fmt: skip


def _share(value: float) -> str:
    return f"{value * 100:.1f}".removesuffix(".0") + " %"
