"""The figures of a plan that a baseline is compared with, and the sentence that says what it holds."""

from __future__ import annotations

from kvplan.checking.case import Case
from kvplan.checking.start import MOST
from kvplan.plans.findings import Fact
from kvplan.plans.plan import SAFE
from kvplan.plans.question import tokens_of


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
    """``2 × h100-sxm-80gb hold 60 requests of 8,192 tokens``."""
    plan = case.plan
    gpu = plan.settings.gpu
    what = f"{plan.gpus} × {gpu.slug if gpu is not None else 'GPU'}"
    known = {fact.name: fact.value for fact in facts}
    verb = "holds" if plan.gpus == 1 else "hold"
    if case.refusal is not None:
        return f"{what}: {plan.engine} would refuse to start"
    count = known.get("safe_max_requests" if plan.require.pool == SAFE else "max_requests")
    if count is not None:
        return f"{what} {verb} {count:,} request{'' if count == 1 else 's'} of {known['tokens']:,} tokens"
    return what
