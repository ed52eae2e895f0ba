"""Gains of single changes to a deployment: every figure is an answer of the engine, none a formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvplan.deployment.answer import Answer, likely_alone
from kvplan.deployment.counts import MAX_REQUESTS
from kvplan.deployment.gpus import redealt
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.settings import media_tokens

NARROW = ("fp8", "q8_0")
"""Formats of about a byte an element: the first that the engine takes."""
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
    now = likely.each * deployment.pools
    pool = result.pool
    capped = pool is not None and likely.each == pool.max_num_seqs
    tried = _more_sequences(found) if capped else _changes(found)
    return tuple(gain for gain in tried if gain.requests > now)


def _more_sequences(found: Answer) -> Iterator[Gain]:
    """As many sequences as memory holds, where the engine was told to run fewer."""
    if found.deployment.settings.max_num_seqs is None:
        return
    free = _held(found, max_num_seqs=None)
    if free:
        each = free // found.deployment.pools
        yield Gain(f"--max-num-seqs {each}", _held(found, max_num_seqs=each))


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
