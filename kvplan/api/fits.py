"""Questions asked of a budget: requests at several lengths, likely and safe, and the longest length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from kvplan.api.helps import tried
from kvplan.engines.base import NO_LENGTH, SAFE, Choice
from kvplan.engines.budget import TOO_LITTLE
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.questions import SHORTEST_RUNG, ask, in_pools, max_requests, powers_of_two, uncounted, verdict
from kvplan.results import Budget, Refusal, SizeResult
from kvplan.settings import LONGEST, Settings, started_in


class Fitting(NamedTuple):
    """Requests of one length in the likely pool and in the safe one."""

    tokens: int
    likely: int
    safe: int


class Fits(NamedTuple):
    """What a budget's pool holds. max_model_len: the longest that the engine would start with, with the
    likely pool and with the safe one; is_own: that is the model's own length. may_start: the
    likely pool is too small, and the most that the budget may leave would hold what was asked. never_safely:
    why the engine starts with no length in the safe pool; shorter: what it takes there by
    itself (``auto``), where that is less."""

    rungs: tuple[Fitting, ...] = ()
    max_model_len: int | None = None
    safe_max_model_len: int | None = None
    is_own: bool = False
    may_start: bool = False
    never_safely: Refusal | None = None
    shorter: int | None = None


_LENGTHS = (4096, 32768, 131072)


def fits_of(
    model: Model, choice: Choice, settings: Settings, result: SizeResult, *, steps: bool = False
) -> Fits:
    """Requests at several lengths up to max_model_len, and the largest max_model_len. steps: at every power
    of two, as a curve needs them."""
    budget = result.budget
    if budget is None or budget.kv_pool_bytes == 0 or uncounted(result):
        return Fits()
    likely, safe = in_pools(model, choice, settings, budget)
    largest, is_own, _ = _largest_start(model, choice, likely)
    surely, _, never = _largest_start(model, choice, safe)
    if never is not None:
        ways = tried(model, replace(choice, pool=SAFE), settings, never.help)
        never = replace(never, help=tuple(ways))
    if result.refusal is not None:
        may_start = result.refusal.code == TOO_LITTLE and _holds_at_most(model, choice, settings, budget)
        return Fits((), largest, surely, is_own, may_start)
    started_for = result.settings.get("max_model_len")
    longest = int(started_for or result.request.tokens)
    usual = powers_of_two(min(SHORTEST_RUNG, longest), longest) if steps else _LENGTHS
    lengths = sorted({*(length for length in usual if length < longest), result.request.tokens, longest})
    shorter = None
    if settings.max_model_len == LONGEST:
        shorter = safe.max_model_len if (safe.max_model_len or longest) < longest else None
    elif started_for is not None:
        likely, safe = (replace(pool, max_model_len=longest) for pool in (likely, safe))
    rungs = tuple(
        Fitting(
            tokens,
            max_requests(model, choice, replace(likely, tokens=tokens)),
            max_requests(model, choice, replace(safe, tokens=tokens)),
        )
        for tokens in lengths
    )
    return Fits(rungs, largest, surely, is_own, never_safely=never, shorter=shorter)


def _holds_at_most(model: Model, choice: Choice, settings: Settings, budget: Budget) -> bool:
    most = started_in(settings, budget.kv_pool_high_bytes)
    found = verdict(model, choice, most, ask(model, choice, most))
    return found is not None and found.fits


def _largest_start(
    model: Model, choice: Choice, settings: Settings
) -> tuple[int | None, bool, Refusal | None]:
    """The longest max_model_len with which the engine starts, whether that is the model's own, and why there
    is none."""
    try:
        own = ask(model, choice, replace(settings, max_model_len=None, tokens=None))
    except KvplanError as error:
        if error.code != NO_LENGTH:
            raise
        return None, False, None  # neither the model nor the engine knows one
    if own.refusal is None:
        return own.request.tokens, True, None
    largest = own.refusal.largest_max_model_len
    return largest, False, None if largest else own.refusal


def fits_at(model: Model, choice: Choice, variants: Sequence[Settings], budget: Budget) -> list[Fitting]:
    """Requests at each length of the variants, which differ in nothing else, in a budget's pools."""
    found = []
    for settings in variants:
        likely, safe = (
            max_requests(model, choice, pool) if pool.kv_cache_memory else 0
            for pool in in_pools(model, choice, settings, budget)
        )
        tokens = ask(model, choice, settings).request.tokens
        found.append(Fitting(tokens, likely, safe))
    return found
