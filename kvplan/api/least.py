"""What so many requests need at least: memory for the cache, the share of a GPU, GPUs, max_num_seqs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from kvplan.engines.base import Choice
from kvplan.engines.budget import room_for_cache
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.questions import ask, max_requests
from kvplan.questions.bisection import least_from
from kvplan.questions.fixes import needed_memory
from kvplan.settings import Settings, started_in, with_setting
from kvplan.units import MIB

WAYS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_HUNDREDTHS = range(1, 100)


class Both(NamedTuple):
    """With the likely pool and with the safe one; None where none is enough."""

    likely: Fraction | int | None
    safe: Fraction | int | None


class Least(NamedTuple):
    """memory: bytes for the cache on each GPU, None where no memory is enough; room: of them that there are.
    share, flag: of the GPU's memory and what the engine calls it, None where it has none. gpus: of the kind
    that was named. seqs: max_num_seqs, where the engine takes it. why: what keeps the GPU's part from being
    answered."""

    tokens: int
    requests: int
    memory: int | None
    room: int | None = None
    flag: str | None = None
    share: Both | None = None
    gpus: Both | None = None
    seqs: int | None = None
    why: str | None = None


def least(model: Model, choice: Choice, settings: Settings) -> Least:
    """The least of each, everything else as it was asked for; the engine is started for the requests'
    length, or max_model_len."""
    tokens = settings.tokens or ask(model, choice, settings).request.tokens
    asked = replace(settings, tokens=tokens, max_model_len=settings.max_model_len or tokens)
    asked = replace(asked, kv_cache_memory=None)
    unbound = replace(choice, pool=None)  # whatever the GPU has
    traits = traits_of(choice.engine.name)
    seqs = None if "max_num_seqs" in traits.foreign else settings.requests
    memory = _memory(model, unbound, asked)
    if memory is None and seqs is not None and asked.max_num_seqs is None:
        asked = replace(asked, max_num_seqs=seqs)  # the engine's own is less than the requests
        memory = _memory(model, unbound, asked)
    found = Least(tokens, settings.requests, memory, seqs=seqs)
    if settings.gpu is None:
        return found
    one = ask(model, choice, replace(asked, requests=1))
    budget, unknown = one.budget, [text for text in one.warnings if text.startswith("no pool")]
    if budget is None and one.refusal is None and unknown:
        return found._replace(why=unknown[0])
    if budget is not None and memory is not None:
        found = found._replace(room=room_for_cache(budget))
    if traits.memory_share is not None:
        flag, name = traits.memory_share.flag, traits.memory_share.setting
        share = _both(
            model, choice, (with_setting(asked, name, Fraction(step, 100)) for step in _HUNDREDTHS), asked
        )
        found = found._replace(flag=flag, share=Both(*(_hundredth(step) for step in share)))
    if not settings.gpu.row:
        spread = traits.spread or "tensor_parallel_size"
        ways = _both(model, choice, (with_setting(asked, spread, number) for number in WAYS), asked)
        found = found._replace(gpus=Both(*(None if one is None else WAYS[one] for one in ways)))
    return found


_DOUBLED = 6
"""How often an amount that is said to be enough is doubled where it is not."""


def _memory(model: Model, choice: Choice, settings: Settings) -> int | None:
    enough = needed_memory(model, choice, settings)
    return None if enough is None else _tight(model, choice, settings, enough)


def _tight(model: Model, choice: Choice, settings: Settings, enough: int) -> int | None:
    """The least memory in whole MiB. What the requests take is not it: a block that an engine never uses is
    in it for all, and not what some keep free besides. None where no memory is enough."""
    most = max(1, enough // MIB)
    for _ in range(_DOUBLED):
        if _holds(model, choice, settings, most):
            found = least_from(lambda number: _holds(model, choice, settings, number), 1, most)
            return None if found is None else found * MIB
        most *= 2
    return None


def _holds(model: Model, choice: Choice, settings: Settings, number: int) -> bool:
    """Whether so many MiB hold the requests."""
    try:
        pooled = replace(settings, kv_cache_memory=number * MIB)
        return max_requests(model, choice, pooled) >= settings.requests
    except KvplanError:
        return False


def _hundredth(step: int | None) -> Fraction | None:
    return None if step is None else Fraction(_HUNDREDTHS[step], 100)


def _both(
    model: Model, choice: Choice, variants: Iterator[Settings], asked: Settings
) -> tuple[int | None, int | None]:
    """The first of the variants, from little to much, whose likely pool holds the requests, and whose safe
    one does."""
    kept = list(variants)
    pools: dict[int, tuple[int, int]] = {}

    def holds(step: int, safe: bool) -> bool:
        try:
            if step not in pools:
                budget = ask(model, choice, replace(kept[step], requests=1)).budget
                pools[step] = (0, 0) if budget is None else (budget.kv_pool_bytes, budget.kv_pool_low_bytes)
            pool = pools[step][safe]
            pooled = replace(started_in(kept[step], pool), requests=1)
            return pool > 0 and max_requests(model, choice, pooled) >= asked.requests
        except KvplanError:
            return False

    likely, safe = (_first(len(kept), lambda step, safe=safe: holds(step, safe)) for safe in (False, True))  # type: ignore[misc]
    return likely, safe


def _first(steps: int, holds: Callable[[int], bool]) -> int | None:
    """The first step from which on all hold; those that cannot be (a model that does not divide by 3) are
    passed by."""
    found = None
    low, high = 0, steps - 1
    while low <= high:
        middle = (low + high) // 2
        at = next((step for step in range(middle, high + 1) if holds(step)), None)
        if at is None:
            high = middle - 1
            continue
        found, high = at, middle - 1
    return found
