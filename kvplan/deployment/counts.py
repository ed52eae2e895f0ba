"""How many requests one pool runs at once, and how long they may be: the engine asked, no formula repeated.

Pure: no file, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import TYPE_CHECKING

from kvplan.dtypes import KV_DTYPES
from kvplan.engines import own_settings
from kvplan.engines.base import Choice, has_kind, request_tokens
from kvplan.engines.budget import answered
from kvplan.engines.shared_options import idle_settings
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import NOISE, Budget, SizeResult
from kvplan.settings import LONGEST, Settings, started_in, stated_length
from kvplan.terms import Grows

if TYPE_CHECKING:
    from kvplan import bisection
else:
    bisection = later("kvplan", "bisection")

MAX_REQUESTS = 10**9
SHORTEST_RUNG = 1024
PLENTY = 10**17


def ask(model: Model, choice: Choice, settings: Settings) -> SizeResult:
    """The engine's answer, with the warning that goes with the choice of its version."""
    result = answered(model, choice, own_settings(choice.engine, settings))
    if settings.media:
        result = replace(result, settings={**result.settings, **dict(settings.media)})
    said = (
        *((choice.warning,) if choice.warning else ()),
        *choice.notes,
        *result.warnings,
        *idle_settings(choice.engine.name, model, settings),
        *_beyond(model, result),
    )
    return replace(result, warnings=said) if len(said) > len(result.warnings) else result


def reserved_bytes(model: Model, choice: Choice, settings: Settings) -> int:
    """Bytes of the fullest GPU that the engine counts for one request. No GPU's memory is divided: how many
    run at once, which takes most of the time of an answer, has no part in it."""
    alone = replace(settings, kv_cache_memory=None, starts=False, requests=1)
    found = choice.engine.size(model, own_settings(choice.engine, alone), choice.version)
    return found.per_gpu.reserved_bytes_per_request


def _beyond(model: Model, result: SizeResult) -> tuple[str, ...]:
    """A warning where a request is longer than its model was made for, and the engine does not mind."""
    length, own = result.request.tokens, model.max_model_len
    if own is None or length <= own or result.refusal is not None or "rope_scaling" in result.settings:
        return ()
    return (f"{length:,} tokens are more than the model's own {own:,}: {NOISE}",)


def as_started(model: Model, choice: Choice, settings: Settings) -> Settings:
    """The settings with the length that the engine takes where it is left to it (max_model_len ``auto``)."""
    if settings.max_model_len != LONGEST:
        return settings
    return replace(settings, max_model_len=ask(model, choice, replace(settings, tokens=None)).request.tokens)


def in_pools(model: Model, choice: Choice, settings: Settings, budget: Budget) -> tuple[Settings, Settings]:
    """The settings as one engine starts in the likely pool of the budget and in the safe one, each with the
    length that it takes there."""
    likely, safe = (started_in(settings, pool) for pool in (budget.kv_pool_bytes, budget.kv_pool_low_bytes))
    if settings.max_model_len == LONGEST:
        likely = replace(likely, max_model_len=as_started(model, choice, settings).max_model_len)
        safe = as_started(model, choice, safe)
    return replace(likely, requests=1), replace(safe, requests=1)


def uncounted(result: SizeResult) -> bool:
    """Whether the cache lies in host memory, of which nobody said how much there is: then no number of
    requests is claimed."""
    return result.refusal is None and result.pool is None and bool(result.settings.get("host_kv_bytes"))


IN_HOST = "the cache lies in host memory, and how much of it there may be taken was not given"


def memory_of(settings: Settings, result: SizeResult) -> int | None:
    """Bytes for the cache on each GPU: as given, or what the GPU's budget leaves; None where neither is."""
    if settings.kv_cache_memory is not None:
        return settings.kv_cache_memory
    return None if result.budget is None else result.budget.kv_pool_bytes


def max_requests(model: Model, choice: Choice, settings: Settings, result: SizeResult | None = None) -> int:
    """How many requests of ``settings.tokens`` run at once on one GPU; 0 where the engine would not start.

    With a pool the engine's own number (``pool.max_running``); without one the largest number whose
    peak_bytes on the fullest GPU are within ``kv_cache_memory``.
    """
    result = result or ask(model, choice, settings)
    if result.refusal is not None:
        return 0
    if result.pool is not None:
        return result.pool.max_running
    if uncounted(result):
        raise KvplanError("no-memory", IN_HOST, help="--host-memory 64GiB")
    memory = memory_of(settings, result)
    if memory is None:
        raise KvplanError(
            "no-memory", "how much memory the cache may take was not given", help="--kv-cache-memory 16GiB"
        )
    one = _peak(model, choice, settings, 1)
    if one == 0:
        return MAX_REQUESTS
    return bisection.most_up_to(
        MAX_REQUESTS, lambda count: _peak(model, choice, settings, count) <= memory, memory // one
    )


def fits_pool(model: Model, choice: Choice, settings: Settings) -> bool:
    """Whether one pool runs ``settings.requests`` requests; False where the engine does not answer."""
    try:
        return max_requests(model, choice, settings) >= settings.requests
    except KvplanError:
        return False


def _peak(model: Model, choice: Choice, settings: Settings, requests: int) -> int:
    return ask(model, choice, replace(settings, requests=requests)).per_gpu.peak_bytes


def largest_tokens(model: Model, choice: Choice, settings: Settings) -> int:
    """The largest length at which ``settings.requests`` requests fit; 0 where not even one token does.

    Looks up to max_model_len, of a model without one up to the length that was asked for. Terms with a stride
    rise and fall within one period (the least common multiple of the strides), but at equal position in the
    period they never fall: so the last period whose first length fits is found by bisection, and the best
    length within it by looking at each.
    """
    settings = as_started(model, choice, settings)
    bound = stated_length(settings) or model.max_model_len
    longest = request_tokens(model, settings if bound is None else replace(settings, tokens=None))
    period = _period(ask(model, choice, replace(settings, tokens=longest)))

    def fits(tokens: int) -> bool:
        asked = replace(settings, tokens=tokens)
        return max_requests(model, choice, asked) >= settings.requests

    if fits(longest):
        return longest
    low, high = 0, longest // period + 1
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * period):
            low = middle
        else:
            high = middle
    for tokens in range(min(longest, (low + 1) * period - 1), max(low * period, 1) - 1, -1):
        if fits(tokens):
            return tokens
    return 0


def _period(result: SizeResult) -> int:
    strides = (term.stride for entry in result.layers for term in entry.terms if term.grows is Grows.TOKEN)
    return min(lcm(*strides), 4096)


def powers_of_two(lowest: int, highest: int) -> Iterator[int]:
    """lowest, 2 * lowest … and highest itself."""
    value = lowest
    while value < highest:
        yield value
        value *= 2
    yield highest


def kv_dtypes_to_compare(model: Model) -> tuple[str, ...]:
    """``auto`` and every KV format that can hold this model's cache; records of an MLA latent need one."""
    has_latent = has_kind(model, Kind.MLA, Kind.COMPRESSED)
    return ("auto", *(name for name, form in KV_DTYPES.items() if has_latent or not form.only_mla))
