"""What would make requests fit that do not: every suggestion is an answer of the engine, none a formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.questions import PLENTY, largest_tokens, max_requests
from kvplan.questions.bisection import least_from
from kvplan.results import SizeResult
from kvplan.settings import Settings, with_setting
from kvplan.units import MIB, ceil_div, round_up

SHARES = ("gpu_memory_utilization", "free_gpu_memory_fraction")
"""Settings of a share beside which activations and graphs are counted: more of it takes nothing from them."""
LARGEST_SHARE = 95
"""In hundredths: what is above is left to the driver and to what else runs on the GPU."""
Steps = Sequence[tuple[str, Settings]]
Trials = Callable[[Model, Settings], Iterable[Steps]]


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
    others = _others(model, choice, asked, result)
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
    shorter = _shortened(asked, result)
    return asked.tokens if shorter is not None and _fits(model, choice, shorter) else None


def _shortened(asked: Settings, result: SizeResult) -> Settings | None:
    """Started for the requests' own length, where a longer one is what keeps the engine from starting."""
    largest = result.refusal.largest_max_model_len if result.refusal is not None else None
    if asked.max_model_len is not None or not asked.tokens or not largest:
        return None
    longest = result.settings.get("max_model_len")
    if isinstance(longest, int) and asked.tokens >= longest:
        return None
    return replace(asked, max_model_len=asked.tokens)


def _others(model: Model, choice: Choice, asked: Settings, result: SizeResult) -> tuple[str, ...]:
    """The engine's own changes and a larger share of the memory; where none is enough as it is started, with
    the requests' own length, unless that is enough alone."""
    found = _least_words(model, choice, asked)
    shorter = _shortened(asked, result)
    if found or shorter is None or _fits(model, choice, shorter):
        return found
    words = _least_words(model, choice, shorter)
    return tuple(f"--max-model-len {asked.tokens} {way}" for way in words)


def _least_words(model: Model, choice: Choice, asked: Settings) -> tuple[str, ...]:
    least = (*least_trials(model, choice, asked), _least_of(model, choice, _shares(choice, asked)))
    return tuple(one[0] for one in least if one is not None)


def _shares(choice: Choice, asked: Settings) -> Steps:
    """Larger parts of a GPU's memory; the engine must count what else it takes beside them."""
    entry = traits_of(choice.engine.name).memory_share
    if entry is None or entry.setting not in SHARES or asked.gpu is None or asked.kv_cache_memory is not None:
        return ()
    given = asked.gpu_memory_utilization or asked.own.get(entry.setting) or 0
    return [
        (f"{entry.flag} {float(share):g}", with_setting(asked, entry.setting, share))
        for share in (Fraction(step, 100) for step in range(91, LARGEST_SHARE + 1))
        if share > Fraction(str(given))
    ]


def least_trials(model: Model, choice: Choice, asked: Settings) -> Iterator[tuple[str, Settings] | None]:
    """Of each kind of change that the engine offers (``trials``), the least with which the requests fit: its
    words and the settings; None where none does.

    A kind is sorted from the least change to the most: what fits with one fits with those after it.
    """
    offered: Trials | None = getattr(choice.engine, "trials", None)
    for kind in offered(model, asked) if offered is not None else ():
        yield _least_of(model, choice, kind)


def _least_of(
    model: Model, choice: Choice, kind: Sequence[tuple[str, Settings]]
) -> tuple[str, Settings] | None:
    low, high = -1, len(kind) - 1
    if high < 0 or not _fits(model, choice, kind[high][1]):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(model, choice, kind[middle][1]) else (middle, high)
    return kind[high]


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
    if pool is None or not pool.bytes_per_block:  # none is paged: what there is lies in slots
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


def _fits(model: Model, choice: Choice, settings: Settings) -> bool:
    try:
        return max_requests(model, choice, settings) >= settings.requests
    except KvplanError:
        return False
