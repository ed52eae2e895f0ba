"""Requests of several lengths at once, without a workload's file: ``-n 20 -t 2k,8k:5,32k:1``.

A mix is held where the shares of one pool that its requests take (`kvplan.engines.budget.sharing`) come to no
more than 1, with the largest excess that the prompt of one of them needs beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from kvplan.api.helps import tried
from kvplan.engines.base import Choice
from kvplan.engines.budget.sharing import Taken, taken_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.workload import apportion
from kvplan.questions import MAX_REQUESTS, ask, memory_of, uncounted
from kvplan.results import SizeResult
from kvplan.settings import Settings, started_in


class Part(NamedTuple):
    """So many requests of one length."""

    tokens: int
    requests: int


class Filled(NamedTuple):
    """share: of one pool that the mix takes, None where one of its requests is never admitted. most: how
    many requests in these proportions one pool holds."""

    share: Fraction | None
    most: int


class Mix(NamedTuple):
    """The answer. limit: max_num_seqs, where the engine has it; result: of the longest request alone, with
    the refusal where the engine does not start for it."""

    parts: tuple[Part, ...]
    likely: Filled
    safe: Filled
    limit: int | None
    result: SizeResult

    @property
    def requests(self) -> int:
        return sum(part.requests for part in self.parts)

    def held_in(self, filled: Filled) -> bool:
        return filled.most >= self.requests


def mixed(model: Model, choice: Choice, settings: Settings, parts: Sequence[Part]) -> Mix:
    """What a pool holds of a mix. The engine is started for its longest request, or max_model_len.

    Raises KvplanError(no-memory) where neither GPU nor memory was named."""
    longest = max(part.tokens for part in parts)
    started = replace(settings, max_model_len=settings.max_model_len or longest, tokens=longest, requests=1)
    result = ask(model, choice, started)
    pools = (
        (settings.kv_cache_memory, settings.kv_cache_memory)
        if settings.kv_cache_memory is not None or result.budget is None
        else (result.budget.kv_pool_bytes, result.budget.kv_pool_low_bytes)
    )
    if result.refusal is None and (memory_of(started, result) is None or uncounted(result)):
        raise KvplanError(
            "no-memory",
            "how much memory the cache may take is not known",
            detail=result.warnings,
            help=("--gpu h100", "--kv-cache-memory 16GiB"),
        )
    if result.refusal is not None:
        # A length of its own is no way out of a mix.
        ways = tuple(
            way for way in tried(model, choice, started, result.refusal.help) if "--tokens" not in way
        )
        result = replace(result, refusal=replace(result.refusal, help=ways))
    limit = None if result.pool is None else result.pool.max_num_seqs
    likely, safe = (_filled(model, choice, started, parts, pool or 0, limit) for pool in pools)
    return Mix(tuple(parts), likely, safe, limit, result)


def _filled(
    model: Model, choice: Choice, started: Settings, parts: Sequence[Part], pool: int, limit: int | None
) -> Filled:
    if not pool:
        return Filled(None, 0)
    takes: list[Taken] = []
    for part in parts:
        asked = replace(started_in(started, pool), tokens=part.tokens)
        taken = taken_of(ask(model, choice, asked))
        if taken is None:
            return Filled(None, 0)
        takes.append(taken)
    excess = max(taken.excess for taken in takes)

    def share(counts: Sequence[int]) -> Fraction:
        return sum((count * one.share for count, one in zip(counts, takes)), start=excess)

    weights = [part.requests for part in parts]
    top = MAX_REQUESTS if limit is None else limit
    most = _largest(lambda number: share(apportion(number, weights)) <= 1, top)
    return Filled(share(weights), most)


def _largest(fits: Callable[[int], bool], top: int) -> int:
    """The largest number up to ``top`` that fits, as bisection finds it."""
    if fits(top):
        return top
    low, high = 0, 1
    while high < top and fits(high):
        low, high = high, high * 2
    high = min(high, top)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
