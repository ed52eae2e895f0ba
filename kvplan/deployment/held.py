"""Bytes that requests hold at once: the least cache in which they run, counted by the same model as the
requests.

    bytes_held(N) ≤ what requests can have of a pool < bytes_held(N + 1)        N = the requests it runs

So bytes and counts cannot contradict each other. What an engine reserves for a request when it starts, and
prints as its concurrency, is another figure: ``PerGpu.reserved_bytes_per_request``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from kvplan.deployment.counts import PLENTY, ask, max_requests
from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import changed, replace
from kvplan.results import Pool, SizeResult, Total
from kvplan.settings import Settings
from kvplan.units import MIB

if TYPE_CHECKING:
    from kvplan import bisection
else:
    bisection = later("kvplan", "bisection")

_DOUBLED = 40


def with_bytes_held(model: Model, choice: Choice, settings: Settings, result: SizeResult) -> SizeResult:
    """The answer with `bytes_held` as ``kv_bytes``."""
    if not result.sized or not result.per_gpu.kv_bytes or result.settings.get("host_kv_bytes"):
        return result
    return with_bytes(result, bytes_held(model, choice, settings, result))


def with_bytes(result: SizeResult, held: int) -> SizeResult:
    """The answer with these ``kv_bytes`` of the fullest GPU, and as many over the replica in proportion."""
    before, total = result.per_gpu, result.total
    if held == before.kv_bytes:
        return result
    # What is pinned beside the cache after prefill stays beside it.
    per_gpu = changed(before, kv_bytes=held, peak_bytes=held + before.peak_bytes - before.kv_bytes)
    together = round(held * Fraction(total.kv_bytes_per_request, before.kv_bytes_per_request or 1))
    return changed(result, per_gpu=per_gpu, total=Total(total.kv_bytes_per_request, together))


def bytes_held(model: Model, choice: Choice, settings: Settings, result: SizeResult) -> int:
    """Bytes of the fullest GPU's cache in which ``settings.requests`` requests like that of the answer run at
    once, however many sequences the engine was told to run."""
    engine, own = choice.engine, own_settings(choice.engine, settings)
    enough = result.per_gpu.kv_bytes
    least = getattr(engine, "least_bytes", None)
    if least is not None:
        found = least(model, own, choice.version)
        return enough if found is None else int(found)
    tokens = result.request.tokens
    shape = replace(own, tokens=tokens, num_gpu_blocks_override=None, starts=False)
    if own.max_model_len is not None:
        shape = replace(shape, max_model_len=tokens)
    null = 0

    def runs(memory: int) -> bool:
        try:
            pool = engine.size(model, replace(shape, kv_cache_memory=memory + null), choice.version).pool
        except KvplanError:
            return False
        return pool is not None and runs_in(pool, settings.requests)

    try:
        plenty = engine.size(model, replace(shape, kv_cache_memory=PLENTY), choice.version).pool
    except KvplanError:
        return enough
    if plenty is None or not runs_in(plenty, settings.requests):
        return enough
    null = traits_of(engine.name).null_blocks * plenty.bytes_per_block
    if runs(enough):
        return bisection.least_below(runs, enough)
    likely = enough
    for _ in range(_DOUBLED):
        likely *= 2
        if runs(likely):
            return bisection.least_from(runs, enough + 1, likely) or enough
    return enough


def least_memory(model: Model, choice: Choice, settings: Settings) -> int | None:
    """The least memory for the cache of one GPU, in whole MiB, with which the engine starts and runs
    ``settings.requests`` requests at once; None where no memory is enough.

    What requests hold is not it: a block that the engine never uses is in it too, and a request of
    max_model_len must fit."""
    unbound = replace(choice, pool=None)

    def does(number: int) -> bool:
        try:
            pooled = replace(settings, kv_cache_memory=number * MIB)
            return max_requests(model, unbound, pooled) >= settings.requests
        except KvplanError:
            return False

    try:
        result = ask(model, unbound, replace(settings, kv_cache_memory=PLENTY))
    except KvplanError:
        return None
    if result.refusal is not None:
        return None
    held = max(
        bytes_held(model, choice, settings, result), result.per_gpu.peak_bytes if result.pool is None else 0
    )
    likely = max(1, held // MIB)
    if does(likely):
        return bisection.least_below(does, likely) * MIB
    for _ in range(_DOUBLED):
        low, likely = likely + 1, likely * 2
        if does(likely):
            found = bisection.least_from(does, low, likely)
            return None if found is None else found * MIB
    return None


def runs_in(pool: Pool, requests: int) -> bool:
    """Whether the memory of a pool holds so many requests at once, whatever max_num_seqs is."""
    if pool.running_blocks is None:
        return max(pool.requests_that_fit, pool.max_running) >= requests
    return pool.max_running >= requests or pool.max_running >= pool.max_num_seqs
