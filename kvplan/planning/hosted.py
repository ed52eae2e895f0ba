"""Where layers lie when no GPUs hold the load and the engine leaves the rest in host memory by itself.

Asked when nothing serves the load whole, as every token waits for what lies in host memory, and where
somebody said how much of it there is: then of fewer GPUs. Of each offer all GPUs that may be taken are, and
the format is the one of which the least lies there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplan.deployment.counts import ask as ask_engine
from kvplan.engines.spill import HOST_MEMORY, PLACES, spill, spills
from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.planning.ask import DEALT_WAYS, Ask
from kvplan.planning.space import Class, classes
from kvplan.plans.fleet import Offer
from kvplan.record import replace
from kvplan.settings import with_settings

MOST_OFFERS = 4
"""Kinds of GPU that are looked at: who names more has not said what there is."""


class Hosted(NamedTuple):
    """The ask with its layers placed, and what its user has to know."""

    ask: Ask
    notes: tuple[str, ...]


def in_host(asks: Sequence[Ask]) -> tuple[Hosted, ...]:
    """One ask for each engine and offer with which it starts so; none where it does not, or where a speed was
    asked for, which is not known of layers in host memory."""
    found = []
    for ask in asks:
        if ask.timed or not spills(ask.choice) or len(ask.offers) > MOST_OFFERS:
            continue
        for offer in ask.offers:
            tried = [one for one in _tried(ask, offer) if one is not None]
            if tried:
                found.append(min(tried, key=lambda one: one[0])[1])
    return tuple(found)


def placed(asks: Sequence[Ask], whole: int | None) -> Iterator[tuple[tuple[Hosted, ...], tuple[str, ...]]]:
    """Candidates to try, the fewest GPUs first, and their notes. whole: how many hold all of it; None: no
    number does. Fewer than hold it are tried of engines whose host memory was stated."""
    if whole is None:
        if found := in_host(asks):
            yield found, tuple(dict.fromkeys(note for one in found for note in one.notes))
        return
    said = [ask for ask in asks if HOST_MEMORY in ask.base.own]
    for count in DEALT_WAYS if said else ():
        if count < whole and (found := in_host([replace(ask, max_gpus=count) for ask in said])):
            notes = dict.fromkeys(note for one in found for note in one.notes)
            yield found, (*notes, f"{whole} GPUs hold it whole: leave --host-memory out")


def _tried(ask: Ask, offer: Offer) -> Iterator[tuple[int, Hosted] | None]:
    """Bytes in host memory, and the ask: each format in the first cache format, on the most GPUs."""
    limit = ask.limit(offer)
    most = DEALT_WAYS[-1] if limit is None else limit
    allowed = [one for one, why in classes(ask) if why is None and one.layout.gpus <= most]
    wide = max((one.layout.gpus for one in allowed), default=0)
    seen = set()
    for one in allowed:
        if one.layout.gpus == wide and one.variant not in seen:
            seen.add(one.variant)
            yield _placed(ask, offer, one)


def _placed(ask: Ask, offer: Offer, one: Class) -> tuple[int, Hosted] | None:
    asked = replace(
        one.settings(ask.base),
        gpu=offer.gpu,
        tokens=ask.longest,
        max_model_len=min(ask.lengths),
        requests=ask.sequences(ask.requests, one.layout.pools),
    )
    try:
        settings, notes = spill(one.variant.model, ask.choice, asked)
        result = ask_engine(one.variant.model, ask.choice, settings) if notes else None
    except KvplanError:
        return None
    if result is None or result.refusal is not None:
        return None
    places = {name: settings.own[name] for name in PLACES if name in settings.own}
    base = with_settings(ask.base, places)
    placed = replace(
        ask,
        variants=(one.variant,),
        offers=(offer,),
        base=base,
        pp=(one.layout.pp,),
        kv_dtypes=(one.kv,),
        speed=None,
    )
    return sum(line.low_bytes for line in result.host), Hosted(placed, notes)
