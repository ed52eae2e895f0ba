"""The workload's TTFT and TPOT against the estimate for a steady load, where arrivals are not simulated."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from kvplan.checking.case import Case
from kvplan.engines.budget.law import Rejection
from kvplan.planning.ask import Speed, SpeedOf, running
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.plan import Plan
from kvplan.plans.question import requests_of
from kvplan.plans.workload import Shape, Workload

_ROUNDS = 40


def times_of(case: Case, speed: SpeedOf | None) -> list[Finding]:
    """An error for each target that the likely time misses with as many requests running as the plan says.

    Requests are those required or in flight, or those that the rate keeps under way by the estimated times
    (Little's law, `_under_way`), whichever are more; at most max_num_seqs run. Where engines read prompts
    apart, or nothing is estimated, a note says so.
    """
    workload = case.plan.workload
    assert workload is not None
    if case.plan.fleet.prefill_replicas:
        return [_unknown("prompts are read by engines of their own: simulate the plan")]
    if speed is None:
        return [_unknown(f"times of {case.choice.engine.name} under a load are not estimated")]
    found = _Estimates(case, workload, speed).under_the_load()
    if isinstance(found, Rejection):
        return [_unknown(found.message)]
    count, times, arriving = found
    if arriving > count:
        return [_saturated(case.plan, count)]
    asked = (("tpot", workload.tpot_seconds, times.tpot), ("ttft", workload.ttft_seconds, times.ttft))
    return [
        _missed(name, limit, likely, count)
        for name, limit, likely in asked
        if limit is not None and likely[1] > limit
    ]


def _unknown(why: str) -> Finding:
    return Finding("times-not-checked", Severity.NOTE, f"TTFT and TPOT are not checked: {why}", "workload")


def _missed(name: str, limit: Fraction, time: tuple[float, float, float], running: int) -> Finding:
    low, likely, high = map(_milliseconds, time)
    return Finding(
        "target-missed",
        Severity.ERROR,
        f"{name.upper()} about {likely} ms ({low} … {high}) with {running:,} running on a replica;"
        f" {_milliseconds(float(limit))} ms is asked",
        f"workload.{name}",
        help=("kvplan plan FILE: the GPUs that keep it", "more replicas, so that fewer requests run on each"),
    )


def _saturated(plan: Plan, most: int) -> Finding:
    workload = plan.workload
    assert workload is not None
    assert workload.requests_per_second is not None
    return Finding(
        "target-missed",
        Severity.ERROR,
        f"{float(workload.requests_per_second):g} requests a second come faster than they are served with"
        f" {most:,} running on a replica: the queue grows, and no target holds",
        "workload.requests_per_second",
        help=("kvplan plan FILE: the GPUs that keep it",),
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}" if seconds >= 0.1 else f"{seconds * 1000:.3g}"


class _Estimates:
    """Times of one pool of the plan with so many requests."""

    def __init__(self, case: Case, workload: Workload, speed: SpeedOf) -> None:
        self.case, self.workload, self.speed = case, workload, speed
        mean = (ceil(workload.mean(name="input_tokens")), ceil(workload.mean(name="output_tokens")))
        self.shape = Shape(*mean)

    def under_the_load(self) -> tuple[int, Speed, int] | Rejection:
        """(Requests that run on one pool, their times, those that the arrivals would keep running)."""
        most = self._at_most()
        arriving = self._under_way(most)
        if isinstance(arriving, Rejection):
            return arriving
        requests = max(requests_of(self.case.plan), arriving)
        requests = requests if most is None else min(requests, most)
        times = self._at(requests)
        return times if isinstance(times, Rejection) else (requests, times, arriving)

    def _at_most(self) -> int | None:
        """Requests that one pool runs at once, by max_num_seqs and by its memory."""
        case, seqs = self.case, self.case.max_num_seqs
        if seqs is None or not case.pools:
            return None
        return max(1, min(seqs // self.workload.samples, case.most_of_mix // case.pools))

    def _at(self, requests: int) -> Speed | Rejection:
        plan = self.case.plan
        if plan.settings.gpu is None:
            return Rejection("no-gpu", "the plan names no GPU")
        workload, block = self.workload, self.case.sharing.block
        load = running(requests * workload.samples, self.shape, workload.shared_prefix_tokens, block)
        return self.speed(self.case.model, plan.settings.gpu, plan.settings, load)

    def _under_way(self, most: int | None) -> int | Rejection:
        """The least number that the arrivals keep running on one pool: rate · (TTFT + answer · TPOT) of that
        number itself; more than ``most`` where so many do not keep up. One where no rate is said."""
        rate, pools = self.workload.requests_per_second, max(1, self.case.pools)
        requests = 1
        if rate is None:
            return requests
        for _ in range(_ROUNDS):
            times = self._at(requests)
            if isinstance(times, Rejection):
                return times
            lasts = times.ttft[1] + self.shape.output_tokens * times.tpot[1]
            needed = ceil(float(rate) / pools * lasts)
            if needed <= requests or requests == most:
                return max(needed, requests)
            requests = needed if most is None else min(needed, most)
        return requests
