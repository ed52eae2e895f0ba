"""Every candidate asked of the engine, one after the other: what the search must equal."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from kvplan.deployment.counts import ask as ask_engine
from kvplan.engines.base import Choice
from kvplan.engines.budget.law import Capacity
from kvplan.engines.budget.sharing import Taken, block_of, runs_of, share_of, taken_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.planning.ask import COST, MOST_GPUS, REQUESTS, Ask
from kvplan.planning.found import Found, Key, also_fits, dealt_fits, fitting, key_of
from kvplan.planning.space import Layout, classes, seqs_of
from kvplan.planning.support import unsupported
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.units import ceil_div


def brute_force(ask: Ask) -> list[Found]:
    """The best of each (GPU, weights, cache format), best first, by asking every candidate."""
    best: dict[tuple[object, ...], Found] = {}
    for one, why in classes(ask):
        if why is not None:
            continue
        for rank, offer in enumerate(ask.offers):
            if unsupported(ask, one, offer) is not None:
                continue
            limit = ask.limit(offer)
            for length in ask.lengths:
                for seqs in seqs_of(ask):
                    settings = replace(
                        one.settings(ask.base),
                        gpu=offer.gpu,
                        max_num_seqs=seqs * one.limit_ways,
                        max_model_len=length,
                    )
                    room = _room(ask, one.variant.model, settings)
                    held = min(seqs // ask.samples, fitting(ask, room))
                    most = MOST_GPUS if limit is None else limit
                    if ask.objective == COST and offer.price_per_gpu_hour is None:
                        continue
                    if ask.max_cost is not None and offer.price_per_gpu_hour is None:
                        continue
                    if ask.objective == REQUESTS:
                        held = next((n for n in range(held, 0, -1) if _fits(ask, room, n)), 0)
                    replicas = _replicas(ask, room, held, one.layout, most, seqs)
                    gpus = replicas * one.layout.gpus
                    if not held or not replicas or gpus > most:
                        continue
                    if replicas * one.layout.pools * held < ask.requests:
                        continue
                    if ask.max_cost is not None and gpus * (offer.price_per_gpu_hour or 0) > ask.max_cost:
                        continue
                    found = Found((), one, offer, length, seqs, replicas, gpus, held, 0)
                    found = found._replace(key=key_of(ask.objective, found, rank))
                    key = (rank, one.variant.label, one.kv)
                    if key not in best or found.key < best[key].key:
                        best[key] = found
    return sorted(best.values(), key=_key)


def _key(found: Found) -> Key:
    return found.key


def _fits(ask: Ask, room: Capacity, requests: int) -> bool:
    return len(ask.shapes) == 1 or requests == 1 or dealt_fits(ask, room, requests)


def _replicas(ask: Ask, room: Capacity, held: int, layout: Layout, most: int, seqs: int) -> int:
    """One after the other, until the requests of the fullest engine fit."""
    if not held or ask.objective == REQUESTS:
        replicas = most // layout.gpus if held else 0
        return replicas if replicas and _as_well(ask, room, replicas * layout.pools, seqs) else 0
    for replicas in range(1, max(ask.requests, *(one.requests for one in ask.also), 1) + 1):
        each = ceil_div(ask.requests, replicas * layout.pools)
        if each <= held and _fits(ask, room, each) and _as_well(ask, room, replicas * layout.pools, seqs):
            return replicas
    return 0


def _as_well(ask: Ask, room: Capacity, pools: int, seqs: int) -> bool:
    return also_fits(ask, room, pools) and all(ceil_div(one.requests, pools) <= seqs for one in ask.also)


def _room(ask: Ask, model: Model, settings: Settings) -> Capacity:
    kept: dict[tuple[int | None, int], SizeResult | None] = {}
    choice: Choice = replace(ask.choice, advice=False)

    def answer(tokens: int | None, generated: int = 1) -> SizeResult | None:
        key = tokens, max(1, generated)
        if key not in kept:
            kept[key] = asked_of_engine(*key)
        return kept[key]

    def runs(tokens: int, generated: int) -> int:
        found = answer(tokens, generated)
        return 0 if found is None else runs_of(found)

    def takes(tokens: int, generated: int) -> Taken | None:
        found = answer(tokens, generated)
        return None if found is None else taken_of(found)

    def share(tokens: int) -> Fraction | None:
        found = answer(tokens)
        return None if found is None else share_of(found)

    def asked_of_engine(tokens: int | None, generated: int) -> SizeResult | None:
        asked = replace(settings, tokens=tokens, answer_tokens=generated)
        try:
            if ask.safe:
                found = ask_engine(model, choice, asked)
                if found.budget is None or found.refusal is not None:
                    return None
                asked = replace(asked, kv_cache_memory=found.budget.kv_pool_low_bytes)
            result = ask_engine(model, choice, asked)
        except KvplanError:
            return None
        return None if result.refusal is not None or result.pool is None else result

    plain = answer(None)
    if plain is None or plain.pool is None:
        return Capacity(0, runs, takes, share)
    return Capacity(plain.pool.bytes, runs, takes, share, block_of(plain))
