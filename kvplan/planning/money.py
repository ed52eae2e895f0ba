"""The time a candidate takes, and with a price what a million of its answer tokens cost."""

from __future__ import annotations

from kvplan.engines.budget.law import Rejection
from kvplan.planning.ask import REQUESTS, Ask, Speed
from kvplan.planning.confirm import settings_of
from kvplan.planning.found import Found
from kvplan.settings import Settings

HOUR = 3600
MILLION = 10**6


def estimate_of(ask: Ask, found: Found, settings: Settings | None = None) -> Speed | None:
    """The estimate for the requests that one engine of the candidate runs; None where there is none.
    settings: as the engine resolves them, where it was asked."""
    if ask.speed is None:
        return None
    running = ask.running(found.offer, max(1, found.per_engine), found.block)
    served = settings_of(ask, found) if settings is None else settings
    speed = ask.speed(found.one.variant.model, found.offer.gpu, served, running)
    return None if isinstance(speed, Rejection) else speed


def cost_per_million(ask: Ask, found: Found, speed: Speed | None) -> tuple[float, float, float] | None:
    """Price of a million answer tokens of the whole load: low, likely, high; None without price or estimate.

    price an hour · 10^6 / 3,600 / tokens a second of all engines. Engines take the requests evenly, and each
    request is counted at the pace of the fullest engine: where they do not divide, the others run fewer.
    """
    if found.cost is None or speed is None:
        return None
    places = found.engines * max(1, found.per_engine)
    served = places if ask.objective == REQUESTS else min(ask.requests, places)
    hourly = float(found.cost) * MILLION / HOUR / found.replicas * places / served
    low, likely, high = speed.tokens_per_second
    return hourly / high, hourly / likely, hourly / low
