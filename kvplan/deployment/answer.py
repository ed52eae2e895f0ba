"""The answer to a question: memory, layout and capacity of the deployment, and whether it holds the load.

Every command and every function of the library shows this value; none asks an engine by itself.
"""

from __future__ import annotations

from kvplan.deployment.counts import as_started, ask, max_requests, memory_of, uncounted
from kvplan.deployment.held import least_memory, with_bytes, with_bytes_held
from kvplan.deployment.question import Question
from kvplan.deployment.resolve import Deployment, resolve
from kvplan.engines import own_settings
from kvplan.engines.base import LIKELY, SAFE
from kvplan.engines.budget import TOO_LITTLE, in_safe_pool
from kvplan.engines.budget.sharing import usable_bytes
from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.record import changed, record, replace
from kvplan.results import (
    Capacity,
    DeploymentRef,
    Refusal,
    SizeResult,
    Verdict,
)
from kvplan.settings import LONGEST, Settings, started_in


class Counted(NamedTuple):
    """One figure of the pool. each: requests that one pool runs at once; memory: its bytes; refusal: why the
    engine does not start in it; max_model_len: what it is started for, where ``auto`` left that to it."""

    each: int
    memory: int
    refusal: Refusal | None = None
    max_model_len: int | None = None


@record(eq=False)
class Answer:
    """The answer for a deployment. likely, safe: None where no memory is known, so that nothing is counted.

    result: the engine's answer in the pool that has to hold the load, with the rest of what is known as its
    ``capacity``, ``deployment`` and ``verdict``.
    """

    deployment: Deployment
    result: SizeResult
    likely: Counted | None = None
    safe: Counted | None = None

    @property
    def verdict(self) -> Verdict | None:
        return self.result.verdict

    @property
    def needed_bytes(self) -> int | None:
        """The least memory for the cache of one GPU in which the load is held; None where none is enough."""
        return least_memory(self.deployment.model, self.deployment.choice, self.deployment.settings)

    @property
    def in_safe_pool(self) -> bool:
        """Whether the safe pool has to hold the load."""
        return self.deployment.choice.pool == SAFE

    @property
    def holds(self) -> bool | None:
        """Whether the load is held in the pool that has to hold it; None where nobody can say."""
        if self.verdict is None:
            return None
        if self.in_safe_pool:
            return self.verdict is Verdict.YES
        return self.verdict in (Verdict.YES, Verdict.LIKELY)


def answer(question: Question) -> Answer:
    """The answer to a question. Raises KvplanError where it cannot be answered."""
    return answered(resolve(question))


def check_counted(found: Answer) -> None:
    """Raises KvplanError(no-memory) where requests were not counted: views of counts alone have nothing to
    show."""
    if found.result.refusal is None and (found.likely is None or found.safe is None):
        raise KvplanError(
            "no-memory",
            "how much memory the cache may take is not known",
            detail=found.result.warnings,
            help=("--gpu h100", "--kv-cache-memory 16GiB"),
        )


def answered(deployment: Deployment) -> Answer:
    """The answer for a deployment. The engine is asked once for each figure of the pool that decides:
    likely and safe, and the high end only where the likely pool does not hold the load."""
    choice, settings = deployment.choice, deployment.settings
    found, likely = _in_likely(deployment)
    found = with_bytes_held(deployment.model, choice, settings, found)
    if likely is None:
        verdict = None if found.refusal is None else Verdict.NO
        return Answer(deployment, _with(deployment, found, None, None, verdict))
    found = _agreeing(settings, found, likely)
    result, safe = found, likely
    budget = found.budget if settings.kv_cache_memory is None else None
    if budget is not None:
        in_safe = _in_safe(deployment, found)
        low = budget.kv_pool_low_bytes
        pooled = replace(settings, kv_cache_memory=low) if in_safe.pool is None else settings
        safe = _counted(deployment, pooled, in_safe, low)
        if in_safe.request.tokens < found.request.tokens:  # ``auto`` takes no request that long there
            safe = safe._replace(each=0)
        result = in_safe if choice.pool == SAFE else found
    verdict = _verdict(deployment, found, likely, safe)
    return Answer(deployment, _with(deployment, result, likely, safe, verdict), likely, safe)


def likely_alone(deployment: Deployment) -> Counted | None:
    """The likely figure of `answered` without what else it works out; None where nothing is counted, and
    where the pool that has to hold the load is refused."""
    if deployment.choice.pool == SAFE:
        whole = answered(deployment)
        return whole.likely if whole.result.refusal is None else None
    found, likely = _in_likely(deployment)
    return likely if found.refusal is None else None


def _in_likely(deployment: Deployment) -> tuple[SizeResult, Counted | None]:
    model, choice, settings = deployment.model, deployment.choice, deployment.settings
    divided = choice.pool is not None
    found = ask(model, replace(choice, pool=LIKELY) if divided else choice, settings)
    memory = memory_of(settings, found)
    if memory is None and found.pool is not None:
        memory = found.pool.bytes
    if memory is None or uncounted(found):
        return found, None
    return found, _counted(deployment, settings, found, memory)


def _agreeing(settings: Settings, found: SizeResult, likely: Counted) -> SizeResult:
    """The answer with the bytes of all requests on the side of the pool on which the count has them. A replay
    in which requests wait for each other may run a burst in one pool and not in a slightly larger one: then
    the least bytes for it are found on the other side."""
    pool, per_gpu = found.pool, found.per_gpu
    if pool is None or not pool.bytes_per_block or not per_gpu.kv_bytes:
        return found
    usable = usable_bytes(found)
    if settings.requests <= likely.each:
        held = min(per_gpu.kv_bytes, usable)
    elif likely.each < pool.max_num_seqs:
        held = max(per_gpu.kv_bytes, usable + pool.bytes_per_block)
    else:
        return found
    return with_bytes(found, held)


def _in_safe(deployment: Deployment, found: SizeResult) -> SizeResult:
    """The answer in the safe figure of the pool; the same answer where that is the likely one."""
    budget = found.budget
    if budget is None or budget.kv_pool_low_bytes == budget.kv_pool_bytes:
        return found
    settings = own_settings(deployment.choice.engine, deployment.settings)
    result = in_safe_pool(deployment.model, deployment.choice, settings, found)
    if result.refusal is None and result.per_gpu.kv_bytes_per_request == found.per_gpu.kv_bytes_per_request:
        result = changed(result, per_gpu=found.per_gpu, total=found.total)
    return result


def _counted(deployment: Deployment, settings: Settings, result: SizeResult, memory: int) -> Counted:
    if result.refusal is not None:
        return Counted(0, memory, result.refusal)
    model, choice = deployment.model, deployment.choice
    each = max_requests(model, choice, settings, result) if memory else 0
    if settings.max_model_len != LONGEST or not memory:
        return Counted(each, memory)
    own = settings if settings.kv_cache_memory is not None else started_in(settings, memory)
    length = result.settings.get("max_model_len") or as_started(model, choice, own).max_model_len
    return Counted(each, memory, None, int(length) if length else None)


def _verdict(deployment: Deployment, found: SizeResult, likely: Counted, safe: Counted) -> Verdict:
    wanted = deployment.settings.requests
    if safe.refusal is None and safe.each >= wanted and likely.refusal is None:
        return Verdict.YES
    if likely.refusal is None and likely.each >= wanted:
        return Verdict.LIKELY
    return Verdict.UNLIKELY if _holds_at_most(deployment, found, likely) else Verdict.NO


_MEMORY = (TOO_LITTLE, "no-memory-for-cache")
"""Refusals that more memory lifts."""


def _holds_at_most(deployment: Deployment, found: SizeResult, likely: Counted) -> bool:
    """Whether the load is held where every estimate of the budget is at its low end."""
    budget, settings = found.budget, deployment.settings
    if budget is None or settings.kv_cache_memory is not None:
        return False
    if budget.kv_pool_high_bytes <= likely.memory:
        return False
    if likely.refusal is not None and likely.refusal.code not in _MEMORY:
        return False
    most = started_in(settings, budget.kv_pool_high_bytes)
    # With the likely figure of everything else the GPU may have less room than that.
    unbound = replace(deployment.choice, pool=None)
    try:
        result = ask(deployment.model, unbound, most)
        return max_requests(deployment.model, unbound, most, result) >= settings.requests
    except KvplanError:
        return False


def _with(
    deployment: Deployment,
    result: SizeResult,
    likely: Counted | None,
    safe: Counted | None,
    verdict: Verdict | None,
) -> SizeResult:
    pools = deployment.pools
    capacity = None
    if likely is not None and safe is not None:
        capped = result.pool is not None and 0 < likely.each == result.pool.max_num_seqs
        capacity = Capacity(likely.each * pools, safe.each * pools, likely.each, safe.each, capped)
    ref = DeploymentRef(
        deployment.gpus,
        deployment.gpus_per_replica,
        deployment.replicas,
        pools,
        deployment.idle_gpus,
        deployment.requests,
        {one.name: f"{one.value}: {one.why}" for one in deployment.chosen},
        deployment.typed,
    )
    return changed(result, deployment=ref, capacity=capacity, verdict=verdict)
