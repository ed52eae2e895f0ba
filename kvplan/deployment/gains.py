"""Gains of single changes to a deployment: every figure is an answer of the engine, none a formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvplan.bisection import most_up_to
from kvplan.deployment.answer import Answer, likely_alone
from kvplan.deployment.counts import MAX_REQUESTS
from kvplan.deployment.gpus import redealt
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.record import changed, replace
from kvplan.settings import media_tokens

NARROW = ("fp8", "q8_0")
"""Formats of about a byte an element: the first that the engine takes."""
_WIDER = 4
"""Times that a limit of sequences is raised in search of one that memory does not reach."""
SHORTEST = 1024
"""Tokens below which nobody asks for a shorter length."""


class Gain(NamedTuple):
    """options: as they are added to the command; requests: how many would then run at once, likely."""

    options: str
    requests: int


def gains(found: Answer) -> tuple[Gain, ...]:
    """Single changes with which more requests would run at once: max_num_seqs where that is the limit, else a
    cache of a byte an element, twice the GPUs, half the length. Empty where no GPU is known.
    """
    deployment, result, likely = found.deployment, found.result, found.likely
    if likely is None or result.refusal is not None or result.budget is None or likely.each >= MAX_REQUESTS:
        return ()
    if deployment.settings.kv_cache_memory is not None:
        return ()
    now, capacity = likely.each * deployment.pools, result.capacity
    if capacity is not None and capacity.capped:
        free = capacity.memory_requests
        return () if free is None else (Gain(f"--max-num-seqs {free // deployment.pools}", free),)
    return tuple(gain for gain in _changes(found) if gain.requests > now)


def with_headroom(found: Answer) -> Answer:
    """The answer with how many requests memory holds, where max_num_seqs is what limits them: as many as run
    where max_num_seqs is that number, for each sequence takes memory beside the cache as well."""
    capacity = found.result.capacity
    if capacity is None or not capacity.capped:
        return found
    free = _free(found, capacity.requests_per_pool)
    if not free:
        return found
    more = free > capacity.requests  # else memory holds no more either
    capacity = changed(capacity, capped=more, memory_requests=free if more else None)
    return replace(found, result=changed(found.result, capacity=capacity))


def _free(found: Answer, each: int) -> int:
    """Requests that memory holds, over all pools; 0 where no limit is found that lies above it."""
    pools, most = found.deployment.pools, found.result.settings.get("max_num_batched_tokens")

    def held(sequences: int) -> int:
        return _held(found, max_num_seqs=sequences) // pools

    for _ in range(_WIDER):
        before, each = each, each * 8
        if isinstance(most, int):  # no step has room for more sequences
            each = min(each, most)
        if 0 < (likely := held(each)) < each:
            return most_up_to(each, lambda sequences: held(sequences) >= sequences, likely) * pools
        if each <= before:
            return 0
    return 0


def _changes(found: Answer) -> Iterator[Gain]:
    deployment = found.deployment
    settings = deployment.settings
    for narrow in NARROW:
        if held := _held(found, kv_cache_dtype=narrow):
            yield Gain(f"--kv-cache-dtype {narrow}", held)
            break
    yield from _twice(found)
    tokens, beside = settings.tokens, media_tokens(settings.media)
    if tokens is not None and not beside and tokens >= 2 * SHORTEST:
        half = tokens // 2
        started = {"max_model_len": half} if deployment.follows_requests else {}
        yield Gain(f"-t {half}", _held(found, tokens=half, **started))


def _twice(found: Answer) -> Iterator[Gain]:
    """Twice the GPUs: wider servers or twice as many, whichever hold more."""
    deployment = found.deployment
    gpu, width = deployment.settings.gpu, deployment.settings.tensor_parallel_size
    if gpu is None or traits_of(deployment.choice.engine.name).spread:
        return
    name = gpu.memory_marketing if gpu.slug.startswith("unlisted-") else gpu.slug
    more = deployment.gpus * 2
    wider, further = (
        Gain(f"--gpu {more}x{name} --tp {each}", _held(found, more, tensor_parallel_size=each))
        for each in (2 * width, width)
    )
    yield wider if wider.requests > further.requests else further


def _held(found: Answer, gpus: int | None = None, **changes: Any) -> int:
    """Requests that run at once with the change, over all replicas; 0 where the engine does not start."""
    deployment, likely = found.deployment, found.likely
    try:
        if gpus is None:
            other = replace(deployment, settings=replace(deployment.settings, **changes))
        else:
            other = redealt(deployment, gpus, **changes)
        if other.settings != deployment.settings:
            likely = likely_alone(other)
    except KvplanError:
        return 0
    return 0 if likely is None or likely.each >= MAX_REQUESTS else likely.each * other.pools
