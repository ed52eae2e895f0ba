"""From a candidate to an option: every value resolved by the engine itself, and what is easily got wrong."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.bisection import most_up_to
from kvplan.engines.base import has_kind
from kvplan.engines.budget.law import Capacity, Rejection
from kvplan.engines.spill import spills
from kvplan.engines.traits import traits_of
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.own_options import OwnOptions
from kvplan.planning.ask import FEWEST, REQUESTS, Ask, node_of
from kvplan.planning.confirm import answer_of, has_slots, most_confirmed, settings_of
from kvplan.planning.found import Found, dealt_fits, fitting, most_dealt
from kvplan.planning.money import cost_per_million, estimate_of
from kvplan.planning.results import Option
from kvplan.planning.search import search
from kvplan.planning.space import axes_of, copies_of_heads
from kvplan.plans.serve import host_tiers, serve_of
from kvplan.record import replace
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.units import ceil_div

_DEFAULTS = Settings()


_WIDER = (8, 64, 512)
"""Times max_num_seqs, in search of a limit that memory does not reach."""


def held_by(ask: Ask, found: Found) -> tuple[int, int]:
    """Requests that all pools of the candidate hold: by the likely figure of the pool, and by the safe one.

    Where targets of speed are set, no more than meet them as far as that was looked at.
    """
    if has_slots(ask):
        plain = replace(ask, objective=FEWEST)
        likely, safe = (most_confirmed(replace(plain, safe=pool), found, 0) for pool in (False, True))
        return likely * found.engines, safe * found.engines
    ask_kind = ask.laws.kind(found.offer.gpu, ask.choice, replace(ask.base, gpu=found.offer.gpu))
    one = found.one
    law = ask.laws.law(one.variant.model, ask.choice, one.settings(ask.base), found.offer.gpu, ask_kind)
    seqs = found.max_num_seqs
    paced = ask.timed
    amounts = []
    for safe in (False, True):
        most = min(found.capacity, seqs // ask.samples)
        room = law.room(found.offer.gpu, seqs * one.limit_ways, found.max_model_len, safe=safe)
        if safe != ask.safe:
            held = 0 if isinstance(room, Rejection) else min(seqs // ask.samples, fitting(ask, room))
            most = min(most, held) if paced else held
        amounts.append(0 if isinstance(room, Rejection) else most_dealt(ask, room, most) * found.engines)
    return amounts[0], amounts[1]


def memory_held(ask: Ask, found: Found, likely: int) -> int | None:
    """Requests that all pools of the candidate would hold by the likely figure with a larger max_num_seqs;
    None where that is not what limits them, or nobody knows.

    likely: those that they hold as they are."""
    each = found.max_num_seqs // ask.samples
    if has_slots(ask) or ask.timed or likely != each * found.engines:
        return None
    gpu, one = found.offer.gpu, found.one
    kind = ask.laws.kind(gpu, ask.choice, replace(ask.base, gpu=gpu))
    law = ask.laws.law(one.variant.model, ask.choice, one.settings(ask.base), gpu, kind)

    def room(requests: int) -> Capacity | Rejection:
        sequences = requests * ask.samples * one.limit_ways
        return law.room(gpu, sequences, found.max_model_len, safe=False)

    def holds(requests: int) -> bool:
        there = room(requests)
        return not isinstance(there, Rejection) and dealt_fits(ask, there, requests)

    for wider in _WIDER:
        there = room(each * wider)
        most = 0 if isinstance(there, Rejection) else fitting(ask, there)
        if 0 < most < each * wider:
            held = most_up_to(each * wider, holds, most)
            return held * found.engines if held > each else None
    return None


def option_of(ask: Ask, found: Found) -> Option:
    """The option with the engine's resolved values, figures, notes and warnings."""
    result = answer_of(ask, found)
    engine, one = ask.choice.engine.name, found.one
    settings = replace(
        settings_of(ask, found), tokens=None, answer_tokens=None, requests=1, **_pinned(engine, ask, result)
    )
    budget, pool = result.budget, result.pool
    citations = tuple(
        f"{name}: {about.words()}"
        for name, about in (
            (f"{one.variant.label} weights", one.variant.quality),
            (f"{one.kv} cache", one.kv_quality),
        )
        if about.rank or about.source
    )
    resolved = result.settings
    tier = host_tier(ask, found)
    likely, safe = held_by(ask, found)
    speed = estimate_of(ask, found, settings)
    return Option(
        engine=ask.engine,
        model=one.variant.model.id,
        other_checkpoint=other_checkpoint(ask.variants[0].model.id, one.variant.model),
        weights=one.variant.label,
        kv_cache_dtype=one.kv,
        kv_format=str(resolved.get("kv_cache_dtype") or resolved.get("cache_type_k") or one.kv),
        gpu=found.offer.gpu.slug,
        where=found.offer.where,
        gpus=found.gpus,
        replicas=found.replicas,
        nodes=_nodes(ask, found),
        settings=settings,
        serve=OwnOptions((*serve_of(settings, engine), *tier[0])),
        requests=likely,
        safe_requests=safe,
        memory_requests=memory_held(ask, found, likely),
        requests_per_engine=found.per_engine,
        max_num_seqs=found.max_num_seqs,
        max_model_len=found.max_model_len,
        kv_pool_bytes=pool.bytes if pool is not None else 0,
        kv_pool_low_bytes=budget.kv_pool_low_bytes if budget is not None else 0,
        quality=one.tier,
        host_bytes=sum(line.low_bytes for line in result.host) if spills(ask.choice) else 0,
        citations=citations,
        cost_per_hour=None if found.cost is None else float(found.cost),
        speed=speed,
        cost_per_million_tokens=cost_per_million(ask, found, speed),
        notes=tuple(_notes(ask, found, result)),
        warnings=result.warnings,
    )


def _nodes(ask: Ask, found: Found) -> int:
    """Machines of the plan. An engine that takes every GPU that it sees runs on one of them alone."""
    each, node = found.nodes, node_of(found.offer)
    if traits_of(ask.choice.engine.name).spread is not None:
        each, node = 1, max(node, found.one.layout.gpus)
    return each * found.replicas if each > 1 else ceil_div(found.gpus, node)


def other_checkpoint(asked: str, taken: Model) -> str:
    """The note where another checkpoint is planned than the one named; empty where it is that one."""
    return "" if asked == taken.id else f"{taken.id} is another checkpoint of {asked}"


def host_tier(ask: Ask, found: Found) -> tuple[tuple[tuple[str, object], ...], int]:
    """The flags of the tier in host memory, and the bytes that they come to."""
    own = ask.base.own.get("host_memory")
    if isinstance(own, int):
        return (), own * found.replicas
    if not ask.host_memory:
        return (), 0
    return host_tiers()[ask.choice.engine.name].flags(ask.host_memory, found.gpus, found.engines)


def _pinned(engine: str, ask: Ask, result: SizeResult) -> dict[str, Any]:
    pinned: dict[str, Any] = {}
    for name, resolved in traits_of(engine).pinned.items():
        value = result.settings.get(resolved)
        if value is None or not hasattr(_DEFAULTS, name):
            continue
        pinned[name] = Fraction(str(value)) if name == "gpu_memory_utilization" else int(value)
    return pinned


def _instead_of_stages(ask: Ask, found: Found) -> list[str]:
    """Inside a node tensor parallelism is usual: what it would hold on the GPUs of this engine."""
    if not axes_of(ask).tensor:
        return []
    one = found.one
    size = one.layout.gpus
    plain = replace(
        ask, variants=(one.variant,), kv_dtypes=(one.kv,), offers=(replace(found.offer, available=None),),
        objective=REQUESTS, requests=1, max_gpus=size, lengths=(found.max_model_len,),
        tp=(size,), pp=(1,), dp=(1,), dcp=(1,), adp=(1,), tpot=None, ttft=None, paced=False,
    )  # fmt: skip
    held = search(plain, wanted=1).found
    if not held:
        return [f"pipeline stages, as tp {size} is none: see why others were rejected, or --tp {size} --pp 1"]
    if held[0].requests >= found.per_engine:
        return []
    less = f"tp {size} holds {held[0].requests:,} of the {found.per_engine:,} requests"
    return [f"pipeline stages, though every request waits at each: {less}"]


def _notes(ask: Ask, found: Found, result: SizeResult) -> list[str]:
    """The mistakes that are easily made with this very plan."""
    one, model = found.one, found.one.variant.model
    layout, notes = one.layout, []
    copies = copies_of_heads(model, layout.tp) // (layout.dcp * layout.adp)
    if copies > 1 and has_kind(model, Kind.MLA):
        notes.append(f"the whole latent lies on {copies} ranks: tensor parallelism divides"
                     " weights, not this cache")  # fmt: skip
    elif copies > 1:
        notes.append(f"tp {layout.tp} exceeds the KV heads: each head is kept {copies} times")
    if has_kind(model, Kind.SLIDING, Kind.CHUNKED) and traits_of(ask.choice.engine.name).in_flight:
        tokens = result.settings.get("max_in_flight_tokens")
        if isinstance(tokens, int):
            notes.append(f"a window layer keeps its window and up to {tokens:,} tokens in flight: a smaller"
                         " max_num_batched_tokens holds more requests")  # fmt: skip
    if has_kind(model, Kind.STATE):
        notes.append("states are kept for each request: a max_num_seqs beyond the need takes their memory")
    if layout.pp > 1 and found.nodes == 1:
        notes += _instead_of_stages(ask, found)
    if layout.tp > 1 and found.nodes > 1 and layout.tp * layout.dp > node_of(found.offer):
        notes.append("ranks exchange tensors between nodes at every layer: mind the network")
    return notes
