"""Levers that are settings of the engine: the engine is asked again with each, nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.deployment.counts import kv_dtypes_to_compare
from kvplan.engines.base import has_kind
from kvplan.engines.budget.sharing import runs_of
from kvplan.engines.options import RETENTION
from kvplan.engines.retention import SINKS, accuracy, parsed
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.planning.levers.results import Effect, Lever, exactly
from kvplan.planning.levers.situation import Situation
from kvplan.results import SizeResult


def kv_formats(seen: Situation, allowed: Sequence[str] | None = None) -> Lever:
    """Requests of the typical length in each KV format that the GPU and the engine take, among those
    allowed (None: all)."""
    now = seen.requests_with()
    found: list[Effect] = []
    current = str(seen.result.settings.get("kv_cache_dtype"))
    for dtype in kv_dtypes_to_compare(seen.model):
        if dtype in ("auto", current) or (allowed is not None and dtype not in allowed):
            continue
        count = seen.requests_with(kv_cache_dtype=dtype)
        if count is not None:
            found.append(exactly(dtype, count, "requests"))
    if not found or now is None:
        return Lever("KV format", "the engine takes no other KV format here", applies=False)
    best = max(found, key=lambda one: one.value)
    summary = f"{best.name} holds {int(best.value):,} requests of {seen.typical.tokens:,} tokens, not {now:,}"
    applies = best.value > now
    if not applies:
        summary = f"no other KV format holds more than {now:,} requests of {seen.typical.tokens:,} tokens"
    return Lever("KV format", summary, tuple(found), (_QUALITY, _SEQS), applies, "kv_cache_dtype")


_SEQS = "max_num_seqs aside"
_QUALITY = "memory only: what a format does to the answers is for --quality to judge"


def windows(seen: Situation) -> Lever:
    """The memory that the engine's window pools save, against keeping every token in every layer."""
    changes = traits_of(seen.choice.engine.name).windows_off
    if not has_kind(seen.model, Kind.SLIDING, Kind.CHUNKED) or changes is None:
        return Lever("windows", "no layer of the model forgets tokens in this engine", applies=False)
    tokens = seen.typical.tokens
    full = seen.ask(tokens, **changes).per_gpu.reserved_bytes_per_request
    held = seen.held_bytes(tokens)
    effects = (exactly("with windows", held, "bytes"), exactly("without", full, "bytes"))
    summary = f"a request of {tokens:,} tokens holds {held / full:.0%} of what it would without windows"
    return Lever("windows", summary, effects, applies=held < full)


def retention(seen: Situation) -> Lever:
    """Only some of a request's tokens kept, where the engine can drop what the model itself would keep."""
    name, engine = "token retention", seen.choice.engine.name
    tried, shape = traits_of(engine).retention, seen.typical
    if tried is None:
        why = traits_of(engine).foreign.get(RETENTION.name, "the engine keeps every token that a layer sees")
        return Lever(name, why, applies=False)
    given = seen.settings.own
    kept = parsed(given.get(RETENTION.name) or tried.retention)
    assert kept is not None
    if RETENTION.name in given:
        return Lever(name, f"{given[RETENTION.name]} is asked for already", (), (accuracy(kept),), False)
    if shape.tokens <= kept.kept:
        why = f"requests of {shape.tokens:,} tokens are no longer than what {tried.retention} keeps"
        return Lever(name, why, applies=False)
    plain = given.without(*tried.without)
    asked: list[SizeResult] = []
    for more in ({}, {RETENTION.name: tried.retention}):
        try:
            result = seen.ask(shape.tokens, answer_tokens=max(1, shape.output_tokens), own=plain | more)
        except KvplanError as error:
            return Lever(name, error.message, applies=False)
        if result.refusal is not None or result.pool is None:
            why = "the engine answered without a pool" if result.refusal is None else result.refusal.message
            return Lever(name, why, applies=False)
        asked.append(result)
    before, after = (runs_of(result) for result in asked)
    effects = (exactly("every token", before, "requests"), exactly(tried.retention, after, "requests"))
    summary = f"{tried.retention} holds {after:,} requests of {shape.tokens:,} tokens, not {before:,}"
    # Models without windows of their own break down without their first tokens: no advice to do that.
    sound = kept.sinks >= SINKS
    summary += "; what it drops is forgotten" if sound else "; without first tokens answers break down"
    return Lever(name, summary, effects, (accuracy(kept), _SEQS), after > before and sound, RETENTION.name)


def decode_context_parallel(seen: Situation) -> Lever:
    """Requests with every decode context parallel size that divides the tensor parallel ranks."""
    tp, now = seen.settings.tensor_parallel_size, seen.requests_with()
    found = []
    for size in (2, 4, 8, 16):
        if tp % size == 0 and size > seen.settings.decode_context_parallel_size:
            count = seen.requests_with(decode_context_parallel_size=size)
            if count is not None:
                found.append(exactly(f"dcp {size}", count, "requests"))
    if not found or now is None or max(one.value for one in found) <= now:
        why = "it spreads tokens over ranks that hold the same cache, and here no ranks do"
        return Lever("decode context parallelism", why, tuple(found), applies=False)
    best = max(found, key=lambda one: one.value)
    summary = f"{best.name} holds {int(best.value):,} requests of {seen.typical.tokens:,} tokens, not {now:,}"
    return Lever(
        "decode context parallelism", summary, tuple(found), (), True, "decode_context_parallel_size"
    )
