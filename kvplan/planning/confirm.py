"""Whether the engine itself confirms a candidate: its settings, its own answer, what it holds."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from operator import attrgetter
from typing import Any

from kvplan.bisection import most_up_to
from kvplan.deployment.counts import ask as ask_engine
from kvplan.errors import KvplanError
from kvplan.planning.ask import REQUESTS, Ask
from kvplan.planning.asked_law import capacity_of
from kvplan.planning.found import Found, also_fits, dealt_fits
from kvplan.record import replace
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.units import ceil_div

Served = Callable[[Settings, int, int], Settings]
"""An engine's own form of settings for so many requests of such a length, where its words are others."""


def has_slots(ask: Ask) -> bool:
    """Whether the engine's pool is as large as its slots: how many there are decides what lies beside it."""
    return getattr(ask.choice.engine, "served", None) is not None


def settings_of(ask: Ask, found: Found) -> Settings:
    """The candidate as settings, with the load of one engine."""
    shape = max(ask.shapes, key=attrgetter("tokens"))
    longest = shape.tokens
    settings = replace(
        found.one.settings(ask.base),
        gpu=found.offer.gpu,
        max_model_len=found.max_model_len,
        tokens=longest,
        answer_tokens=max(1, shape.output_tokens),
        requests=ask.sequences(found.per_engine, found.engines),
    )
    served: Served | None = getattr(ask.choice.engine, "served", None)
    if served is not None:
        return served(settings, _slots(ask, found, settings), found.max_model_len)
    return replace(settings, max_num_seqs=found.max_num_seqs * found.one.limit_ways)


def _slots(ask: Ask, found: Found, settings: Settings) -> int:
    """Slots of an engine whose pool is as large as its slots: those of the requests, and what stays free."""
    free = 1 - ask.headroom
    if ask.kept:
        budget = ask_engine(found.one.variant.model, ask.choice, settings).budget
        memory = 0 if budget is None else budget.kv_pool_low_bytes if ask.safe else budget.kv_pool_bytes
        free -= Fraction(ask.kept, max(memory, ask.kept))
    slots = settings.requests / free if free > 0 else Fraction(settings.requests)
    return ceil_div(slots.numerator, slots.denominator)


def answer_of(ask: Ask, found: Found, tokens: int | None = None) -> SizeResult:
    """The engine's own answer for the candidate, at its longest request or another. Raises KvplanError."""
    settings = settings_of(ask, found)
    asked = settings if tokens is None else replace(settings, tokens=tokens, requests=1)
    return ask_engine(found.one.variant.model, ask.choice, asked)


def holds(ask: Ask, found: Found) -> bool:
    """Whether the engine itself says so, in the pool that is asked for: nothing is suggested before that."""
    try:
        result = answer_of(ask, found)
    except KvplanError:
        return False
    if result.refusal is not None or result.pool is None:
        return False
    pooled: dict[str, Any] = {}
    if ask.safe and result.budget is not None:
        pooled = {"kv_cache_memory": result.budget.kv_pool_low_bytes, "starts": True}

    def asked(tokens: int, answer: int) -> SizeResult:
        more = {"tokens": tokens, "answer_tokens": max(1, answer), "requests": 1, **pooled}
        return ask_engine(found.one.variant.model, ask.choice, replace(settings_of(ask, found), **more))

    longest = max(ask.shapes, key=attrgetter("tokens"))
    try:
        first = asked(longest.tokens, longest.output_tokens)
    except KvplanError:
        return False
    if first.refusal is not None or first.pool is None:
        return False
    if has_slots(ask) and len(ask.shapes) == 1 and not ask.shares:
        return first.pool.max_requests >= settings_of(ask, found).requests  # a context as large as its slots
    room = capacity_of(first, asked)
    return dealt_fits(ask, room, found.per_engine) and also_fits(ask, room, found.engines)


def most_confirmed(ask: Ask, found: Found, limit: int) -> int:
    """How many of a candidate's requests one engine holds when it is started for them; where the objective is
    requests, how many it holds at all, up to a limit. As the candidate says, where what lies beside the pool
    does not follow the slots."""
    if not has_slots(ask):
        return found.per_engine

    def held(number: int) -> bool:
        return holds(ask, found._replace(per_engine=number, capacity=number))

    most = max(limit, found.per_engine) if ask.objective == REQUESTS else found.per_engine
    return most_up_to(most, held, found.per_engine)
