"""Requirements of a plan: one function a rule, which says the fault and the figures computed.

Rules only find; suggested fixes are computed in `kvplan.checking.ways`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from kvplan.checking.case import Case
from kvplan.dtypes import kv_dtype
from kvplan.engines.budget import TOO_LARGE, room_for_cache
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.plan import QUALITIES, SAFE, Plan
from kvplan.plans.serve import flag_for
from kvplan.results import SHM, Refusal
from kvplan.settings import Settings
from kvplan.units import ceil_div, gib

Found = Iterator[Finding]
LEAST_BITS = {"lossless": 16, "safe": 8, "aggressive": 1}
"""Quality → bits of an element below which a KV format is not good enough."""
_LENGTH_REFUSALS = ("not-enough-memory", "max-model-len", "request-too-long")


def wrong(code: str, message: str, field: str, *detail: str) -> Finding:
    """An error about a field."""
    return Finding(code, Severity.ERROR, message, field, detail)


def gpus(case: Case) -> Found:
    """The GPUs make up whole engines."""
    plan = case.plan
    each, total = plan.gpus_per_replica, plan.gpus
    if total % each:
        left = total % each
        yield wrong(
            "gpus-left-over" if plan.replicas else "too-few-gpus",
            f"{total} GPUs do not make up engines of {each}"
            + (f": {left} would be idle" if plan.replicas else ""),
            "gpus" if "gpus" in plan.marks else "serve",
            f"one engine takes {each} GPUs: tensor {plan.settings.tensor_parallel_size} ×"
            f" pipeline {plan.settings.pipeline_parallel_size} × data {plan.settings.data_parallel_size}",
        )


def starts(case: Case) -> Found:
    """The engine would start."""
    refusal = case.refusal
    if refusal is None:
        return
    field = "gpu"
    if refusal.code in _LENGTH_REFUSALS:
        field = f"serve.{flag_for(case.plan.engine, 'max_model_len') or 'max_model_len'}"
    elif refusal.code in ("tensor-parallel", "pipeline-parallel", "context-parallel"):
        name = {"tensor-parallel": "tensor_parallel_size", "pipeline-parallel": "pipeline_parallel_size"}
        setting = name.get(refusal.code, "decode_context_parallel_size")
        field = f"serve.{flag_for(case.plan.engine, setting) or setting}"
    elif "dtype" in refusal.code:
        field = f"serve.{flag_for(case.plan.engine, 'kv_cache_dtype') or 'kv_cache_dtype'}"
    elif refusal.code == "unsupported-model":
        field = "model"
    detail = []
    if case.memory is not None:
        which = "safe" if case.plan.require.pool == SAFE else "likely"
        detail.append(f"the pool is {gib(case.memory)} on each GPU ({which})")
    if refusal.largest_max_model_len:
        detail.append(f"the longest length that it would start with is {refusal.largest_max_model_len:,}")
    if field == "gpu" or case.plan.mark(field) == case.plan.mark(None):  # the plan leaves it to the engine
        field = _named_in(refusal, case.plan) or "gpu"
    yield wrong(refusal.code, f"{case.plan.engine} would refuse to start: {refusal.message}", field, *detail)


def _named_in(refusal: Refusal, plan: Plan) -> str | None:
    """The plan's flag that a refusal is about: the first that it names."""
    said = refusal.message.replace("-", "_")
    places = [(said.find(flag), f"serve.{flag}") for flag, _ in plan.serve if flag in said]
    return min(places)[1] if places else None


def given_memory(case: Case) -> Found:
    """A pool that is stated in bytes fits beside weights and the rest."""
    given = case.plan.settings.kv_cache_memory
    if given is None or case.result is None:
        return
    budget = case.unstated_budget
    if budget is None:
        return
    left = room_for_cache(budget)
    if given > left:
        needed = sum(line.bytes for line in budget.lines)
        yield wrong(
            TOO_LARGE,
            f"{gib(given)} for the cache do not fit beside the {gib(needed)} that the engine takes",
            f"serve.{flag_for(case.plan.engine, 'kv_cache_memory') or 'kv_cache_memory'}",
            f"of {gib(budget.total_bytes)} at most {gib(left)} are left",
        )


def length(case: Case) -> Found:
    """The engine serves what is asked for."""
    served, plan = case.max_model_len, case.plan
    if served is None:
        return
    asked = [("require.max_model_len", plan.require.max_model_len, "are required")]
    asked.append(("require.tokens", plan.require.tokens, "are required of a request"))
    if plan.workload is not None:
        field = "workload.trace" if plan.workload.trace is not None else "workload.input_tokens"
        asked.append((field, plan.workload.longest, "are the workload's longest request"))
    for field, tokens, what in asked:
        if tokens is not None and tokens > served:
            yield wrong(
                "max-model-len-too-short",
                f"{tokens:,} tokens {what}, and the engine is started for {served:,}",
                field,
                f"max_model_len is {served:,}",
            )


def requests(case: Case) -> Found:
    """The required requests are held, beside what is kept free."""
    wanted, tokens = case.plan.require.requests, case.plan.require.tokens
    if wanted is None or tokens is None or case.too_long(tokens) or not case.pools:
        return
    most = case.most(tokens)
    if most >= wanted:
        return
    yield wrong(
        "requests-do-not-fit",
        f"{wanted:,} requests of {tokens:,} tokens are required, and {most:,} fit",
        "require.requests",
        *_arithmetic(case, tokens),
    )


def mix(case: Case) -> Found:
    """The requests in flight are held at full length, beside what is kept free."""
    workload = case.plan.workload
    if workload is None or workload.requests_in_flight is None or not case.pools:
        return
    if case.too_long(workload.longest):
        return
    wanted = workload.requests_in_flight
    each = ceil_div(wanted, case.pools)
    seqs = case.max_num_seqs
    if seqs is not None and each * workload.samples > seqs:
        yield wrong(
            "max-num-seqs-too-small",
            f"{each * workload.samples:,} sequences run at once on an engine, and it takes {seqs:,}",
            "workload.requests_in_flight",
            f"{wanted:,} requests over {case.pools} engine{'s' if case.pools > 1 else ''}"
            + (f" × {workload.samples} samples" if workload.samples > 1 else ""),
        )
    if case.fits(each):
        return
    load = case.load(each)
    percent = "more than all" if load is None else f"{_percent(load.share)} %"
    yield wrong(
        "workload-does-not-fit",
        f"{wanted:,} requests in flight at full length do not fit: {case.most_of_mix:,} do",
        "workload.requests_in_flight",
        f"{each:,} of them on an engine take {percent} of its pool of {gib(case.memory or 0)}",
        *([f"{_percent(case.reserved)} % is kept free"] if case.reserved else []),
    )


def _percent(share: Fraction) -> str:
    tenths = ceil_div(share.numerator * 1000, share.denominator)
    return f"{tenths // 10:,}.{tenths % 10}"


def _arithmetic(case: Case, tokens: int) -> list[str]:
    lines = []
    taken = case.takes(tokens, case.generated(tokens))
    share = None if taken is None or taken.share + taken.excess > 1 else taken.share
    if taken is None or share is None:
        lines.append(f"not one request of {tokens:,} tokens fits the pool of {gib(case.memory or 0)}")
    elif share:
        pools = "one pool" if case.pools == 1 else f"each of {case.pools} pools"
        lines.append(f"one takes {_percent(share)} % of {pools} of {gib(case.memory or 0)}")
    if case.reserved:
        lines.append(f"{_percent(case.reserved)} % of each pool is kept free")
    seqs = case.max_num_seqs
    if seqs is not None and share and int((1 - case.reserved) / share) > seqs:
        lines.append(f"an engine runs at most {seqs:,} requests at once (max_num_seqs)")
    return lines


def room(case: Case) -> Found:
    """The prompts kept for reuse fit the pool, and reuse is on."""
    wanted = case.plan.require.prefix_cache_bytes
    if not wanted or case.memory is None or case.result is None:
        return
    if wanted > case.memory:
        yield wrong(
            "prefix-cache-too-large",
            f"{gib(wanted)} are required for prompts kept for reuse, and the pool is {gib(case.memory)}",
            "require.prefix_cache",
        )
    if case.result.settings.get("enable_prefix_caching") is False:
        yield wrong(
            "prefix-caching-off",
            "room for prompts kept for reuse is required, and prefix caching is off",
            "require.prefix_cache",
        )


def host(case: Case) -> Found:
    """The tier in host memory is as large as required."""
    wanted = case.plan.require.host_memory_bytes
    if not wanted:
        return
    stated = case.host_tier_bytes
    if stated is None:
        yield wrong(
            "host-tier-unknown",
            f"a host-memory tier is required, and kvplan knows no flag of {case.choice.engine.name} for one",
            "require.host_memory",
        )
    elif stated < wanted:
        yield wrong(
            "host-tier-too-small",
            f"{gib(wanted)} of host memory are required for the cache, and the flags give {gib(stated)}",
            "require.host_memory",
        )


def shared_memory(case: Case) -> Found:
    """One engine's share of /dev/shm fits there."""
    there = case.plan.require.shm_bytes
    host = () if case.result is None else case.result.host
    parts = [one for one in host if one.where == SHM]
    most = sum(one.high_bytes for one in parts)
    if there and most > there:
        yield wrong(
            "shm-too-small",
            f"/dev/shm holds {gib(there)}, and one engine takes up to {gib(most)} of it",
            "require.shm",
            *(f"{one.name}: {gib(one.high_bytes)} ({one.source})" for one in parts),
        )


def cost(case: Case) -> Found:
    """The GPUs cost no more than they may."""
    most, price = case.plan.require.max_cost_per_hour, case.plan.price_per_gpu_hour
    if most is None:
        return
    if price is None:
        yield wrong(
            "price-missing", "a largest cost is required, and no price is given", "require.max_cost_per_hour"
        )
    elif price * case.plan.gpus > most:
        yield wrong(
            "costs-too-much",
            f"{case.plan.gpus} GPUs cost {float(price * case.plan.gpus):,.2f} an hour, and"
            f" {float(most):,.2f} are allowed",
            "require.max_cost_per_hour",
            f"{case.plan.gpus} × {float(price):,.2f}",
        )


def quality(case: Case) -> Found:
    """The cache's format is as good as the plan asks for."""
    least = LEAST_BITS[case.plan.quality]
    for setting, word, bits in cache_bits(case.plan.settings):
        if bits < least:
            yield wrong(
                "quality",
                f"a cache of {word} keeps {bits} bits a number; quality {case.plan.quality} asks for {least}",
                f"serve.{flag_for(case.plan.engine, setting) or setting}",
            )


def cache_bits(settings: Settings) -> Iterator[tuple[str, str, int]]:
    """The formats that are named for the cache: setting, word, and the fewest bits of a number."""
    own = settings.own
    for setting, word in (
        ("kv_cache_dtype", settings.kv_cache_dtype),
        ("cache_type_k", own.get("cache_type_k", "auto")),
        ("cache_type_v", own.get("cache_type_v", "auto")),
    ):
        if word != "auto":
            form = kv_dtype(str(word))
            yield setting, str(word), min(form.key.bits, form.value.bits, form.latent.bits)


def quality_of(settings: Settings) -> str:
    """The quality that a plan with this cache may be held to: ``safe``, or below it by its format."""
    fewest = min((bits for _, _, bits in cache_bits(settings)), default=LEAST_BITS[QUALITIES[0]])
    return next(name for name in QUALITIES[1:] if fewest >= LEAST_BITS[name])


RULES: tuple[Callable[[Case], Found], ...] = (gpus, quality, cost, host)
"""Rules that need no start of the engine."""
STARTED: tuple[Callable[[Case], Found], ...] = (given_memory, length, requests, mix, room, shared_memory)
"""Rules about an engine that starts."""
STARTED_CODES = frozenset(
    "pool-too-large max-model-len-too-short requests-do-not-fit max-num-seqs-too-small workload-does-not-fit"
    " prefix-cache-too-large prefix-caching-off shm-too-small".split()
)
"""Codes of those rules."""


def errors_of(case: Case) -> list[Finding]:
    """Every error of a plan, without suggested fixes."""
    found = [finding for rule in RULES for finding in rule(case)]
    if case.refusal is not None:
        return [*found, *starts(case)]
    return [*found, *(finding for rule in STARTED for finding in rule(case))]
