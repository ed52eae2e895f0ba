"""One tensor for each term and layer, a row for each request: the textbook, and transformers' caches.

huggingface/transformers 5.24.0 src/transformers/cache_utils.py: DynamicCache and StaticCache keep
[requests, heads, tokens, head_dim] for K and V, [requests, …] for states; nothing is paged.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.engines import ENGINES
from kvplan.engines.base import held_by
from kvplan.engines.generic import split_evenly
from kvplan.engines.tensors.base import Layout, Rank
from kvplan.engines.tensors.building import Building
from kvplan.engines.tensors.parts import element_bytes, stored
from kvplan.engines.transformers.engine import GROWS_IN_STATIC
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.terms import Grows, Term
from kvplan.units import ceil_div


def layout(model: Model, settings: Settings, version: str, rank: Rank, engine: str) -> Layout:
    """Tensors of one stage for settings.requests requests, or as many as kv_cache_memory holds."""
    alone = replace(settings, requests=1, kv_cache_memory=None)
    result = ENGINES[engine].size(model, alone, version)
    if result.refusal is not None:
        raise KvplanError("engine-refuses", result.refusal.message, help=result.refusal.help)
    requests = settings.requests
    if settings.kv_cache_memory is not None and result.per_gpu.peak_bytes:
        requests = settings.kv_cache_memory // result.per_gpu.peak_bytes
    terms_of = {entry.layer: entry.terms for entry in result.layers}
    stages = split_evenly(model.layers(), settings.pipeline_parallel_size)
    first = sum(len(stage) for stage in stages[: rank.stage])
    build, places, predicted = Building(), _Places(requests), 0
    lengths = _lengths(result, settings)
    for index, layer in enumerate(stages[rank.stage], first):
        terms = [term.on_rank(settings.tensor_parallel_size) for term in terms_of[layer]]
        predicted += requests * _held(terms, lengths, result.request.encoder_tokens)
        _layer(build, places, terms, index, lengths, result.request.encoder_tokens)
    return build.layout(
        engine,
        version,
        rank,
        result.request,
        predicted_bytes=predicted,
        requests=requests,
        max_model_len=settings.max_model_len or model.max_model_len or result.request.tokens,
        num_attention_heads=max(1, model.num_attention_heads // settings.tensor_parallel_size),
    )


class _Places:
    """The groups by the number of states of a request."""

    def __init__(self, requests: int) -> None:
        self.requests, self.by_states = requests, dict[int, int]()

    def group(self, build: Building, states: int) -> int:
        if states not in self.by_states:
            self.by_states[states] = build.place(f"{states} entries", states, self.requests)
        return self.by_states[states]


def _lengths(result: SizeResult, settings: Settings) -> tuple[int, int]:
    """(tokens that a static cache is allocated for, tokens of what grows all the same)."""
    tokens = ceil_div(result.request.tokens, settings.decode_context_parallel_size)
    static = result.settings.get("max_cache_len")
    return (int(static) if static is not None else tokens), tokens


def _tokens_of(term: Term, lengths: tuple[int, int]) -> int:
    return lengths[1] if term.name in GROWS_IN_STATIC else lengths[0]


def _held(terms: Iterable[Term], lengths: tuple[int, int], encoder_tokens: int) -> int:
    """The engine's own walk over the terms of one layer."""
    return sum(held_by((term,), _tokens_of(term, lengths), encoder_tokens).bytes for term in terms)


def _layer(
    build: Building,
    places: _Places,
    terms: Iterable[Term],
    index: int,
    lengths: tuple[int, int],
    encoder_tokens: int,
) -> None:
    for number, term in enumerate(terms):
        entries = term.entries(_tokens_of(term, lengths), encoder_tokens)
        if not entries:
            continue
        one = stored(term)
        if term.grows is Grows.REQUEST:
            one = one.whole()
        group = places.group(build, entries)
        size = element_bytes(one.dtype)
        shape = (places.requests, one.heads, entries, one.content // size)
        tensor = build.tensor(f"{term.name}.{index}.{number}", shape, one.dtype)
        build.window(one, index, group, tensor, blocks=places.requests, states=entries, heads_outside=True)
