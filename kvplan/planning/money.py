"""The time a candidate takes, and with a price what a million of its answer tokens cost."""

from __future__ import annotations

from math import inf

from kvplan.engines.budget.law import Rejection
from kvplan.planning.ask import REQUESTS, Ask, Speed
from kvplan.planning.confirm import settings_of
from kvplan.planning.found import Found
from kvplan.planning.space import Class
from kvplan.plans.fleet import Offer
from kvplan.record import replace
from kvplan.settings import Settings
from kvplan.units import ceil_div

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


def least_cost(ask: Ask, one: Class, offer: Offer, most: int) -> float | None:
    """Below this no number of engines of the class makes a million tokens: as many requests on one engine as
    there are, prompts held as far as they can be. Tokens a second never fall as requests rise. None where
    nothing is estimated. most: requests that one pool runs."""
    if ask.speed is None or offer.price_per_gpu_hour is None:
        return None
    unknown = ask.objective == REQUESTS or ask.paced
    requests = most if unknown else min(ceil_div(ask.requests, one.layout.pools), most)
    settings = replace(one.settings(ask.base), gpu=offer.gpu)
    speed = ask.speed(one.variant.model, offer.gpu, settings, ask.running(offer, max(1, requests), 1))
    if isinstance(speed, Rejection):
        return None
    hourly = float(offer.price_per_gpu_hour * one.layout.gpus) * MILLION / HOUR
    return hourly / speed.tokens_per_second[1] * _CAREFUL


_CAREFUL = 1 - 1e-9
"""Rounding of floats is no reason to leave a plan out."""


def cost_per_million(ask: Ask, found: Found, speed: Speed | None) -> tuple[float, float, float] | None:
    """Price of a million answer tokens of the whole load: low, likely, high; None without price or estimate.

    price an hour · 10^6 / 3,600 / tokens a second of all engines. Engines take the requests evenly, and each
    request is counted at the pace of the fullest engine: where they do not divide, the others run fewer. Of
    arrivals a second no more tokens are made than their answers have.
    """
    if found.cost is None or speed is None:
        return None
    places = found.engines * max(1, found.per_engine)
    counted = ask.objective != REQUESTS and not ask.paced
    served = min(ask.requests, places) if counted else places
    hourly = float(found.cost) * MILLION / HOUR
    most = inf if ask.rate is None else float(ask.rate) * max(1, ask.mean.output_tokens)
    rates = [min(one * found.replicas * served / places, most) for one in speed.tokens_per_second]
    low, likely, high = rates
    return hourly / high, hourly / likely, hourly / low
