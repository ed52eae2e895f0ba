"""What would make requests fit that do not: every suggestion is an answer of the engine, none a formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.questions import PLENTY, largest_tokens, max_requests
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.units import MIB, ceil_div, round_up

Trials = Callable[[Model, Settings], Iterable[Sequence[tuple[str, Settings]]]]


class SuggestedFixes(NamedTuple):
    """What would make it fit, each tried: None where it would not (or nothing needs to change).

    tokens: the largest length for as many requests; requests: how many of this length; memory: bytes a GPU
    that hold all of them; kv_cache_dtype: ``fp8`` where that alone is enough; tensor_parallel_size: GPUs of
    the named kind. max_model_len: that of the requests, where the engine does not start with its default.
    others: changes in the engine's own words.
    """

    tokens: int | None = None
    requests: int | None = None
    memory: int | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel_size: int | None = None
    max_model_len: int | None = None
    others: tuple[str, ...] = ()


def suggested_fixes(model: Model, choice: Choice, settings: Settings, result: SizeResult) -> SuggestedFixes:
    """For requests that do not fit ``kv_cache_memory``, or an engine that would not start with it."""
    settings = own_settings(choice.engine, settings)
    asked = replace(settings, tokens=result.request.tokens)
    memory, more = None, None
    others = tuple(least[0] for least in least_trials(model, choice, asked) if least is not None)
    if result.budget is not None and result.budget.kv_pool_bytes == 0:
        return SuggestedFixes(others=others)  # the refusal has the rest
    if result.budget is None:
        needed = needed_memory(model, choice, asked)
        memory = needed if needed and _fits(model, choice, replace(asked, kv_cache_memory=needed)) else None
    else:
        wider = (ways for ways in (2, 4, 8, 16) if ways > settings.tensor_parallel_size)
        more = next((w for w in wider if _fits(model, choice, replace(asked, tensor_parallel_size=w))), None)
    dtype = "fp8" if _fits(model, choice, replace(asked, kv_cache_dtype="fp8")) else None
    if result.refusal is not None:
        return SuggestedFixes(
            memory=memory,
            kv_cache_dtype=dtype,
            tensor_parallel_size=more,
            max_model_len=_own_length(model, choice, asked, result),
            others=others,
        )
    return SuggestedFixes(
        tokens=largest_tokens(model, choice, settings) or None,
        requests=max_requests(model, choice, settings, result) or None,
        memory=memory,
        kv_cache_dtype=dtype,
        tensor_parallel_size=more,
        others=others,
    )


def _own_length(model: Model, choice: Choice, asked: Settings, result: SizeResult) -> int | None:
    """The requests' own length as max_model_len, where the engine would start with that."""
    largest = result.refusal.largest_max_model_len if result.refusal is not None else None
    tokens = asked.tokens
    if asked.max_model_len is not None or not tokens or not largest or tokens > largest:
        return None
    return tokens if _fits(model, choice, replace(asked, max_model_len=tokens)) else None


def least_trials(model: Model, choice: Choice, asked: Settings) -> Iterator[tuple[str, Settings] | None]:
    """Of each kind of change that the engine offers (``trials``), the least with which the requests fit: its
    words and the settings; None where none does.

    A kind is sorted from the least change to the most: what fits with one fits with those after it.
    """
    offered: Trials | None = getattr(choice.engine, "trials", None)
    for kind in offered(model, asked) if offered is not None else ():
        low, high = -1, len(kind) - 1
        if high < 0 or not _fits(model, choice, kind[high][1]):
            yield None
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _fits(model, choice, kind[middle][1]) else (middle, high)
        yield kind[high]


def needed_memory(model: Model, choice: Choice, settings: Settings) -> int | None:
    """What the requests and the engine's start take, in whole MiB; None where memory is not the reason.

    A pool holds the blocks of all requests, at least those of one request of max_model_len, and block 0,
    which is never used. What runs may need more or fewer blocks than start-up reserves for it: windows give
    back, states of a prompt under way come on top. Without a pool it is the peak.
    """
    plenty = replace(own_settings(choice.engine, settings), kv_cache_memory=PLENTY)
    result = choice.engine.size(model, plenty, choice.version)  # whatever the GPU has
    if result.refusal is not None:
        return None
    pool = result.pool
    if pool is None:
        return round_up(result.per_gpu.peak_bytes, MIB)

    def holds(blocks: int) -> bool:
        return _fits(model, choice, replace(settings, kv_cache_memory=(blocks + 1) * pool.bytes_per_block))

    held = ceil_div(result.per_gpu.kv_bytes, pool.bytes_per_block)
    longest = sum(group.blocks_per_request for group in pool.groups)
    blocks = max(held, longest)
    if pool.running_blocks is not None and held > longest:
        found = least_from(holds, longest, held)
        if found is None:
            return None
        blocks = found
    return round_up((blocks + 1) * pool.bytes_per_block, MIB)


def least_from(holds: Callable[[int], bool], low: int, likely: int) -> int | None:
    """The least number from ``low`` on that holds, by bisection; None where twice ``likely`` does not."""
    high, step = likely, 1
    while not holds(high):
        if high >= 2 * likely:
            return None
        low, high, step = high + 1, min(high + step, 2 * likely), 2 * step
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def _fits(model: Model, choice: Choice, settings: Settings) -> bool:
    try:
        return max_requests(model, choice, settings) >= settings.requests
    except KvplanError:
        return False
